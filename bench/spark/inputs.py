"""Topics with records to read, filled once for all windows of a row."""

from collections.abc import Iterator
from contextlib import contextmanager

from bench import gauges
from bench.loads import BIG
from bench.systems import System
from bench.work import PARTITIONS, delete_topic, flush, folder_of, fresh_topic, producer

BLOCK_RECORDS = 4096


class Inputs:
    """Topics of four partitions, by system, size and count of their records."""

    def __init__(self) -> None:
        self._topics: dict[tuple[str, int, int], tuple[System, str]] = {}

    def topic(self, system: System, value_bytes: int, count: int) -> str:
        """A topic with so many records, each with a key of 12 bytes."""
        key = system.name, value_bytes, count
        if key not in self._topics:
            topic = fresh_topic(system)
            self._topics[key] = system, topic
            fill_keyed(system, topic, value_bytes, count)
            gauges.wait_clean()
        return self._topics[key][1]

    def forget(self) -> None:
        """Delete them all."""
        for system, topic in self._topics.values():
            delete_topic(system, topic)
        self._topics.clear()


@contextmanager
def topics(system: System, count: int) -> Iterator[list[str]]:
    """Topics of four partitions that nobody else uses."""
    made = [fresh_topic(system) for _ in range(count)]
    try:
        yield made
    finally:
        for topic in made:
            delete_topic(system, topic)


def fill_keyed(system: System, topic: str, value_bytes: int, count: int) -> None:
    """Produce records round robin, the same for every system."""
    client = producer(system, **dict(BIG))
    padding = b"x" * (value_bytes - 12)
    for number in range(count):
        digits = b"%012d" % number
        while True:
            try:
                client.produce(topic, digits + padding, digits, number % PARTITIONS)
                break
            except BufferError:
                client.poll(0.05)
        if number % BLOCK_RECORDS == 0:
            client.poll(0)
    flush(client)


def touch(system: System, total_bytes: float) -> None:
    """Have the host give the memory that a window is about to write to."""
    gauges.touch(folder_of(system), total_bytes * 1.3 / 1e6)
