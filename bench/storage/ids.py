"""Many transactional ids on one broker: what it costs to hold them, and to abort them all.

Each id has a transaction open over one partition, by the older protocol (TV1), and nobody ends it:
all of them run into their timeout, one after the other as they were opened.
"""

import struct
import time
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from bench.gauges import cpu_time, resident_mb
from bench.stats import Figures
from bench.storage.frames import Connection, ask, connected, shares, string
from bench.storage.watch import Watch
from bench.systems import System
from bench.work import TIMEOUT_S, fresh_topic, producer

INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN = 22, 24
VERSIONS = {INIT_PRODUCER_ID: 0, ADD_PARTITIONS_TO_TXN: 0}
TIMEOUT_MS = 20_000
"""``transaction.timeout.ms`` of the ids: all are there before the first runs into it."""
PARTITIONS = 10
LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class ManyIds:
    """So many ids. The time to abort them counts from the moment at which the last one is due."""

    count: int

    def __call__(self, system: System) -> Figures:
        system.start()
        topic = fresh_topic(system, PARTITIONS)
        # Brokers make `__transaction_state` for the first client that looks for its coordinator.
        producer(system, **{"transactional.id": "first"}).init_transactions(TIMEOUT_S)
        with connected(system.bootstrap_servers, VERSIONS) as clients:
            before_mb = resident_mb(system.pid)
            begun = time.perf_counter()
            for numbers in shares(self.count):
                begin([(f"id-{n}", n % PARTITIONS) for n in numbers], topic, clients)
            opened = time.perf_counter()
            figures = {"seconds": opened - begun}
            if figures["seconds"] * 1000 > TIMEOUT_MS:
                raise RuntimeError(f"the ids took {figures['seconds']:.0f} s: raise their timeout")
        figures["memory grown by MB"] = max(0.1, resident_mb(system.pid) - before_mb)
        return figures | aborted(system, topic, self.count, opened + TIMEOUT_MS / 1000)


def begin(ids: list[tuple[str, int]], topic: str, connections: list[Connection]) -> None:
    """Open a transaction of each of these ids over its partition, all of them side by side."""
    used = connections[: len(ids)]
    asked = [string(id_) + struct.pack(">i", TIMEOUT_MS) for id_, _ in ids]
    answers = ask(used, INIT_PRODUCER_ID, asked, 4)
    who = [struct.unpack_from(">qh", answer, 6) for answer in answers]
    added = [
        string(id_)
        + struct.pack(">qhi", *identity, 1)
        + string(topic)
        + struct.pack(">ii", 1, partition)
        for (id_, partition), identity in zip(ids, who, strict=True)
    ]
    ask(used, ADD_PARTITIONS_TO_TXN, added, -2)


def aborted(system: System, topic: str, count: int, due: float) -> Figures:
    """Wait until each transaction has its marker, a record of its partition."""
    reader = Consumer({"bootstrap.servers": system.bootstrap_servers, "group.id": "bench"})
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]

    def markers() -> int:
        return sum(reader.get_watermark_offsets(each, TIMEOUT_S)[1] for each in partitions)

    deadline = time.monotonic() + TIMEOUT_MS / 1000 + TIMEOUT_S
    with Watch(system) as watch:
        while not markers():
            time.sleep(LOOK_S)
        before = cpu_time(system.pid)
        while (found := markers()) < count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{found} of {count} transactions were aborted")
            time.sleep(LOOK_S)
        seconds = max(LOOK_S, time.perf_counter() - due)
        used = cpu_time(system.pid).since(before)
    reader.close()
    return {
        "aborted s": seconds,
        "abort: longest stall ms": watch.longest_ms,
        "abort: CPU s": used.total_s,
    }
