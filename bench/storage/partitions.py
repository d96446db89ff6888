"""Many partitions on one broker: what they cost to make, hold, stop, start and delete."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.gauges import resident_mb
from bench.stats import Figures
from bench.storage.fill import data_folder
from bench.storage.watch import Watch
from bench.systems import System
from bench.work import TIMEOUT_S, admin, flush, fresh_topic, producer

POLL_S = 0.02
GONE_TIMEOUT_S = 300
TOPIC_PARTITIONS_COUNT_MAX = 5_000
"""Apache Kafka refuses a request that takes more than 10,000 records of metadata."""


@dataclass(frozen=True, slots=True)
class ManyPartitions:
    """So many partitions, a record in each, in as few topics as Apache Kafka creates at once."""

    count: int

    def __call__(self, system: System) -> Figures:
        system.start()
        before_mb, before_files = resident_mb(system.pid), open_files(system.pid)
        with Watch(system) as create_watch:
            begun = time.perf_counter()
            topics = create(system, self.count)
            figures = {"create s": time.perf_counter() - begun}
        fill(system, topics)
        figures["memory grown by MB"] = max(0.1, resident_mb(system.pid) - before_mb)
        figures["files open"] = max(1, open_files(system.pid) - before_files)
        begun = time.perf_counter()
        system.stop()
        figures["stop s"] = time.perf_counter() - begun
        figures["start s"] = system.start()
        with Watch(system) as delete_watch:
            figures["delete s"], figures["gone s"] = deleted(system, list(topics))
        figures["create: longest stall ms"] = create_watch.longest_ms
        figures["delete: longest stall ms"] = delete_watch.longest_ms
        return figures


def create(system: System, count: int) -> dict[str, int]:
    """Create topics, one after the other; their names, with the partitions of each."""
    topics = {}
    while count:
        share = min(count, TOPIC_PARTITIONS_COUNT_MAX)
        topics[fresh_topic(system, share)] = share
        count -= share
    return topics


def fill(system: System, topics: Mapping[str, int]) -> None:
    """Write a record to each partition. The client ends: it would make a deleted topic again."""
    client = producer(system, **{"linger.ms": 50})
    for topic, count in topics.items():
        for number in range(count):
            client.produce(topic, bytes(100), partition=number)
    flush(client)


def deleted(system: System, topics: Sequence[str]) -> tuple[float, float]:
    """Seconds until the topics' deletion is answered, and until their last folder is gone."""
    client = admin(system)
    begun = time.perf_counter()
    for future in client.delete_topics(list(topics), operation_timeout=TIMEOUT_S).values():
        future.result(TIMEOUT_S)
    answered_s = time.perf_counter() - begun
    while any(name.startswith(tuple(topics)) for name in os.listdir(data_folder(system))):
        if time.perf_counter() - begun > GONE_TIMEOUT_S:
            raise RuntimeError(f"folders of {topics} are still there after {GONE_TIMEOUT_S} s")
        time.sleep(POLL_S)
    return answered_s, time.perf_counter() - begun


def open_files(pid: int) -> int:
    """Descriptors that a process holds (Linux)."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
