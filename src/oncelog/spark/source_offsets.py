"""Plans micro-batches and encodes the source's offsets, as pure functions.

An offset is Spark's own JSON, ``{"topic":{"0":23}}``, and beside the topics one entry of ours,
``"@oncelog"``, a name that no topic can have:

- ``cluster``: the id of the cluster;
- ``ids``: the id of each topic. A topic that was deleted and made again has another;
- ``epochs``: the leader epoch under which each partition's end was told. A log that loses its tail
  gives the offsets out again, under a later epoch (KIP-320);
- ``begin``: where the batch that ends here begins in the partitions that the offset before does not
  tell (KIP-516). All of them in the first batch, because Spark does not keep the beginning of a
  query; later new partitions, and those of topics that were made again. A batch that runs again
  after a crash reads what it read before, whatever the cluster would say by then (INV-10).

Offsets without that entry are read too: Spark's own, and ours of before.
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
"""The entry beside the topics. ``@`` is not allowed in a topic's name."""

Places = dict[TopicPartition, int]


def places_json(places: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Encode places as JSON. Spark compares offsets as text, so the order is fixed."""
    result: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(places):
        result.setdefault(topic, {})[str(partition)] = places[TopicPartition(topic, partition)]
    return result


def parse_places(value: Mapping[str, Mapping[str, int]]) -> Places:
    """The inverse of `places_json`."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in value.items()
        for partition, offset in partitions.items()
    }


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """The end of a micro-batch: the next offset to read of each partition."""

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
        """Encode it for Spark's log."""
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
        """Read what `to_json` wrote, or offsets without identities.

        Raises `UsageError` when it is neither.
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
    """The cluster's state of the subscribed partitions: topic ids, and where they end."""

    ends: Places
    topic_ids: Mapping[str, TopicId] = field(default_factory=dict)
    cluster_id: str | None = None
    unsubscribed: frozenset[str] = frozenset()
    """Topics that the query's offsets know and that exist, but are not subscribed to any more."""
    epochs: Places = field(default_factory=dict)
    """The leader epoch of each partition, where the leader reports it."""
    diverged: Places = field(default_factory=dict)
    """The ends of logs that the query read further, before they lost their tail."""


class GapKind(Enum):
    """Why records that the query has to read are missing."""

    REPLACED = "replaced"
    """Another log has its name now, to be read from its beginning."""
    SHORTENED = "shortened"
    """The log ends before the query's position."""
    DIVERGED = "diverged"
    """The log lost its tail, and other records may have taken the offsets since."""
    GONE = "gone"
    """The partition does not exist, or is not subscribed to."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Records that the query has to read and cannot."""

    kind: GapKind
    partitions: tuple[TopicPartition, ...]
    what: str


def to_validate(start: SourceOffset, now: ClusterState) -> dict[TopicPartition, Position]:
    """Return the query's positions in logs whose leader epoch has changed.

    The others need no validation, nor does a topic that was created again.
    """
    return {
        tp: Position(start.ends[tp], epoch)
        for tp, epoch in start.epochs.items()
        if now.epochs.get(tp, epoch) != epoch
        and now.topic_ids.get(tp.topic) == start.topic_ids.get(tp.topic)
    }


def compare_with(start: SourceOffset, now: ClusterState) -> list[Gap]:
    """Find the records that the query has to read and the cluster does not have.

    Brokers that report no topic ids (Metadata before v10) show a topic that was created again only
    by an end below the query's position.
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

    Partitions of new logs are left out: the cluster decides where they begin. A log that lost its
    tail continues at its end, or counts as new where topic ids cannot prove that it is the same. A
    missing topic's positions remain: the same topic comes back when a broker was only starting.
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
    """The end of the batch that begins at `positions`.

    Returns `start` itself when there is nothing to read: Spark compares texts.
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
    """Return where the batch between two offsets begins, as far as they contain it."""
    return {tp: begin for tp, begin in {**start.ends, **end.begins}.items() if tp in end.ends}


def limit_ends(
    begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], rows_max: int
) -> Places:
    """Cut the ends to about `rows_max` offsets in all.

    Shared out in proportion to what waits in each partition, as Spark's source does; a partition
    that has something gets at least one. Offsets count control records too, so a batch may hold a
    few rows less.
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
    """Offsets between begins and ends."""
    return sum(max(end - begins.get(tp, end), 0) for tp, end in ends.items())


def parts_of(sizes: Sequence[int], parts_min: int | None, size_max: int | None) -> list[int]:
    """Return how many tasks read each range: of at most `size_max` offsets, about `parts_min`.

    Rounding may miss `parts_min` by a few, as in Spark's source.
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
    """Cut [begin, end) into `parts` of almost the same size."""
    cuts = [begin + (end - begin) * part // parts for part in range(parts + 1)]
    return list(pairwise(cuts))
