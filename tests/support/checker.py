"""Decides from a history of client calls and from what readers saw whether the promises held.

Pure: it is handed values and returns anomalies, so that a test can show that it fails when one
record is dropped, repeated or reordered. The kinds follow what Jepsen's Kafka workload looks for.

- INV-1, INV-9: an acknowledged record is at its offset.
- INV-2: no record twice, and those of one stream in the order they were sent.
- INV-3: committed transactions whole, nothing of an aborted one; one in doubt whole or not at all.
- INV-6: a copy's offsets and its output move together.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum


class Outcome(Enum):
    """How a transaction ended for the client that ran it."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Value:
    """What a record carries: which stream sent it, its number there, and its transaction if any."""

    stream: str
    number: int
    transaction: int = -1

    def encode(self) -> bytes:
        return f"{self.stream}/{self.number}/{self.transaction}".encode()

    @staticmethod
    def decode(data: bytes) -> "Value":
        stream, number, transaction = data.decode().split("/")
        return Value(stream, int(number), int(transaction))


@dataclass(frozen=True, slots=True)
class Seen:
    """One record as a reader got it."""

    partition: int
    offset: int
    value: Value


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One broken promise."""

    kind: str
    detail: str


@dataclass
class History:
    """What the clients did. One writer per stream; streams never share values."""

    sent: dict[tuple[str, int], int] = field(default_factory=dict)
    """(stream, number) -> partition, for every record handed to a producer."""
    acked: dict[tuple[str, int], int] = field(default_factory=dict)
    """(stream, number) -> offset, from the delivery report."""
    outcomes: dict[tuple[str, int], Outcome] = field(default_factory=dict)
    """(stream, transaction) -> its end. One that is missing counts as in doubt."""
    members: dict[tuple[str, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    """(stream, transaction) -> the numbers of its records."""

    def send(self, value: Value, partition: int) -> None:
        self.sent[value.stream, value.number] = partition
        if value.transaction >= 0:
            self.members[value.stream, value.transaction].append(value.number)

    def ack(self, value: Value, offset: int) -> None:
        self.acked[value.stream, value.number] = offset

    def end(self, stream: str, transaction: int, outcome: Outcome) -> None:
        self.outcomes[stream, transaction] = outcome


def check(history: History, committed: Iterable[Seen]) -> list[Anomaly]:
    """Everything that is wrong with what a read_committed reader saw of one topic."""
    seen = list(committed)
    by_value: dict[tuple[str, int], Seen] = {}
    anomalies = []
    for record in seen:
        key = (record.value.stream, record.value.number)
        if key in by_value:
            anomalies.append(Anomaly("duplicate", f"{record} and {by_value[key]}"))
        by_value[key] = record
        if history.sent.get(key) != record.partition:
            anomalies.append(Anomaly("never sent", f"{record}"))
    anomalies += check_order(seen)
    anomalies += check_acknowledged(history, by_value)
    anomalies += check_transactions(history, by_value)
    return anomalies


def check_order(seen: list[Seen]) -> list[Anomaly]:
    """Offsets rise within a partition; numbers rise within a stream's part of a partition."""
    anomalies = []
    last_offset: dict[int, int] = {}
    last_number: dict[tuple[int, str], int] = {}
    for record in seen:
        if record.offset <= last_offset.get(record.partition, -1):
            anomalies.append(Anomaly("offset order", f"{record}"))
        last_offset[record.partition] = record.offset
        lane = (record.partition, record.value.stream)
        if record.value.number <= last_number.get(lane, -1):
            anomalies.append(Anomaly("reordered", f"{record} after number {last_number[lane]}"))
        last_number[lane] = record.value.number
    return anomalies


def check_acknowledged(history: History, seen: dict[tuple[str, int], Seen]) -> list[Anomaly]:
    """Records sent outside of transactions: an acknowledged one is there, at its offset."""
    in_transactions = {(key[0], n) for key, numbers in history.members.items() for n in numbers}
    anomalies = []
    for key, offset in history.acked.items():
        record = seen.get(key)
        if record is not None and record.offset != offset:
            anomalies.append(Anomaly("moved", f"{record} was acknowledged at offset {offset}"))
        if record is None and key not in in_transactions:
            anomalies.append(Anomaly("lost", f"{key}, acknowledged at offset {offset}"))
    return anomalies


def check_transactions(history: History, seen: dict[tuple[str, int], Seen]) -> list[Anomaly]:
    """Committed ones whole, aborted ones invisible, those in doubt whole or invisible (INV-3)."""
    anomalies = []
    for (stream, transaction), numbers in history.members.items():
        outcome = history.outcomes.get((stream, transaction), Outcome.UNKNOWN)
        visible = sum((stream, number) in seen for number in numbers)
        name = f"{stream} transaction {transaction}: {visible} of {len(numbers)} records visible"
        if outcome is Outcome.COMMITTED and visible < len(numbers):
            anomalies.append(Anomaly("lost", name))
        if outcome is Outcome.ABORTED and visible:
            anomalies.append(Anomaly("aborted visible", name))
        if outcome is Outcome.UNKNOWN and 0 < visible < len(numbers):
            anomalies.append(Anomaly("torn", name))
    return anomalies


def check_copy(
    inputs: Iterable[tuple[int, int]],
    copied: Iterable[tuple[int, int]],
    committed_offsets: dict[int, int],
) -> list[Anomaly]:
    """Judge a consume-transform-produce job by the (partition, offset) of its input records.

    Exactly the inputs below the group's committed offsets were copied, each once (INV-6).
    """
    counts = Counter(copied)
    anomalies = [Anomaly("copied twice", f"{key}") for key, count in counts.items() if count > 1]
    done = {(p, offset) for p, offset in inputs if offset < committed_offsets.get(p, 0)}
    anomalies += [Anomaly("not copied", f"{key}") for key in sorted(done - counts.keys())]
    anomalies += [
        Anomaly("copied without its offset", f"{key}") for key in sorted(counts.keys() - done)
    ]
    return anomalies


def check_isolation(committed: Iterable[Seen], uncommitted: Iterable[Seen]) -> list[Anomaly]:
    """What read_committed shows is a part of what read_uncommitted shows, at the same places."""
    missing = set(committed) - set(uncommitted)
    return [Anomaly("only in read_committed", f"{record}") for record in missing]
