"""Kombu, which carries Celery's tasks: python kombu_queue.py SERVERS SOURCE TARGET.

It has its own envelope, so it moves messages of its own through a queue and copies them from there.
"""

import sys

from confluent_kafka import Producer
from kombu import Connection

SERVERS, SOURCE, TARGET = sys.argv[1:4]
COUNT = 20

target = Producer({"bootstrap.servers": SERVERS})
with Connection(f"confluentkafka://{SERVERS}") as connection:
    queue = connection.SimpleQueue(f"kombu-{SOURCE}")
    for number in range(COUNT):
        queue.put(f"r{number}")
    for _ in range(COUNT):
        message = queue.get(timeout=30)
        target.produce(TARGET, str(message.payload).upper().encode())
        message.ack()
    queue.close()
target.flush(10)
