"""Reading what is not in the page cache, and what another client meets meanwhile."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from bench.stats import Figures
from bench.storage.fill import data_folder, forget_checkpoints, plain_block, write_partition
from bench.storage.watch import Watch
from bench.systems import System
from bench.work import NEVER_POSTPONED, fresh_topic

BATCH_COUNT = 16
BATCH_RECORDS = 64
READ_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class ColdFetch:
    """Consume so many MB of records of 1000 B from the start of a partition."""

    megabytes: int = 1000
    segment_bytes: int = 64 * 2**20

    def __call__(self, system: System) -> Figures:
        system.start()
        topic = fresh_topic(system, 1)
        system.stop()
        block = plain_block(BATCH_COUNT, 1000, BATCH_RECORDS)
        times = max(1, self.megabytes * 1_000_000 // len(block))
        folder = data_folder(system) / f"{topic}-0"
        write_partition(folder, block, times, self.segment_bytes)
        forget_checkpoints(system)
        system.start()
        leave_cache(folder)
        with Watch(system) as watch:
            count = times * BATCH_COUNT * BATCH_RECORDS
            seconds = consumed(system, topic, count)
        return {
            "MB/s": count * 1000 / 1e6 / seconds,
            "longest stall ms": watch.longest_ms,
        }


def leave_cache(folder: Path) -> None:
    """Write the log's files to the disk and drop them from the page cache."""
    for path in folder.glob("*.log"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def consumed(system: System, topic: str, count: int) -> float:
    """Seconds to read so many records from the start of a partition."""
    client = Consumer(
        {
            "bootstrap.servers": system.bootstrap_servers,
            "group.id": "cold",
            "enable.auto.commit": False,
            **NEVER_POSTPONED,
            "log_level": 0,
        }
    )
    try:
        begun = time.perf_counter()
        client.assign([TopicPartition(topic, 0, 0)])
        seen = 0
        while seen < count:
            seen += len(client.consume(10_000, 1.0))
            if time.perf_counter() - begun > READ_TIMEOUT_S:
                raise RuntimeError(f"only {seen} of {count} records came")
        return time.perf_counter() - begun
    finally:
        client.close()
