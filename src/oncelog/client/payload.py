"""Checks the arguments of `send`, so that a record that cannot be encoded fails there and alone.

Later it would fail in the sender's task, with every other record of the producer.
"""

from collections.abc import Iterable
from typing import Final

from oncelog.core.limits import INT64_MAX
from oncelog.protocol.batch import BatchHeader, Buffer, read_header
from oncelog.protocol.record import NO_TIMESTAMP, Record, name_bytes

__all__ = ["checked_batch", "checked_record"]

_BUFFERS: Final = (bytearray, memoryview)


def checked_record(
    topic: str,
    partition: int | None,
    key: object,
    value: object,
    headers: Iterable[tuple[str, bytes | None]],
    timestamp_ms: int,
) -> Record:
    """Return the record. Raises `TypeError` or `ValueError` for what cannot be encoded.

    A buffer is copied: the caller may change it before the record is encoded.
    """
    if value is not None and not isinstance(value, bytes):
        value = _bytes("the value", value)
    if key is not None and not isinstance(key, bytes):
        key = _bytes("the key", key)
    if not isinstance(topic, str):
        raise TypeError(f"the topic must be a str, not {type(topic).__name__}")
    if partition is not None and not (isinstance(partition, int) and partition >= 0):
        raise ValueError(f"the partition must be a whole number from 0 on, not {partition!r}")
    if not (isinstance(timestamp_ms, int) and NO_TIMESTAMP <= timestamp_ms <= INT64_MAX):
        raise ValueError(
            f"timestamp_ms must be a whole number, or -1 for none, not {timestamp_ms!r}"
        )
    given = tuple(headers)
    return Record(0, timestamp_ms, key, value, tuple(map(_header, given)) if given else given)


def checked_batch(
    records_bytes: Buffer, record_count: int
) -> tuple[BatchHeader, bytearray | memoryview]:
    """Return the header of one encoded batch, and its bytes where they can be written to.

    Raises `ValueError` unless it is exactly one batch of `record_count` records.
    """
    header = read_header(records_bytes)
    if header.length != len(records_bytes) or header.record_count != record_count:
        raise ValueError(
            f"not one batch of {record_count} records: its header says {header.record_count}"
            f" records in {header.length} of {len(records_bytes)} bytes"
        )
    if isinstance(records_bytes, bytes) or memoryview(records_bytes).readonly:
        return header, bytearray(records_bytes)
    return header, records_bytes


def _bytes(what: str, given: object) -> bytes:
    if not isinstance(given, _BUFFERS):
        raise TypeError(f"{what} must be bytes or None, not {type(given).__name__}")
    return bytes(given)


def _header(header: tuple[str, bytes | None]) -> tuple[str, bytes | None]:
    if not (
        isinstance(header, tuple | list)
        and len(header) == 2
        and isinstance(header[0], str)
        and (header[1] is None or isinstance(header[1], (bytes, *_BUFFERS)))
    ):
        raise TypeError(f"headers must be pairs of a name and bytes or None, not {header!r}")
    name, content = header
    try:
        name_bytes(name)
    except UnicodeEncodeError:
        raise ValueError("a header's name must be text that UTF-8 can encode") from None
    return name, content if content is None else bytes(content)
