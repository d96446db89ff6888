"""Plans micro-batches and encodes the source's offsets, as pure functions.

An offset is Spark's own JSON, ``{"topic":{"0":23}}``, with one added entry, ``"@oncelog"``, a name
that no topic can have:

- ``cluster``: the id of the cluster;
- ``ids``: the id of each topic. A topic that was deleted and created again has a new id;
- ``epochs``: the leader epoch that the leader reported with each partition's end. A log that loses
  its tail assigns the lost offsets again, under a later epoch (KIP-320);
- ``begin``: the first offset of the batch in each partition that the previous offset does not
  contain (KIP-516). In the first batch these are all partitions, because Spark does not store the
  start of a query; later they are new partitions and those of topics that were created again. So a
  batch that runs again after a crash reads the same records as before, even if the cluster's
  answers have changed (INV-10).

Offsets without that entry, such as those of Spark's own source, are accepted too.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Any, Final
from uuid import UUID

from oncelog.client.machines.positions import Position
from oncelog.core.ids import TopicId, TopicPartition
from oncelog.spark.errors import UsageError

__all__ = [
    "IDENTITY",
    "ClusterState",
    "Gap",
    "GapKind",
    "Places",
    "SourceOffset",
    "begins_of",
    "compare_with",
    "limit_ends",
    "next_offset",
    "parse_places",
    "parts_of",
    "places_json",
    "positions_after",
    "split_range",
    "to_validate",
    "waiting",
]

IDENTITY: Final = "@oncelog"
"""The key of the added entry. ``@`` is not allowed in a topic's name."""

Places = dict[TopicPartition, int]


def places_json(places: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Encode offsets by partition as JSON, in a fixed order: Spark compares offsets as text."""
    result: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(places):
        result.setdefault(topic, {})[str(partition)] = places[TopicPartition(topic, partition)]
    return result


def parse_places(value: Mapping[str, Mapping[str, int]]) -> Places:
    """Decode what `places_json` encoded."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in value.items()
        for partition, offset in partitions.items()
    }


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """The end of a micro-batch: the next offset to read, by partition."""

    ends: Places
    topic_ids: Mapping[str, TopicId] = field(default_factory=dict)
    cluster_id: str | None = None
    begins: Places = field(default_factory=dict)
    epochs: Places = field(default_factory=dict)

    @property
    def is_initial(self) -> bool:
        """Whether the query has read nothing yet."""
        return self.begins == self.ends

    def to_json(self) -> dict[str, Any]:
        """Encode the offset for Spark's offset log."""
        identity: dict[str, Any] = {}
        if self.cluster_id is not None:
            identity["cluster"] = self.cluster_id
        if self.topic_ids:
            identity["ids"] = {name: str(self.topic_ids[name]) for name in sorted(self.topic_ids)}
        if self.epochs:
            identity["epochs"] = places_json(self.epochs)
        if self.begins:
            identity["begin"] = places_json(self.begins)
        value: dict[str, Any] = places_json(self.ends)
        return {**value, IDENTITY: identity} if identity else value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "SourceOffset":
        """Decode what `to_json` encoded, or Spark's offsets, which have no ids or epochs.

        Raises `UsageError` for any other text.
        """
        try:
            identity = value.get(IDENTITY, {})
            topics = {name: places for name, places in value.items() if name != IDENTITY}
            return cls(
                parse_places(topics),
                {name: UUID(text) for name, text in identity.get("ids", {}).items()},
                identity.get("cluster"),
                parse_places(identity.get("begin", {})),
                parse_places(identity.get("epochs", {})),
            )
        except (AttributeError, TypeError, ValueError) as error:
            raise UsageError(
                f"the checkpoint holds a source offset that is none: {json.dumps(value)[:200]}"
            ) from error


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The cluster's state of the subscribed partitions: topic ids and end offsets."""

    ends: Places
    topic_ids: Mapping[str, TopicId] = field(default_factory=dict)
    cluster_id: str | None = None
    unsubscribed: frozenset[str] = frozenset()
    """Existing topics of the query's offsets to which the query is no longer subscribed."""
    epochs: Places = field(default_factory=dict)
    """The leader epoch of each partition, where the leader reports it."""
    diverged: Places = field(default_factory=dict)
    """The end offsets of logs that were truncated below the query's position."""


class GapKind(Enum):
    """The reasons for which records that the query has to read are missing."""

    REPLACED = "replaced"
    """The topic was created again; the query reads the new log from its beginning."""
    SHORTENED = "shortened"
    """The log ends before the query's position."""
    DIVERGED = "diverged"
    """The log lost its tail, and other records may now have its offsets."""
    GONE = "gone"
    """The partition does not exist, or is not subscribed to."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Records of one partition that the query has to read and that are missing."""

    kind: GapKind
    partitions: tuple[TopicPartition, ...]
    what: str


def to_validate(start: SourceOffset, now: ClusterState) -> dict[TopicPartition, Position]:
    """Return the positions in logs whose leader epoch has changed, which need validation.

    A topic that was created again needs none.
    """
    return {
        tp: Position(start.ends[tp], epoch)
        for tp, epoch in start.epochs.items()
        if now.epochs.get(tp, epoch) != epoch
        and now.topic_ids.get(tp.topic) == start.topic_ids.get(tp.topic)
    }


def compare_with(start: SourceOffset, now: ClusterState) -> list[Gap]:
    """Return the records that the query has to read and the cluster does not have.

    Brokers that report no topic ids (Metadata before v10) reveal a topic that was created again
    only if it ends below the query's position.
    """
    if start.cluster_id and now.cluster_id and start.cluster_id != now.cluster_id:
        what = (
            f"the query read cluster {start.cluster_id}, and bootstrapServers now lead to cluster "
            f"{now.cluster_id}"
        )
        return [Gap(GapKind.REPLACED, tuple(sorted(start.ends)), what)]
    gaps = []
    remade = [
        name
        for name, topic_id in start.topic_ids.items()
        if now.topic_ids.get(name, topic_id) != topic_id
    ]
    for name in remade:
        what = (
            f"topic {name!r} was deleted and made again (id {start.topic_ids[name]}, now "
            f"{now.topic_ids[name]})"
        )
        partitions = tuple(sorted(tp for tp in start.ends if tp.topic == name))
        gaps.append(Gap(GapKind.REPLACED, partitions, what))
    for tp, begin in sorted(start.ends.items()):
        if tp.topic in remade:
            continue
        end = now.ends.get(tp)
        if tp in now.diverged:
            gaps.append(Gap(GapKind.DIVERGED, (tp,), _lost_tail(tp, begin, start, now)))
        elif end is None or end < begin:
            kind = GapKind.GONE if end is None else GapKind.SHORTENED
            gaps.append(Gap(kind, (tp,), _what(tp, begin, end, now)))
    return gaps


def _lost_tail(tp: TopicPartition, begin: int, start: SourceOffset, now: ClusterState) -> str:
    return (
        f"partition {tp} was read up to {begin} under leader epoch {start.epochs[tp]}, which ends "
        f"at {now.diverged[tp]}: the log lost its tail, and epoch {now.epochs[tp]} gave the "
        "offsets out again"
    )


def _what(tp: TopicPartition, begin: int, end: int | None, now: ClusterState) -> str:
    if end is not None:
        return f"partition {tp} ends at {end}, before {begin}"
    if tp.topic in now.unsubscribed:
        return f"partition {tp} is in the query's offsets, but not subscribed to any more"
    return f"partition {tp} is gone"


def positions_after(start: SourceOffset, now: ClusterState, gaps: Sequence[Gap]) -> Places:
    """Return the positions from which the query continues, with `gaps` accepted.

    Partitions of new logs are omitted: the cluster decides at which offset they begin. A log that
    lost its tail continues at its end, or counts as new where topic ids cannot prove that it is the
    same. A missing topic's positions remain, because the topic may exist again once its broker has
    started.
    """
    positions = dict(start.ends)
    for gap in gaps:
        for tp in gap.partitions:
            is_same = tp.topic in start.topic_ids and tp.topic in now.topic_ids
            if gap.kind is GapKind.DIVERGED:
                positions[tp] = now.diverged[tp]
            elif gap.kind is GapKind.SHORTENED and is_same:
                positions[tp] = now.ends[tp]
            elif gap.kind is not GapKind.GONE:
                del positions[tp]
    return positions


def next_offset(
    start: SourceOffset, now: ClusterState, positions: Places, rows_max: int | None = None
) -> SourceOffset:
    """Return the end of the batch that begins at `positions`.

    Returns `start` itself when there is nothing to read, because Spark compares offsets as text.
    """
    ends = {tp: max(now.ends.get(tp, position), position) for tp, position in positions.items()}
    epochs = {**start.epochs, **now.epochs}
    if rows_max is not None:
        ends = limit_ends(positions, ends, rows_max)
    begins = {tp: position for tp, position in positions.items() if start.ends.get(tp) != position}
    topics = {tp.topic for tp in positions}
    ids = {**start.topic_ids, **now.topic_ids}
    planned = SourceOffset(
        ends,
        {name: topic_id for name, topic_id in ids.items() if name in topics},
        now.cluster_id or start.cluster_id,
        positions if start.is_initial else begins,
        {tp: epoch for tp, epoch in epochs.items() if tp in positions},
    )
    unchanged = (planned.ends, planned.topic_ids, planned.cluster_id) == (
        start.ends,
        start.topic_ids,
        start.cluster_id,
    )
    return start if unchanged and not begins else planned


def begins_of(start: SourceOffset, end: SourceOffset) -> Places:
    """Return the offset at which each partition of a batch begins.

    Partitions for which neither `start` nor `end` has it are omitted.
    """
    return {tp: begin for tp, begin in {**start.ends, **end.begins}.items() if tp in end.ends}


def limit_ends(
    begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], rows_max: int
) -> Places:
    """Reduce the ends so that a batch has about `rows_max` offsets in all.

    Each partition gets a share in proportion to its unread offsets, and at least one if it has any,
    as in Spark's source. Control records have offsets too, so a batch may have fewer rows.
    """
    sizes = {tp: max(end - begins.get(tp, end), 0) for tp, end in ends.items()}
    total = waiting(begins, ends)
    if total <= rows_max:
        return dict(ends)
    return {
        tp: begins.get(tp, end) + min(sizes[tp], max(sizes[tp] * rows_max // total, 1))
        if sizes[tp]
        else end
        for tp, end in ends.items()
    }


def waiting(begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    """Return the count of offsets between begins and ends."""
    return sum(max(end - begins.get(tp, end), 0) for tp, end in ends.items())


def parts_of(sizes: Sequence[int], parts_min: int | None, size_max: int | None) -> list[int]:
    """Return the count of tasks for each range.

    There are about `parts_min` tasks in all, of at most `size_max` offsets each.

    Rounding may give a few more or fewer than `parts_min`, as in Spark's source.
    """
    parts = [-(-size // size_max) if size_max else 1 for size in sizes]
    if parts_min is not None and sum(parts) < parts_min:
        total = sum(sizes)
        parts = [
            min(size, max(count, round(size * parts_min / total)))
            for size, count in zip(sizes, parts, strict=True)
        ]
    return parts


def split_range(begin: int, end: int, parts: int) -> list[tuple[int, int]]:
    """Divide [begin, end) into `parts` ranges of almost equal size."""
    cuts = [begin + (end - begin) * part // parts for part in range(parts + 1)]
    return list(pairwise(cuts))
