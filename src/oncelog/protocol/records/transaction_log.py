"""`__transaction_state`: the coordinator's state of each transactional id.

From `TransactionLogKey.json` and `TransactionLogValue.json`. A record without a value deletes the
id. Value version 0 has no tagged fields; version 1 has those of TV2 (KIP-890). This
module knows the bytes of a status, not which moves between statuses are legal.
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import error as StructError  # noqa: N812 - it is an exception class
from typing import Final, NamedTuple

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.integers import integers
from oncelog.protocol import wire
from oncelog.protocol.wire import INT16, INT32, INT64, Buffer, uvarint

KEY_VERSION: Final = 0
VALUE_VERSION_MAX: Final = 1

_KEY_HEAD: Final = integers(">hh")
_HEAD_V0: Final = integers(">hqhib")
_TIMES: Final = integers(">qq")
_TAGGED_INT64: Final = integers(">BBq")
_TAGGED_INT16: Final = integers(">BBh")
_PARTITION_LISTS_CACHED_COUNT: Final = 256
_KEYS_CACHED_COUNT: Final = 1024
_PREVIOUS_PRODUCER_ID: Final = 0
_NEXT_PRODUCER_ID: Final = 1
_CLIENT_TRANSACTION_VERSION: Final = 2
_NEXT_PRODUCER_EPOCH: Final = 3


Partitions = tuple[tuple[str, tuple[int, ...]], ...]
"""(topic, partition indexes) of each topic."""


class TransactionLogValue(NamedTuple):
    """One transactional id's state. Times are milliseconds since the epoch, -1 for none.

    `status` is Kafka's number of the state: 0 Empty, 1 Ongoing, 2 PrepareCommit, 3 PrepareAbort,
    4 CompleteCommit, 5 CompleteAbort. `partitions` holds (topic, partition indexes); None, which
    Kafka writes for Empty, differs from an empty tuple.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    status: int
    partitions: Partitions | None
    last_update_ms: int
    start_ms: int
    previous_producer_id: int = -1
    next_producer_id: int = -1
    client_transaction_version: int = 0
    next_producer_epoch: int = -1


@lru_cache(maxsize=_KEYS_CACHED_COUNT)
def encode_key(transactional_id: str) -> bytes:
    """The key of a transactional id's records."""
    raw = transactional_id.encode()
    return _KEY_HEAD.pack(KEY_VERSION, len(raw)) + raw


def decode_key(key: Buffer) -> str | None:
    """The transactional id; None for a kind of key that is not known. Raises `ProtocolError`."""
    try:
        if INT16.unpack_from(key, 0)[0] != KEY_VERSION:
            return None
        return wire.read_string(key, 2)[0]
    except (StructError, IndexError, UnicodeDecodeError, ProtocolError) as error:
        raise _corrupt("key", error) from error


def encode_value(value: TransactionLogValue, version: int = VALUE_VERSION_MAX) -> bytes:
    """Encode a value; version 0 leaves out the last four fields."""
    flexible = version >= 1
    head = _HEAD_V0.pack(
        version, value.producer_id, value.producer_epoch, value.timeout_ms, value.status
    )
    times = _TIMES.pack(value.last_update_ms, value.start_ms)
    partitions = _partitions(value.partitions, flexible)
    return head + partitions + times + (_tags(value) if flexible else b"")


@lru_cache(maxsize=_PARTITION_LISTS_CACHED_COUNT)
def _partitions(partitions: Partitions | None, flexible: bool) -> bytes:
    """Encode the list of partitions; cached, as a producer's transactions often have the same."""
    if partitions is None:
        return b"\x00" if flexible else INT32.pack(-1)
    out = bytearray(_count(len(partitions), flexible))
    for topic, indexes in partitions:
        out += wire.compact_string(topic) if flexible else wire.string(topic)
        out += _count(len(indexes), flexible)
        out += integers(f">{len(indexes)}i").pack(*indexes)
        if flexible:
            out.append(0)
    return bytes(out)


def _count(count: int, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else INT32.pack(count)


def _tags(value: TransactionLogValue) -> bytes:
    """Encode the tagged fields. Their count, numbers and sizes are varints of one byte each."""
    count = 0
    tags = b""
    if value.previous_producer_id != -1:
        count += 1
        tags += _TAGGED_INT64.pack(_PREVIOUS_PRODUCER_ID, 8, value.previous_producer_id)
    if value.next_producer_id != -1:
        count += 1
        tags += _TAGGED_INT64.pack(_NEXT_PRODUCER_ID, 8, value.next_producer_id)
    if value.client_transaction_version != 0:
        count += 1
        tags += _TAGGED_INT16.pack(_CLIENT_TRANSACTION_VERSION, 2, value.client_transaction_version)
    if value.next_producer_epoch != -1:
        count += 1
        tags += _TAGGED_INT16.pack(_NEXT_PRODUCER_EPOCH, 2, value.next_producer_epoch)
    return bytes((count,)) + tags


def decode_value(value: Buffer) -> TransactionLogValue:
    """Decode a value. Raises `ProtocolError` (corrupt_message), also for a version after 1."""
    try:
        return _decode_value(value)
    except (StructError, IndexError, UnicodeDecodeError, ProtocolError) as error:
        raise _corrupt("value", error) from error


def _decode_value(value: Buffer) -> TransactionLogValue:
    version, producer_id, epoch, timeout_ms, status = _HEAD_V0.unpack_from(value, 0)
    if not 0 <= version <= VALUE_VERSION_MAX:
        raise wire.malformed(f"version {version}")
    flexible = version >= 1
    partitions, position = _read_partitions(value, _HEAD_V0.size, flexible)
    last_update_ms, start_ms = _TIMES.unpack_from(value, position)
    previous_id = next_id = next_epoch = -1
    client_version = 0
    if flexible:
        for number, start, _end in wire.iter_tags(value, position + _TIMES.size):
            if number == _PREVIOUS_PRODUCER_ID:
                previous_id = INT64.unpack_from(value, start)[0]
            elif number == _NEXT_PRODUCER_ID:
                next_id = INT64.unpack_from(value, start)[0]
            elif number == _CLIENT_TRANSACTION_VERSION:
                client_version = INT16.unpack_from(value, start)[0]
            elif number == _NEXT_PRODUCER_EPOCH:
                next_epoch = INT16.unpack_from(value, start)[0]
    return TransactionLogValue(
        producer_id,
        epoch,
        timeout_ms,
        status,
        partitions,
        last_update_ms,
        start_ms,
        previous_id,
        next_id,
        client_version,
        next_epoch,
    )


def _read_partitions(value: Buffer, position: int, flexible: bool) -> tuple[Partitions | None, int]:
    if flexible:
        if value[position] == 0:
            return None, position + 1
        count, position = wire.read_compact_array_count(value, position)
    else:
        if INT32.unpack_from(value, position)[0] == -1:
            return None, position + 4
        count, position = wire.read_array_count(value, position)
    topics: list[tuple[str, tuple[int, ...]]] = []
    for _ in range(count):
        indexes: Sequence[int]
        if flexible:
            topic, position = wire.read_compact_string(value, position)
            size, position = wire.read_compact_array_count(value, position)
        else:
            topic, position = wire.read_string(value, position)
            size, position = wire.read_array_count(value, position)
        indexes = integers(f">{size}i").unpack_from(value, position)
        position += 4 * size
        if flexible:
            position = wire.skip_tags(value, position)
        topics.append((topic, tuple(indexes)))
    return tuple(topics), position


def _corrupt(what: str, error: Exception) -> ProtocolError:
    reason = error.message if isinstance(error, ProtocolError) else str(error)
    return ProtocolError(ErrorCode.corrupt_message, f"transaction log {what}: {reason}")
