"""Decodes control records and the records of the internal topics to plain values.

Bytes that cannot be decoded are shown as text with the reason, so that a dump continues.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable
from typing import Final
from uuid import UUID

from oncelog.cli.records import iso_time
from oncelog.coordinator import CoordinatorRecord
from oncelog.core.errors import ProtocolError
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from oncelog.group import records as group_records
from oncelog.protocol.record import Record, read_end_marker
from oncelog.protocol.records import consumer_group_log, group_log, transaction_log
from oncelog.transaction import records as transaction_records
from oncelog.transaction.states import TransactionState

__all__ = ["Decoded", "decode_control", "decoder_for", "is_internal", "plain", "why_unreadable"]

Values = dict[str, object]

_READERS: Final[dict[str, Callable[[CoordinatorRecord], object]]] = {
    TRANSACTION_STATE_TOPIC: transaction_records.decode,
    CONSUMER_OFFSETS_TOPIC: group_records.decode,
}
"""The decoders that the coordinators use."""

_STATES: Final = {state.value: state.name for state in TransactionState}


@dataclasses.dataclass(frozen=True, slots=True)
class Decoded:
    """A record's key and value as fields. `value` is None for a tombstone."""

    key: Values
    value: Values | None

    @property
    def transactional_id(self) -> str | None:
        """The id of a record of `__transaction_state`."""
        found = self.key.get("transactional_id")
        return found if isinstance(found, str) else None


def decoder_for(topic: str) -> Callable[[Record], Decoded | None] | None:
    """Return the decoder for the records of an internal topic; None for any other topic."""
    return {"__transaction_state": _transaction, "__consumer_offsets": _group}.get(topic)


def is_internal(topic: str) -> bool:
    """Whether a coordinator reads the records of this topic."""
    return topic in _READERS


def why_unreadable(topic: str, record: Record) -> str | None:
    """Say why a coordinator could not load this record of its internal topic; None if it could."""
    reader = _READERS.get(topic)
    if reader is None:
        return None
    if record.key is None:
        return "it has no key"
    try:
        reader(CoordinatorRecord(record.key, record.value))
    except ProtocolError as error:
        return error.message
    return None


def decode_control(record: Record) -> str:
    """Describe a control record."""
    try:
        marker = read_end_marker(record)
    except ProtocolError as error:
        return f"control record: {error.message}"
    if marker is None:
        return "control record that ends no transaction"
    end = "COMMIT" if marker.commit else "ABORT"
    return f"{end} by coordinator epoch {marker.coordinator_epoch}"


def _transaction(record: Record) -> Decoded | None:
    transactional_id = transaction_log.decode_key(record.key or b"")
    if transactional_id is None:
        return None
    key: Values = {"transactional_id": transactional_id}
    if record.value is None:
        return Decoded(key, None)
    fields = transaction_log.decode_value(record.value)._asdict()
    fields["status"] = _STATES.get(fields["status"], fields["status"])
    fields["partitions"] = [
        f"{topic}-{number}" for topic, numbers in fields["partitions"] or () for number in numbers
    ]
    return Decoded(key, plain(fields))


def _group(record: Record) -> Decoded | None:
    key = group_log.decode_key(record.key or b"")
    if key is None:
        return _consumer_group(record)
    value: Values | None = None
    if record.value is not None:
        read: object
        if isinstance(key, group_log.OffsetCommitKey):
            read = group_log.decode_offset_commit_value(record.value)
        else:
            read = group_log.decode_group_metadata_value(record.value)
        value = plain(dataclasses.asdict(read))
    return Decoded(plain(dataclasses.asdict(key)), value)


def _consumer_group(record: Record) -> Decoded | None:
    key = consumer_group_log.decode_key(record.key or b"")
    if key is None:
        return None
    value: Values | None = None
    if record.value is not None:
        read = consumer_group_log.decode_value(key.kind, record.value)
        value = plain(dataclasses.asdict(read))
    return Decoded({"group": key.group_id, "kind": key.kind.name.lower(), "name": key.name}, value)


def plain(fields: Values) -> Values:
    """The same values as JSON has them, times as text."""
    return {name: _plain(name, value) for name, value in fields.items()}


def _plain(name: str, value: object) -> object:
    if isinstance(value, dict):
        return plain(value)
    if isinstance(value, list | tuple):
        return [_plain(name, each) for each in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, UUID):
        return str(value)
    is_moment = name in _MOMENTS and isinstance(value, int) and value >= 0
    return iso_time(value) if is_moment and isinstance(value, int) else value


_MOMENTS: Final = frozenset(
    {
        "last_update_ms",
        "start_ms",
        "commit_timestamp_ms",
        "expire_timestamp_ms",
        "current_state_timestamp_ms",
        "assignment_timestamp_ms",
        "timestamp_ms",
    }
)
