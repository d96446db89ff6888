"""Reads what the judge of a group compares: the ends of its topic's partitions and its commits."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.support.group_judge import committed
from tests.support.workload import QUIET

WAIT_S = 20
READ_S_MAX = 60
POLL_S = 0.25


def reading(servers: str) -> Consumer:
    """A consumer outside the group."""
    settings: dict[str, object] = {"bootstrap.servers": servers, "group.id": "judge", **QUIET}
    return Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})


def ends_of(servers: str, topic: str, partitions_count: int) -> dict[int, int]:
    """The log end offset of each partition."""
    consumer = reading(servers)
    found = {
        partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), WAIT_S)[1]
        for partition in range(partitions_count)
    }
    consumer.close()
    return found


def commits_of(servers: str, group: str) -> list[tuple[int, int]]:
    """All commits of the group, in the order of the log."""
    consumer = reading(servers)
    log = TopicPartition("__consumer_offsets", 0, 0)
    end = consumer.get_watermark_offsets(log, WAIT_S)[1]
    consumer.assign([log])
    found: list[tuple[int, int]] = []
    deadline_s = time.monotonic() + READ_S_MAX
    while time.monotonic() < deadline_s:
        for message in consumer.consume(1000, POLL_S):
            if message.error() is not None:
                continue
            commit = committed(message.key() or b"", message.value(), group)
            if commit is not None:
                found.append(commit)
        (at,) = consumer.position([log])
        if at.offset >= end:
            break
    consumer.close()
    return found


def wait_for_coordinator(servers: str, topic: str) -> None:
    """Return when the topic `__consumer_offsets` exists and its leader answers."""
    consumer = reading(servers)
    deadline_s = time.monotonic() + WAIT_S
    while True:
        try:
            consumer.committed([TopicPartition(topic, 0)], WAIT_S)
            break
        except KafkaException:
            # Apache Kafka names a coordinator that does not serve yet.
            if time.monotonic() > deadline_s:
                raise
            time.sleep(POLL_S)
    consumer.close()
