"""Spark's write-ahead log of offsets: what micro-batch N reads (``<checkpoint>/offsets/N``).

Pure: text in, values out; the sink reads the file. Format v1 (Spark's `OffsetSeqLog`): a line
``v1``, a line of metadata, then one line per source, ``-`` where a source has no offset yet.
Sources that speak Kafka's topics (Spark's own connector and ours) write ``{"topic":{"0":123}}``.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from oncelog.core.ids import TopicPartition
from oncelog.spark.errors import UsageError

__all__ = ["LoggedOffsets", "kafka_offsets", "parse"]

VERSION: Final = "v1"
NO_OFFSET: Final = "-"


@dataclass(frozen=True, slots=True)
class LoggedOffsets:
    """One entry of the log. `source_lines` holds one line per source, as Spark wrote it."""

    batch_id: int
    source_lines: tuple[str, ...]


def parse(batch_id: int, text: str) -> LoggedOffsets:
    """Read the text of ``offsets/N``.

    Raises `UsageError` for a format that this version does not know.
    """
    lines = text.split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines or lines[0].strip() != VERSION:
        found = lines[0].strip() if lines else "an empty file"
        raise UsageError(
            f"offsets/{batch_id} of the checkpoint has format {found!r}, not {VERSION!r}"
        )
    if len(lines) < 3:
        raise UsageError(f"offsets/{batch_id} of the checkpoint names no source")
    return LoggedOffsets(batch_id, tuple(lines[2:]))


def kafka_offsets(source_lines: Iterable[str]) -> dict[TopicPartition, int]:
    """The next offset to read of each partition that these sources carry.

    Empty when none of them is Kafka's.

    A partition that two sources read (a union of two branches makes Spark read twice) is given the
    lower of its offsets: everything below it is done.
    """
    offsets: dict[TopicPartition, int] = {}
    for line in source_lines:
        for topic_partition, offset in _of_one_source(line).items():
            offsets[topic_partition] = min(offset, offsets.get(topic_partition, offset))
    return offsets


def _of_one_source(line: str) -> dict[TopicPartition, int]:
    if line.strip() == NO_OFFSET:
        return {}
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    if not isinstance(value, dict):
        return {}
    offsets: dict[TopicPartition, int] = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, dict):
            return {}
        for partition, offset in partitions.items():
            if not partition.isdecimal() or type(offset) is not int or offset < 0:
                return {}
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets
