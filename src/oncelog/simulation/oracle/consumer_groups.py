"""What the records of KIP-848 imply: the newest value of each key, by group.

Sources: `ConsumerGroup*Key.json` and `ConsumerGroup*Value.json`, all in version 0. A group exists
while the record of its epoch does; its tombstone is the last of those that delete the group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from oncelog.simulation.oracle.cursor import BytesCursor

__all__ = ["ConsumerGroupRecords", "RawConsumerGroup", "RawConsumerMember"]

EPOCH, PARTITION_METADATA, MEMBER, TARGET_EPOCH, TARGET, CURRENT, REGEX = 3, 4, 5, 6, 7, 8, 16
NAMED = (MEMBER, TARGET, CURRENT, REGEX)
"""The kinds whose key names a member or an expression, too."""
Owned = dict[tuple[UUID, int], int]
"""Partition -> the member epoch at which it was assigned."""


@dataclass(frozen=True, slots=True)
class RawConsumerMember:
    """One member's metadata and its current assignment: a new member has none, and epoch 0."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    topics: frozenset[str]
    regex: str
    rebalance_timeout_ms: int
    assignor: str | None
    classic_protocols: tuple[str, ...] | None
    epoch: int = 0
    previous_epoch: int = -1
    state: int = 0
    assigned: Owned = field(default_factory=dict)
    revoking: Owned = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RawConsumerGroup:
    """One group."""

    epoch: int
    metadata_hash: int
    target_epoch: int
    members: dict[str, RawConsumerMember]
    targets: dict[str, frozenset[tuple[UUID, int]]]
    regexes: dict[str, frozenset[str]]


class ConsumerGroupRecords:
    """The newest value of each key."""

    def __init__(self) -> None:
        self._values: dict[tuple[int, str, str], bytes] = {}

    def add(self, kind: int, key: BytesCursor, value: bytes | None) -> None:
        """Take the next record; other kinds than those of KIP-848 are ignored."""
        if kind not in (EPOCH, PARTITION_METADATA, TARGET_EPOCH, *NAMED):
            return
        group = key.text() or ""
        name = (key.text() or "") if kind in NAMED else ""
        if value is None:
            self._values.pop((kind, group, name), None)
        else:
            self._values[kind, group, name] = value

    def groups(self) -> dict[str, RawConsumerGroup]:
        """Return all groups."""
        ids = [group for kind, group, _ in self._values if kind == EPOCH]
        return {id_: self._group(id_) for id_ in ids}

    def _group(self, id_: str) -> RawConsumerGroup:
        epoch = self._read(EPOCH, id_)
        number, tags = epoch.number("i"), epoch.tags()
        metadata_hash = tags[0].number("q") if 0 in tags else 0
        has_target = (TARGET_EPOCH, id_, "") in self._values
        target_epoch = self._read(TARGET_EPOCH, id_).number("i") if has_target else -1
        members = {name: self._member(id_, name) for name in self._names(MEMBER, id_)}
        targets = {
            name: frozenset(_target(self._read(TARGET, id_, name)))
            for name in self._names(TARGET, id_)
        }
        regexes = {
            name: frozenset(_names_in(self._read(REGEX, id_, name)))
            for name in self._names(REGEX, id_)
        }
        return RawConsumerGroup(number, metadata_hash, target_epoch, members, targets, regexes)

    def _names(self, wanted: int, id_: str) -> list[str]:
        return [name for kind, group, name in self._values if kind == wanted and group == id_]

    def _read(self, kind: int, id_: str, name: str = "") -> BytesCursor:
        value = BytesCursor(self._values[kind, id_, name])
        value.number("h")
        value.flexible = True
        return value

    def _member(self, id_: str, name: str) -> RawConsumerMember:
        value = self._read(MEMBER, id_, name)
        instance_id, rack_id, client_id = value.text(), value.text(), value.text() or ""
        value.text()
        topics = frozenset(_names_in(value))
        regex, timeout_ms, assignor = value.text() or "", value.number("i"), value.text()
        tags = value.tags()
        classic = _classic(tags[0]) if 0 in tags else None
        metadata = (instance_id, rack_id, client_id, topics, regex, timeout_ms, assignor, classic)
        if (CURRENT, id_, name) not in self._values:
            return RawConsumerMember(*metadata)
        current = self._read(CURRENT, id_, name)
        epochs = current.number("i"), current.number("i"), current.number("b")
        owned = _owned(current, epochs[0]), _owned(current, epochs[0])
        return RawConsumerMember(*metadata, *epochs, *owned)


def _names_in(value: BytesCursor) -> list[str]:
    return value.list_of(lambda: value.text() or "")


def _classic(value: BytesCursor) -> tuple[str, ...] | None:
    """Read the protocols of a member that speaks the classic one. A byte says whether it is set."""
    if value.number("b") < 0:
        return None
    value.number("i")

    def protocol() -> str:
        name = value.text() or ""
        value.blob()
        value.tags()
        return name

    return tuple(value.list_of(protocol))


def _partitions(value: BytesCursor) -> tuple[UUID, list[int], dict[int, BytesCursor]]:
    topic_id = value.uuid()
    numbers = value.list_of(lambda: value.number("i"))
    return topic_id, numbers, value.tags()


def _target(value: BytesCursor) -> list[tuple[UUID, int]]:
    topics = value.list_of(lambda: _partitions(value))
    return [(topic_id, number) for topic_id, numbers, _ in topics for number in numbers]


def _owned(value: BytesCursor, member_epoch: int) -> Owned:
    """Read owned partitions; without a tag of their own all are of the member's epoch."""
    owned: Owned = {}
    for topic_id, numbers, tags in value.list_of(lambda: _partitions(value)):
        epochs = [member_epoch] * len(numbers)
        if 0 in tags:
            epochs = tags[0].list_of(_number_of(tags[0]))
        for number, epoch in zip(numbers, epochs, strict=True):
            owned[topic_id, number] = epoch
    return owned


def _number_of(value: BytesCursor) -> Callable[[], int]:
    return lambda: value.number("i")
