"""A Celery worker whose tasks travel through Kafka: python celery_worker.py SERVERS SOURCE TARGET.

Each record of the source becomes a task, each task writes a record. Tasks are acknowledged late,
and the program fails unless the worker's group has committed all of them in the end.
"""

import sys

from celery import Celery
from celery.worker import state
from confluent_kafka import Consumer, Producer, TopicPartition

SERVERS, SOURCE, TARGET = sys.argv[1:4]
COUNT = 20
QUEUE = f"tasks-{SOURCE}"

celery = Celery("carry", broker=f"confluentkafka://{SERVERS}")
celery.conf.update(
    broker_connection_retry_on_startup=True,
    broker_transport_options={"wait_time_seconds": 1},
    task_acks_late=True,
    task_default_queue=QUEUE,
    task_ignore_result=True,
    # The transport has no fanout, which the workers' talk among each other needs.
    worker_enable_remote_control=False,
    worker_prefetch_multiplier=1,
)
target = Producer({"bootstrap.servers": SERVERS})
done = 0


@celery.task
def carry(text: str) -> None:
    global done
    target.produce(TARGET, text.upper().encode())
    target.flush(10)
    done += 1
    if done == COUNT:
        state.should_stop = 0


def reader(group: str) -> Consumer:
    return Consumer({"bootstrap.servers": SERVERS, "group.id": group, "enable.auto.commit": False})


source = reader(f"celery-{SOURCE}")
source.assign([TopicPartition(SOURCE, 0, 0)])
for record in source.consume(COUNT, 30):
    carry.delay(record.value().decode())
source.close()

worker = celery.Worker(
    pool="solo", without_gossip=True, without_heartbeat=True, without_mingle=True
)
worker.start()

after = reader(f"{QUEUE}-consumer-group")
(committed,) = after.committed([TopicPartition(QUEUE, 0)], 10)
after.close()
if committed.offset != COUNT:
    sys.exit(f"{committed.offset} of {COUNT} tasks are acknowledged")
