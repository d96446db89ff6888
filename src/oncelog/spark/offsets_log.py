"""Spark's write-ahead log of offsets: what micro-batch N reads (``<checkpoint>/offsets/N``).

Pure: text in, values out; the sink reads the file. Format v1 (Spark's `OffsetSeqLog`): a line
``v1``, a line of metadata, then one line per source, ``-`` where a source has no offset yet.
Sources that speak Kafka's topics (Spark's own connector and ours) write ``{"topic":{"0":123}}``;
ours adds an entry ``"@oncelog"`` with the cluster's id and where a first batch begins.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from oncelog.core.ids import TopicPartition
from oncelog.spark.errors import UsageError
from oncelog.spark.source_offsets import IDENTITY

__all__ = ["LoggedOffsets", "cluster_ids", "initial_offsets", "kafka_offsets", "parse"]

VERSION: Final = "v1"
NO_OFFSET: Final = "-"


@dataclass(frozen=True, slots=True)
class LoggedOffsets:
    """One entry of the log. `source_lines` holds one line per source, as Spark wrote it."""

    batch_id: int
    source_lines: tuple[str, ...]
    planned_at_s: float | None = None
    """When Spark planned the batch, by its driver's clock; None if the entry has no time."""


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
    return LoggedOffsets(batch_id, tuple(lines[2:]), _planned_at_s(lines[1]))


def _planned_at_s(metadata: str) -> float | None:
    try:
        return int(json.loads(metadata)["batchTimestampMs"]) / 1000
    except (ValueError, KeyError, TypeError):
        return None


def kafka_offsets(source_lines: Iterable[str]) -> dict[TopicPartition, int]:
    """Return the next offset to read of each partition, from these sources' lines.

    Empty when none of them is Kafka's.

    For a partition that two sources read (a union of two branches makes Spark read twice) the lower
    offset counts: everything below it is done.
    """
    offsets: dict[TopicPartition, int] = {}
    for line in source_lines:
        for topic_partition, offset in _of_one_source(line).items():
            offsets[topic_partition] = min(offset, offsets.get(topic_partition, offset))
    return offsets


def cluster_ids(source_lines: Iterable[str]) -> set[str]:
    """Return the ids of the sources' clusters, as far as known."""
    found = (_identity(line).get("cluster") for line in source_lines)
    return {cluster for cluster in found if isinstance(cluster, str)}


def initial_offsets(
    source_lines: Iterable[str], notes: Iterable[str] = ()
) -> dict[TopicPartition, int] | None:
    """Return where the sources' first batch begins; None unless all Kafka sources report it.

    Our source has it in its line. `notes` are texts of files beside the log: Spark's Kafka source
    has it in ``sources/N/0``, our earlier versions in ``oncelog-starting-offsets-*``. A partition
    that two sources read begins at the lower offset.
    """
    lines = tuple(source_lines)
    told = [_offsets(_identity(line).get("begin")) for line in lines]
    told += [_offsets(_object(note.rpartition("\n")[2])) for note in notes]
    begins: dict[TopicPartition, int] = {}
    for offsets in told:
        for topic_partition, offset in offsets.items():
            begins[topic_partition] = min(offset, begins.get(topic_partition, offset))
    return begins if kafka_offsets(lines).keys() <= begins.keys() else None


def _of_one_source(line: str) -> dict[TopicPartition, int]:
    value = _object(line)
    return _offsets({name: entry for name, entry in value.items() if name != IDENTITY})


def _identity(line: str) -> dict[str, Any]:
    identity = _object(line).get(IDENTITY)
    return identity if isinstance(identity, dict) else {}


def _object(line: str) -> dict[str, Any]:
    if line.strip() == NO_OFFSET:
        return {}
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _offsets(topics: object) -> dict[TopicPartition, int]:
    """``{"topic":{"0":123}}`` as offsets; empty when it is anything else."""
    if not isinstance(topics, dict):
        return {}
    offsets: dict[TopicPartition, int] = {}
    for topic, partitions in topics.items():
        if not isinstance(partitions, dict):
            return {}
        for partition, offset in partitions.items():
            if not partition.isdecimal() or type(offset) is not int or offset < 0:
                return {}
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets
