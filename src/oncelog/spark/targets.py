"""Chooses the target partition of each row of a micro-batch.

Pure, and by whole columns. The rule is that of Java's default partitioner, except for rows with
neither partition nor key: those fill one record batch after the other, and each batch goes to the
next partition.
"""

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from oncelog.core.ids import TopicPartition
from oncelog.spark.errors import UnknownTargetError, UsageError
from oncelog.spark.hashing import partitions_for_keys

__all__ = ["Targets"]

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Targets:
    """The partitions that a micro-batch may write to, each with a number.

    Partition p of the i-th topic has number ``starts[i] + p``. `size_limits` are the topics'
    ``max.message.bytes``, in bytes; empty where the cluster does not report them.
    """

    topics: tuple[str, ...]
    counts: tuple[int, ...]
    size_limits: tuple[int, ...] = ()
    starts: tuple[int, ...] = field(init=False)
    """The number of each topic's partition 0."""

    def __post_init__(self) -> None:
        starts = tuple(accumulate(self.counts, initial=0))[:-1]
        object.__setattr__(self, "starts", starts)

    @property
    def total(self) -> int:
        """Return the count of partitions."""
        return sum(self.counts)

    def topic_partition(self, number: int) -> TopicPartition:
        """Return the partition with this number."""
        which = self._topic_of(number)
        return TopicPartition(self.topics[which], number - self.starts[which])

    def size_limit(self, number: int) -> int | None:
        """Return the largest size of a record batch for this target in bytes, None if unknown."""
        if not self.size_limits:
            return None
        return self.size_limits[self._topic_of(number)]

    def choose(self, topic: Any, partition: Any, key: Any, spread: Int64s) -> Int64s:
        """Return the number of each row's target.

        `topic`: string array, or None if there is one topic only. `partition`: int32 array or None;
        where it is null the key decides as in Java's default partitioner, and where that is null
        too `spread` does.

        Raises `UnknownTargetError` for a topic or partition that is not among these.
        """
        which = self._topic_indexes(topic, len(spread))
        counts = np.asarray(self.counts, np.int64)[which]
        chosen = spread % counts
        if key is not None and key.null_count < len(key):
            chosen = np.where(_is_valid(key), partitions_for_keys(key, counts), chosen)
        if partition is not None and partition.null_count < len(partition):
            given = np.asarray(pc.fill_null(partition, 0)).astype(np.int64)
            is_given = _is_valid(partition)
            bad = np.flatnonzero(is_given & ((given < 0) | (given >= counts)))
            if len(bad):
                row = int(bad[0])
                raise UnknownTargetError(
                    f"partition {given[row]} does not exist: topic {self.topics[which[row]]!r} "
                    f"has {counts[row]} partitions"
                )
            chosen = np.where(is_given, given, chosen)
        return np.asarray(self.starts, np.int64)[which] + chosen

    def _topic_of(self, number: int) -> int:
        if not 0 <= number < self.total:
            raise UsageError(f"target number {number} is out of range")
        return bisect_right(self.starts, number) - 1

    def _topic_indexes(self, topic: Any, rows: int) -> Int64s:
        if topic is None:
            return np.zeros(rows, np.int64)
        if topic.null_count:
            raise UsageError(
                "a row's topic is null: give every row a topic, or pass topic=... to exactly_once"
            )
        found = pc.index_in(topic.cast(pa.string()), value_set=pa.array(self.topics, pa.string()))
        if found.null_count:
            unknown = topic.filter(pc.is_null(found))[0].as_py()
            raise UnknownTargetError(
                f"topic {unknown!r} does not exist or is not among topics=...; create it before "
                f"a row names it"
            )
        return np.asarray(found).astype(np.int64)


def _is_valid(column: Any) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False), np.bool_)
