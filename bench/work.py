"""What every load has in common: windows of work, their topics, and a client's settings.

A load is opened once per system and then asked for windows. Each window gets what it needs first
(`prepare`), does its work (`run`: only this is timed and charged) and clears up (`settle`). The
same windows warm a broker up and measure it.
"""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.stats import Figures
from bench.systems import Endpoint

PARTITIONS = 4
TIMEOUT_S = 60
GONE_TIMEOUT_S = 10

NEVER_POSTPONED = {"queued.min.messages": 1_000_000, "queued.max.messages.kbytes": 1_000_000}
"""With its defaults librdkafka pauses for a second (fetch.queue.backoff.ms) whenever the broker is
faster than the application. That would measure luck.
"""

HIGHER_IS_BETTER = frozenset({"MB/s", "txn/s", "requests/s"})
"""Of all other figures, less is better."""


@dataclass(frozen=True, slots=True)
class Window:
    """The results of one window of work."""

    figures: Figures
    """The client's figures, by name with unit."""
    rate: float
    """Units of work per second, for the rule of warming up."""
    amount: float
    """Units of work, for what the broker spent on each."""


class Work(Protocol):
    """A load that is under way at one system."""

    def prepare(self) -> None: ...

    def run(self) -> Window: ...

    def settle(self) -> None: ...

    def close(self) -> None: ...


Load = Callable[[Endpoint], Work]


class Plain:
    """A `Work` with one topic for all its windows."""

    def __init__(self, system: Endpoint, partitions: int = PARTITIONS) -> None:
        self.system = system
        self.topic = fresh_topic(system, partitions)

    def prepare(self) -> None:
        pass

    def settle(self) -> None:
        pass

    def close(self) -> None:
        delete_topic(self.system, self.topic)


def fresh_topic(system: Endpoint, partitions: int = PARTITIONS) -> str:
    """Return a new topic's name."""
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    client = admin(system)
    if is_mock(system):
        # It knows no CreateTopics, and makes four partitions for every topic that is asked for.
        client.list_topics(topic, timeout=TIMEOUT_S)
        return topic
    # As many replicas as the system has by default.
    for future in client.create_topics([NewTopic(topic, partitions, -1)]).values():
        future.result(TIMEOUT_S)
    return topic


def delete_topic(system: Endpoint, topic: str) -> None:
    """Delete a topic and wait until its files are gone, so that its memory can be used again."""
    if is_mock(system):
        return
    client = admin(system)
    for future in client.delete_topics([topic]).values():
        future.result(TIMEOUT_S)
    deadline = time.monotonic() + GONE_TIMEOUT_S
    while is_on_disk(folder_of(system), topic) and time.monotonic() < deadline:
        time.sleep(0.02)


def is_on_disk(folder: Path, topic: str) -> bool:
    """Whether a broker, or one of a cluster, still has files of a topic."""
    return any(any(folder.glob(f"{data}/{topic}*")) for data in ("data", "*/data"))


def folder_of(system: Endpoint) -> Path:
    """Where a broker keeps its files."""
    assert system.folder is not None
    return system.folder


def is_mock(system: Endpoint) -> bool:
    """Whether it is librdkafka's mock cluster."""
    return system.folder is None


def admin(system: Endpoint) -> AdminClient:
    """An administrator's client."""
    return AdminClient(connected_to(system))


def connected_to(system: Endpoint) -> dict[str, str | int | float | bool]:
    """What every client of librdkafka is told."""
    return {
        "bootstrap.servers": system.bootstrap_servers,
        "log_level": 0,
        **system.client_settings,
    }


def producer(system: Endpoint, **settings: object) -> Producer:
    """An idempotent producer."""
    return Producer(
        {
            **connected_to(system),
            "enable.idempotence": True,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 512 * 1024,
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
    flush(client)
    return time.perf_counter() - begun


def flush(client: Producer) -> None:
    """Wait for every acknowledgement."""
    left = client.flush(TIMEOUT_S)
    if left:
        raise RuntimeError(f"{left} records were not acknowledged")


def timed_for(call: Callable[[], object], seconds: float) -> list[float]:
    """Call again and again for so long; returns the seconds that each call took."""
    times = []
    now = time.perf_counter()
    end = now + seconds
    while now < end:
        begun = now
        call()
        now = time.perf_counter()
        times.append(now - begun)
    return times
