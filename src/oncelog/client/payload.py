"""Checks the arguments of `send`, so that a record that cannot be encoded fails there and alone.

Later it would fail in the sender's task, with every other record of the producer.
"""

from collections.abc import Iterable
from typing import Final

from oncelog.core.limits import INT64_MAX
from oncelog.protocol.record import NO_TIMESTAMP, Record

__all__ = ["checked_record"]

_BYTES: Final = (bytes, bytearray, memoryview, type(None))


def checked_record(
    topic: str,
    partition: int | None,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | None]],
    timestamp_ms: int,
) -> Record:
    """Return the record. Raises `TypeError` or `ValueError` for what cannot be encoded."""
    if not isinstance(value, _BYTES):
        raise TypeError(f"the value must be bytes or None, not {type(value).__name__}")
    if not isinstance(key, _BYTES):
        raise TypeError(f"the key must be bytes or None, not {type(key).__name__}")
    if not isinstance(topic, str):
        raise TypeError(f"the topic must be a str, not {type(topic).__name__}")
    if partition is not None and not (isinstance(partition, int) and partition >= 0):
        raise ValueError(f"the partition must be a whole number from 0 on, not {partition!r}")
    if not (isinstance(timestamp_ms, int) and NO_TIMESTAMP <= timestamp_ms <= INT64_MAX):
        raise ValueError(
            f"timestamp_ms must be a whole number, or -1 for none, not {timestamp_ms!r}"
        )
    checked = tuple(headers)
    if checked:
        _check_headers(checked)
    return Record(0, timestamp_ms, key, value, checked)


def _check_headers(headers: tuple[tuple[str, bytes | None], ...]) -> None:
    for header in headers:
        if not (
            isinstance(header, tuple | list)
            and len(header) == 2
            and isinstance(header[0], str)
            and isinstance(header[1], _BYTES)
        ):
            raise TypeError(f"headers must be pairs of a name and bytes or None, not {header!r}")
        try:
            header[0].encode()
        except UnicodeEncodeError:
            raise ValueError("a header's name must be text that UTF-8 can encode") from None
