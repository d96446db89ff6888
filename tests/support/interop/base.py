"""What the suite asks of a client: the common part of what stock clients offer.

An adapter changes names and shapes only. It keeps each client's own defaults except where a test
names an option, and turns whatever the client raises into `Refused` with Kafka's error name, so
that verdicts can be compared between clients and between brokers.
"""

import contextlib
import itertools
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from oncelog.core.errors import ErrorCode

WAIT_S = 20
POLL_S = 0.2

# The names under which clients report that another instance took their transactional id over.
FENCED = frozenset({"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})

_run = uuid.uuid4().hex[:8]
_numbers = itertools.count()


class Refused(Exception):  # noqa: N818 - a verdict that tests expect
    """A client raised; `name` is Kafka's name of the error, or the client's own for a local one."""

    def __init__(self, name: str, detail: object = "") -> None:
        super().__init__(f"{name}: {detail}")
        self.name = name


@dataclass(frozen=True, slots=True)
class Record:
    """One record to send."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int | None = None
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Received:
    """One record as it was read."""

    partition: int
    offset: int
    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int


class Sender(ABC):
    """A producer, started; a transactional one has called its init_transactions."""

    @abstractmethod
    def send(self, topic: str, records: Sequence[Record]) -> list[int]:
        """Send, wait for all, and return the offsets in the order given."""

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...

    @abstractmethod
    def send_offsets(self, topic: str, offsets: dict[int, int], reader: "Reader") -> None:
        """Add the group's offsets (partition -> next offset) to the transaction."""

    @abstractmethod
    def close(self) -> None: ...


class Reader(ABC):
    """A consumer."""

    group: str | None

    @abstractmethod
    def subscribe(self, topic: str) -> None: ...

    @abstractmethod
    def assign(self, topic: str, partitions: Sequence[int]) -> None: ...

    @abstractmethod
    def seek(self, topic: str, partition: int, offset: int) -> None: ...

    def seek_all(self, topic: str, offsets: dict[int, int]) -> None:
        """Go on at these offsets in all partitions that are assigned."""
        for partition, offset in offsets.items():
            self.seek(topic, partition, offset)

    @abstractmethod
    def poll(self, timeout_s: float = POLL_S) -> list[Received]:
        """What has arrived; empty after `timeout_s`."""

    @abstractmethod
    def assignment(self) -> list[int]:
        """Partition numbers of what this member owns, sorted."""

    @abstractmethod
    def commit(self, topic: str, offsets: dict[int, int]) -> None: ...

    @abstractmethod
    def committed(self, topic: str, partition: int) -> int | None: ...

    @abstractmethod
    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """First offset at or after that time; None if there is none."""

    @abstractmethod
    def reached(self, topic: str, partition: int, end: int) -> bool:
        """Whether all before offset `end` was read or passed over."""

    @abstractmethod
    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """First and next offset, as the reader's isolation level sees them."""

    @abstractmethod
    def close(self) -> None: ...


class Client(ABC):
    """One client library against one cluster. It owns what it made and closes it."""

    name: ClassVar[str]
    codecs: ClassVar[tuple[str, ...]]
    strategies: ClassVar[tuple[str, ...]]

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._open = contextlib.ExitStack()

    @abstractmethod
    def sender(
        self,
        *,
        codec: str | None = None,
        acks: int | str | None = None,
        idempotent: bool | None = None,
        transactional_id: str | None = None,
        transaction_timeout_ms: int | None = None,
    ) -> Sender: ...

    @abstractmethod
    def reader(
        self,
        *,
        group: str | None = None,
        isolation_level: str | None = None,
        strategy: str | None = None,
        instance_id: str | None = None,
    ) -> Reader:
        """A consumer that starts at the earliest offset and commits nothing on its own."""

    @abstractmethod
    def create_topic(
        self, name: str, partitions: int = 1, config: dict[str, str] | None = None
    ) -> None: ...

    @abstractmethod
    def create_partitions(self, name: str, count: int) -> None: ...

    @abstractmethod
    def delete_topic(self, name: str) -> None: ...

    @abstractmethod
    def topics(self) -> dict[str, int]:
        """Every topic's name and number of partitions."""

    @abstractmethod
    def topic_config(self, name: str) -> dict[str, str]: ...

    @abstractmethod
    def set_topic_config(self, name: str, key: str, value: str) -> None: ...

    @abstractmethod
    def group_state(self, group: str) -> tuple[str, int]:
        """Kafka's name of the group's state, and how many members it has."""

    @abstractmethod
    def groups(self) -> set[str]: ...

    def topic(self, partitions: int = 1, config: dict[str, str] | None = None) -> str:
        """A new topic with a name of its own."""
        name = fresh("topic")
        self.create_topic(name, partitions, config)
        return name

    def close(self) -> None:
        self._open.close()


def fresh(prefix: str) -> str:
    """A name that no other test uses, nor an earlier run against the same cluster."""
    return f"{prefix}-{_run}-{next(_numbers)}"


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_s} s for {what}")


def read_to_end(
    client: Client, topic: str, partitions: int = 1, isolation_level: str | None = None
) -> list[Received]:
    """All records that this isolation level may see, by partition and offset.

    Ends when the reader's position reached the end of every partition: control and aborted records
    are passed over without being shown.
    """
    reader = client.reader(isolation_level=isolation_level)
    reader.assign(topic, range(partitions))
    ends = {part: reader.bounds(topic, part)[1] for part in range(partitions)}
    found: list[Received] = []

    def step() -> bool:
        found.extend(reader.poll())
        return all(reader.reached(topic, part, end) for part, end in ends.items())

    wait_until(step, f"the end of {topic} at {ends}")
    reader.close()
    return sorted(found, key=lambda record: (record.partition, record.offset))


def error_name(number: int) -> str:
    """Kafka's upper-case name of an error code."""
    return ErrorCode(number).name.upper()
