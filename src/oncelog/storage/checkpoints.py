"""The small text files of a log directory, in Kafka's formats.

A checkpoint is a line with its version, a line with the count, and one line per entry. Parsing is
strict: a file that does not parse to its end was torn by a loss of power, and its reader rebuilds
or falls back. All are written through `Disk.write_atomic`.
"""

import base64
from collections.abc import Iterable, Mapping
from itertools import pairwise
from uuid import UUID

from oncelog.core.ids import TopicId, TopicPartition

__all__ = [
    "format_epochs",
    "format_offsets",
    "format_partition_metadata",
    "format_properties",
    "kafka_uuid",
    "log_start_in",
    "parse_epochs",
    "parse_kafka_uuid",
    "parse_offsets",
    "parse_partition_metadata",
    "parse_properties",
]

_VERSION = "0"


def kafka_uuid(value: UUID) -> str:
    """Kafka's spelling of a UUID: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def parse_kafka_uuid(text: str) -> UUID:
    """The inverse of `kafka_uuid`. Raises ValueError."""
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def _format(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "\n".join([_VERSION, str(len(entries)), *entries, ""]).encode()


def _lines(data: bytes) -> list[str] | None:
    try:
        version, count, *entries = data.decode().splitlines()
        if version != _VERSION or int(count) != len(entries) or not data.endswith(b"\n"):
            return None
    except ValueError:
        return None
    return entries


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """An offset checkpoint: `topic partition offset` per line."""
    return _format(
        f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())
    )


def parse_offsets(data: bytes | None) -> dict[TopicPartition, int] | None:
    """Offsets by partition, or None when the file is missing or torn."""
    entries = _lines(data) if data is not None else None
    if entries is None:
        return None
    try:
        fields = [entry.split(" ") for entry in entries]
        return {TopicPartition(topic, int(part)): int(offset) for topic, part, offset in fields}
    except ValueError:
        return None


def format_epochs(epochs: Iterable[tuple[int, int]]) -> bytes:
    """A leader epoch checkpoint: `epoch start_offset` per line."""
    return _format(f"{epoch} {start}" for epoch, start in epochs)


def parse_epochs(data: bytes | None) -> list[tuple[int, int]] | None:
    """(epoch, start offset) in order, or None when the file is missing, torn or not rising."""
    entries = _lines(data) if data is not None else None
    if entries is None:
        return None
    try:
        epochs = [(int(epoch), int(start)) for epoch, start in (e.split(" ") for e in entries)]
    except ValueError:
        return None
    rising = all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(epochs))
    return epochs if rising else None


def format_partition_metadata(topic_id: TopicId) -> bytes:
    """The `partition.metadata` file, which ties a folder to a topic's identity (KIP-516)."""
    return f"version: 0\ntopic_id: {kafka_uuid(topic_id)}".encode()


def parse_partition_metadata(data: bytes | None) -> TopicId | None:
    """The topic id, or None when the file is missing or torn."""
    fields = parse_properties(data, separator=":")
    try:
        return parse_kafka_uuid(fields["topic_id"]) if fields.get("version") == "0" else None
    except (KeyError, ValueError):
        return None


def format_properties(fields: Mapping[str, str]) -> bytes:
    """A Java properties file of plain keys and values, as `meta.properties` is."""
    return "".join(f"{key}={value}\n" for key, value in fields.items()).encode()


def parse_properties(data: bytes | None, separator: str = "=") -> dict[str, str]:
    """Keys and values; comments and blank lines are skipped, a missing file is empty."""
    fields: dict[str, str] = {}
    for line in (data or b"").decode("utf-8", "replace").splitlines():
        key, found, value = line.partition(separator)
        if found and not line.startswith("#"):
            fields[key.strip()] = value.strip()
    return fields


def log_start_in(note: Mapping[str, str]) -> int:
    """Return the log start offset that a note in a moved or stray folder keeps; 0 without one."""
    start = note.get("log-start-offset", "")
    return int(start) if start.isdecimal() else 0
