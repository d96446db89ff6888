"""A stream processor of arroyo: python arroyo_processor.py SERVERS SOURCE TARGET.

It commits the offsets of what was produced, and the program fails unless it committed all.
"""

import sys

from arroyo.backends.kafka import KafkaConsumer, KafkaPayload, KafkaProducer
from arroyo.backends.kafka.configuration import (
    build_kafka_configuration,
    build_kafka_consumer_configuration,
)
from arroyo.commit import IMMEDIATE
from arroyo.processing import StreamProcessor
from arroyo.processing.strategies import CommitOffsets, Produce, RunTask
from arroyo.processing.strategies.abstract import ProcessingStrategyFactory
from arroyo.types import Topic
from confluent_kafka import Consumer, TopicPartition

SERVERS, SOURCE, TARGET = sys.argv[1:4]
COUNT = 20
GROUP = f"arroyo-{SOURCE}"


def upper(message):
    return KafkaPayload(None, message.payload.value.upper(), [])


class Factory(ProcessingStrategyFactory):
    """It ends once the last record is committed: an earlier end would drop what is under way."""

    def create_with_partitions(self, commit, partitions):
        def commit_and_end(offsets, force=False):
            commit(offsets, force)
            if COUNT in offsets.values():
                processor.signal_shutdown()

        producing = Produce(producer, Topic(TARGET), CommitOffsets(commit_and_end))
        return RunTask(upper, producing)


settings = {"bootstrap.servers": SERVERS}
producer = KafkaProducer(build_kafka_configuration(default_config=settings))
consumer = KafkaConsumer(
    build_kafka_consumer_configuration(
        default_config=settings, group_id=GROUP, auto_offset_reset="earliest"
    )
)
processor = StreamProcessor(consumer, Topic(SOURCE), Factory(), IMMEDIATE, join_timeout=30)
processor.run()
producer.close().result(10)

after = Consumer({"bootstrap.servers": SERVERS, "group.id": GROUP})
(committed,) = after.committed([TopicPartition(SOURCE, 0)], 10)
after.close()
if committed.offset != COUNT:
    sys.exit(f"{committed.offset} of {COUNT} records are committed")
