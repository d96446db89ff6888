"""The loads: each takes a running system and returns named figures. The client is librdkafka.

Figures of rate are better when higher, all others when lower; `rows.py` says which is which. A load
makes its own topic, so that loads do not meet each other's data.
"""

import resource
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median, quantiles

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.peer.child import METADATA_REQUEST
from bench.systems import System, cpu_seconds, resident_mb

PARTITIONS = 4
TIMEOUT_S = 60

NEVER_POSTPONED = {"queued.min.messages": 1_000_000, "queued.max.messages.kbytes": 1_000_000}
"""With its defaults librdkafka pauses for a second (fetch.queue.backoff.ms) whenever the broker is
faster than the application. That would measure luck.
"""

Figures = dict[str, float]


def fresh_topic(system: System, partitions: int = PARTITIONS) -> str:
    """A topic that nobody else uses."""
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": system.bootstrap_servers, "log_level": 0})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(TIMEOUT_S)
    return topic


def producer(system: System, **settings: object) -> Producer:
    """An idempotent producer, with its connections made."""
    return Producer(
        {
            "bootstrap.servers": system.bootstrap_servers,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 512 * 1024,
            "log_level": 0,
            **settings,
        }
    )


def fill(client: Producer, topic: str, value: bytes, count: int) -> float:
    """Produce `count` records round robin; returns the seconds until the last acknowledgement."""
    begun = time.perf_counter()
    produce = client.produce
    for number in range(count):
        while True:
            try:
                produce(topic, value, partition=number % PARTITIONS)
                break
            except BufferError:
                client.poll(0.05)
        if number % 4096 == 0:
            client.poll(0)
    left = client.flush(TIMEOUT_S)
    if left:
        raise RuntimeError(f"{left} records were not acknowledged")
    return time.perf_counter() - begun


@dataclass(frozen=True, slots=True)
class Bulk:
    """Bulk produce of records of one size; MB/s and broker CPU seconds per GB."""

    value_bytes: int
    total_mb: int
    settings: tuple[tuple[str, object], ...]

    def __call__(self, system: System) -> Figures:
        topic = fresh_topic(system)
        client = producer(system, **dict(self.settings))
        value = bytes(self.value_bytes)
        fill(client, topic, value, 2000)
        cpu = cpu_seconds(system.pid)
        count = self.total_mb * 1_000_000 // self.value_bytes
        seconds = fill(client, topic, value, count)
        cpu = cpu_seconds(system.pid) - cpu
        return {
            "MB/s": self.total_mb / seconds,
            "CPU s/GB": cpu / self.total_mb * 1000,
            "memory MB": resident_mb(system.pid),
        }


def consume(system: System) -> Figures:
    """Read 300 MB of 1000-byte records back from the page cache."""
    topic = fresh_topic(system)
    total_mb = 300
    count = total_mb * 1000
    settings = {"linger.ms": 5, "batch.size": 1_000_000}
    fill(producer(system, **settings), topic, bytes(1000), count)
    client = Consumer(
        {
            "bootstrap.servers": system.bootstrap_servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **NEVER_POSTPONED,
            "log_level": 0,
        }
    )
    cpu = cpu_seconds(system.pid)
    begun = time.perf_counter()
    client.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    seen = 0
    while seen < count:
        messages = client.consume(10_000, 1.0)
        seen += len(messages)
        if time.perf_counter() - begun > TIMEOUT_S:
            raise RuntimeError(f"only {seen} of {count} records came")
    seconds = time.perf_counter() - begun
    cpu = cpu_seconds(system.pid) - cpu
    client.close()
    return {
        "MB/s": total_mb / seconds,
        "CPU s/GB": cpu / total_mb * 1000,
        "memory MB": resident_mb(system.pid),
    }


def timed(call: Callable[[], object], count: int, warm: int) -> list[float]:
    """Seconds of each of `count` calls after `warm` more."""
    for _ in range(warm):
        call()
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return times


def percentiles(times: list[float]) -> Figures:
    """Median and 99th percentile in milliseconds."""
    return {"p50 ms": median(times) * 1000, "p99 ms": quantiles(times, n=100)[98] * 1000}


def latency(system: System) -> Figures:
    """Produce and flush one 100-byte record, 2000 times."""
    topic = fresh_topic(system)
    client = producer(system, **{"linger.ms": 0})

    def one() -> None:
        client.produce(topic, bytes(100), partition=0)
        client.flush(TIMEOUT_S)

    return percentiles(timed(one, 2000, 200))


def tiny_transactions(system: System) -> Figures:
    """Begin, produce one record, commit, back to back."""
    topic = fresh_topic(system)
    client = producer(system, **{"transactional.id": topic, "linger.ms": 0})
    client.init_transactions(TIMEOUT_S)

    def one() -> None:
        client.begin_transaction()
        client.produce(topic, bytes(100), partition=0)
        client.commit_transaction(TIMEOUT_S)

    times = timed(one, 500, 50)
    return {"txn/s": len(times) / sum(times), **percentiles(times)}


@dataclass(frozen=True, slots=True)
class Paced:
    """Bulk produce of 1000-byte records for some seconds, in transactions if a length is given."""

    transaction_s: float | None
    settings: tuple[tuple[str, object], ...] = ()
    duration_s: float = 3.0

    def __call__(self, system: System) -> Figures:
        topic = fresh_topic(system)
        settings: dict[str, object] = {"linger.ms": 5, "batch.size": 1_000_000}
        settings |= dict(self.settings)
        if self.transaction_s is not None:
            settings["transactional.id"] = topic
        client = producer(system, **settings)
        if self.transaction_s is None:
            fill(client, topic, bytes(1000), 2000)
        else:
            client.init_transactions(TIMEOUT_S)
        begun = time.perf_counter()
        count = 0
        while time.perf_counter() - begun < self.duration_s:
            count += self.one(client, topic)
        client.flush(TIMEOUT_S)
        return {"MB/s": count / 1000 / (time.perf_counter() - begun)}

    def one(self, client: Producer, topic: str) -> int:
        """One transaction, or a quarter of a second without; returns the records sent."""
        value = bytes(1000)
        if self.transaction_s is not None:
            client.begin_transaction()
        end = time.perf_counter() + (self.transaction_s or 0.25)
        count = 0
        while time.perf_counter() < end:
            for number in range(50):
                while True:
                    try:
                        client.produce(topic, value, partition=number % PARTITIONS)
                        break
                    except BufferError:
                        client.poll(0.01)
            client.poll(0)
            count += 50
        if self.transaction_s is not None:
            client.commit_transaction(TIMEOUT_S)
        return count


def many_partitions(system: System) -> Figures:
    """1,000 partitions: seconds to create and write to them all, and the memory afterwards."""
    before = resident_mb(system.pid)
    begun = time.perf_counter()
    topic = fresh_topic(system, 1000)
    client = producer(system, **{"linger.ms": 50})
    for number in range(1000):
        client.produce(topic, bytes(100), partition=number)
    if client.flush(TIMEOUT_S):
        raise RuntimeError("not every partition acknowledged its record")
    return {
        "seconds": time.perf_counter() - begun,
        "memory grown by MB": max(0.1, resident_mb(system.pid) - before),
    }


def many_connections(system: System, count: int = 1000) -> Figures:
    """1,000 connections that stay: seconds until each had an answer, and the memory afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 200
    if soft < wanted and (hard == resource.RLIM_INFINITY or hard >= wanted):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    host, _, port = system.bootstrap_servers.rpartition(":")
    before = resident_mb(system.pid)
    begun = time.perf_counter()
    connections: list[socket.socket] = []
    try:
        for _ in range(count):
            connections.append(socket.create_connection((host, int(port)), TIMEOUT_S))
        for connection in connections:
            connection.sendall(METADATA_REQUEST)
        for connection in connections:
            if not connection.recv(4096):
                raise RuntimeError("a connection was closed instead of answered")
        seconds = time.perf_counter() - begun
        grown = resident_mb(system.pid) - before
    finally:
        for connection in connections:
            connection.close()
    return {"seconds": seconds, "memory grown by MB": max(0.1, grown)}
