"""What `__consumer_offsets` implies: offsets, with those of open transactions, and classic groups.

Sources: `OffsetCommitKey/Value.json` and `GroupMetadataKey/Value.json`, and `GroupMetadata.scala`
for offsets of transactions. The newest record of a key counts. An offset of a transaction counts
from the commit marker on, unless a later record of the partition is committed already; a tombstone
removes those that wait, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from oncelog.simulation.oracle.batches import RawBatch, RawRecord
from oncelog.simulation.oracle.consumer_groups import ConsumerGroupRecords
from oncelog.simulation.oracle.cursor import BytesCursor

__all__ = ["OffsetsState", "RawGroup", "RawMember", "RawOffset"]

OffsetKey = tuple[str, str, int]
"""Group, topic, partition."""
OFFSET_KINDS = (0, 1)
CLASSIC_KIND = 2


class RawOffset(NamedTuple):
    """A committed offset; `record_offset` and `written_ms` are those of its record."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    topic_id: UUID | None
    record_offset: int
    written_ms: int


class RawMember(NamedTuple):
    """A member of a classic group."""

    instance_id: str | None
    assignment: bytes


@dataclass(frozen=True, slots=True)
class RawGroup:
    """The newest record of a classic group."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    members: dict[str, RawMember]


@dataclass(slots=True)
class OffsetsState:
    """The state of one partition after some batches."""

    committed: dict[OffsetKey, RawOffset] = field(default_factory=dict)
    pending: dict[int, dict[OffsetKey, RawOffset]] = field(default_factory=dict)
    """By producer id, while its transaction is open."""
    classic: dict[str, RawGroup] = field(default_factory=dict)
    consumer: ConsumerGroupRecords = field(default_factory=ConsumerGroupRecords)

    def add(self, batch: RawBatch) -> None:
        """Apply the next batch."""
        if batch.is_control:
            marker = batch.end_marker()
            if marker is not None:
                self._end(batch.producer_id, is_commit=marker.is_commit)
            return
        for record in batch.readable():
            key = BytesCursor(record.key or b"")
            kind = key.number("h")
            if kind in OFFSET_KINDS:
                at = (key.text() or "", key.text() or "", key.number("i"))
                self._put(at, record, batch)
            elif kind == CLASSIC_KIND:
                self._put_group(key.text() or "", record)
            else:
                self.consumer.add(kind, key, record.value)

    def _end(self, producer_id: int, *, is_commit: bool) -> None:
        for at, value in self.pending.pop(producer_id, {}).items():
            known = self.committed.get(at)
            if is_commit and (known is None or known.record_offset < value.record_offset):
                self.committed[at] = value

    def _put(self, at: OffsetKey, record: RawRecord, batch: RawBatch) -> None:
        if record.value is None:
            self.committed.pop(at, None)
            for offsets in self.pending.values():
                offsets.pop(at, None)
        elif batch.is_transactional:
            self.pending.setdefault(batch.producer_id, {})[at] = _offset(record)
        else:
            self.committed[at] = _offset(record)

    def _put_group(self, group: str, record: RawRecord) -> None:
        if record.value is None:
            self.classic.pop(group, None)
        else:
            self.classic[group] = _group(BytesCursor(record.value))


def _offset(record: RawRecord) -> RawOffset:
    value = BytesCursor(record.value or b"")
    version = value.number("h")
    value.flexible = version >= 4
    offset = value.number("q")
    epoch = value.number("i") if version >= 3 else -1
    metadata, commit_ms = value.text() or "", value.number("q")
    if version == 1:
        value.number("q")
    tags = value.tags()
    topic_id = tags[0].uuid() if 0 in tags else None
    return RawOffset(
        offset, epoch, metadata, commit_ms, topic_id, record.offset, record.timestamp_ms
    )


def _group(value: BytesCursor) -> RawGroup:
    version = value.number("h")
    value.flexible = version >= 4
    protocol_type, generation = value.text() or "", value.number("i")
    protocol, leader = value.text(), value.text()
    if version >= 2:
        value.number("q")

    def member() -> tuple[str, RawMember]:
        id_ = value.text() or ""
        instance_id = value.text() if version >= 3 else None
        value.text()
        value.text()
        if version >= 1:
            value.number("i")
        value.number("i")
        value.blob()
        assignment = value.blob() or b""
        value.tags()
        return id_, RawMember(instance_id, assignment)

    members = dict(value.list_of(member))
    return RawGroup(protocol_type, generation, protocol, leader, members)
