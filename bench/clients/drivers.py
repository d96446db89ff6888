"""The three clients behind one shape, each used as its documentation has it and set alike."""

from collections.abc import Callable, Mapping
from typing import Protocol

from bench.clients.jobs import Job


class Driver(Protocol):
    """One client on one topic, for one job."""

    async def start(self, job: Job) -> None:
        """Open what the job needs: a consumer at the beginning of all partitions, or a producer."""

    async def produce(self, value: bytes, count: int) -> None:
        """Send so many round robin, and wait until all are acknowledged."""

    async def consume(self, count: int) -> None:
        """Read so many."""

    async def join(self, group: str) -> None:
        """Subscribe as a member of a group with the range assignor and the classic protocol."""

    async def held_count(self) -> int:
        """Take part in the group for a moment; the count of partitions that this member has."""

    async def send_one(self, value: bytes) -> None:
        """Send one, and wait for its acknowledgement."""

    async def transaction(self, value: bytes) -> None:
        """Begin, send one, commit."""

    async def close(self) -> None: ...


Made = Callable[[str, str], Driver]
"""Makes a driver for brokers and a topic."""


def ours() -> Made:
    """`oncelog.Producer` and `oncelog.Consumer`."""
    from bench.clients.ours import Ours

    return Ours


def confluent() -> Made:
    """confluent-kafka."""
    from bench.clients.librdkafka import Confluent

    return Confluent


def aio() -> Made:
    """Aiokafka."""
    from bench.clients.aio import Aiokafka

    return Aiokafka


DRIVERS: Mapping[str, Callable[[], Made]] = {
    "oncelog": ours,
    "confluent": confluent,
    "aiokafka": aio,
}
"""Each imported by itself, so that a process holds one client only."""
