"""Many partitions on one broker: what they cost to make, hold, stop, start and delete."""

import os
import time
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


@dataclass(frozen=True, slots=True)
class ManyPartitions:
    """One topic of so many partitions, a record in each."""

    count: int

    def __call__(self, system: System) -> Figures:
        system.start()
        before_mb, before_files = resident_mb(system.pid), open_files(system.pid)
        with Watch(system) as create_watch:
            begun = time.perf_counter()
            topic = fresh_topic(system, self.count)
            figures = {"create s": time.perf_counter() - begun}
        fill(system, topic, self.count)
        figures["memory grown by MB"] = max(0.1, resident_mb(system.pid) - before_mb)
        figures["files open"] = max(1, open_files(system.pid) - before_files)
        begun = time.perf_counter()
        system.stop()
        figures["stop s"] = time.perf_counter() - begun
        figures["start s"] = system.start()
        with Watch(system) as delete_watch:
            figures["delete s"], figures["gone s"] = deleted(system, topic)
        figures["create: longest stall ms"] = create_watch.longest_ms
        figures["delete: longest stall ms"] = delete_watch.longest_ms
        return figures


def fill(system: System, topic: str, count: int) -> None:
    """Write a record to each partition. The client ends: it would make a deleted topic again."""
    client = producer(system, **{"linger.ms": 50})
    for number in range(count):
        client.produce(topic, bytes(100), partition=number)
    flush(client)


def deleted(system: System, topic: str) -> tuple[float, float]:
    """Seconds until a topic's deletion is answered, and until its last folder is gone."""
    client = admin(system)
    begun = time.perf_counter()
    for future in client.delete_topics([topic], operation_timeout=TIMEOUT_S).values():
        future.result(TIMEOUT_S)
    answered_s = time.perf_counter() - begun
    while any(name.startswith(topic) for name in os.listdir(data_folder(system))):
        if time.perf_counter() - begun > GONE_TIMEOUT_S:
            raise RuntimeError(f"folders of {topic} are still there after {GONE_TIMEOUT_S} s")
        time.sleep(POLL_S)
    return answered_s, time.perf_counter() - begun


def open_files(pid: int) -> int:
    """Descriptors that a process holds (Linux)."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
