"""How fast a log is compacted: bytes that were dirty, by the time until they are gone."""

import time
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import NewTopic

from bench.stats import Figures
from bench.storage.fill import data_folder, forget_checkpoints, keyed_block, write_partition
from bench.systems import System
from bench.work import TIMEOUT_S, admin

TOPIC = "compacted"
POLL_S = 0.02
COMPACTED_TIMEOUT_S = 300
SETTINGS = {"log.cleaner.backoff.ms": "100", "log.segment.delete.delay.ms": "0"}
CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.bytes": str(16 * 2**20),
    "file.delete.delay.ms": "0",
}


@dataclass(frozen=True, slots=True)
class Compaction:
    """So many keys with values of 1000 B, each written `versions` times."""

    key_count: int = 10_000
    versions: int = 100
    records_per_batch: int = 16
    segment_bytes: int = 16 * 2**20

    def __call__(self, system: System) -> Figures:
        system.start()
        wanted = NewTopic(TOPIC, 1, 1, config=CONFIG)
        client = admin(system)
        for future in client.create_topics([wanted]).values():
            future.result(TIMEOUT_S)
        system.stop()
        folder = data_folder(system) / f"{TOPIC}-0"
        block = keyed_block(self.key_count, 1000, self.records_per_batch)
        total = write_partition(folder, block, self.versions, self.segment_bytes)
        active = last_segment(folder)
        forget_checkpoints(system)
        # What stays: each key once in the sealed segments, and the active one as it is.
        left = len(block) + active.stat().st_size
        system.start()
        begun = time.perf_counter()
        wait_until_compacted(folder, left + len(block) // 4)
        seconds = time.perf_counter() - begun
        return {"seconds": seconds, "MB/s": (total - active.stat().st_size) / 1e6 / seconds}


def last_segment(folder: Path) -> Path:
    """The `.log` file with the highest base offset: the active one after a start."""
    return max(folder.glob("*.log"))


def wait_until_compacted(folder: Path, bytes_max: int) -> None:
    """Return once the log's files are at most so large together."""
    deadline = time.perf_counter() + COMPACTED_TIMEOUT_S
    while log_bytes(folder) > bytes_max:
        if time.perf_counter() > deadline:
            raise RuntimeError(f"{folder.name} is not compacted after {COMPACTED_TIMEOUT_S} s")
        time.sleep(POLL_S)


def log_bytes(folder: Path) -> int:
    """Bytes of all `.log` files, as far as they are still there."""
    total = 0
    for file in folder.glob("*.log"):
        try:
            total += file.stat().st_size
        except FileNotFoundError:
            continue
    return total
