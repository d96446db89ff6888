"""A query's checkpoint: Spark's two logs, on a disk that outlives every driver.

Only what the micro-batch protocol needs: ``offsets/N`` is there before batch N runs, ``commits/N``
after it, and neither is ever written twice: a second query over the same checkpoint finds the file
there and ends (Spark's ``ConcurrentModificationException``).
"""

import json
from dataclasses import dataclass, field
from typing import Final

from oncelog.core.ids import TopicPartition
from oncelog.spark.offsets_log import kafka_offsets, parse
from oncelog.spark.source_offsets import places_json

__all__ = ["Checkpoint", "ConcurrentQueryError"]

METADATA: Final = '{"batchWatermarkMs":0,"batchTimestampMs":%d}'


class ConcurrentQueryError(Exception):
    """Another query works on this checkpoint."""


@dataclass
class Checkpoint:
    """One checkpoint folder. `initial` is where the query's first batch begins."""

    query_id: str
    initial: dict[TopicPartition, int]
    offsets: dict[int, str] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)

    def log_offsets(
        self, batch_id: int, ends: dict[TopicPartition, int], now_s: float = 0.0
    ) -> None:
        """Write ``offsets/N``. Raises `ConcurrentQueryError`."""
        if batch_id in self.offsets:
            raise ConcurrentQueryError(f"offsets/{batch_id}")
        line = json.dumps(places_json(ends), separators=(",", ":"))
        self.offsets[batch_id] = f"v1\n{METADATA % (now_s * 1000)}\n{line}"

    def log_commit(self, batch_id: int) -> None:
        """Write ``commits/N``. Raises `ConcurrentQueryError`."""
        if batch_id in self.commits:
            raise ConcurrentQueryError(f"commits/{batch_id}")
        self.commits.add(batch_id)

    @property
    def last_batch(self) -> int:
        """The last one in ``offsets``, -1 if there is none."""
        return max(self.offsets, default=-1)

    def lines(self, batch_id: int) -> tuple[str, ...]:
        """What the sink reads of ``offsets/N``."""
        return parse(batch_id, self.offsets[batch_id]).source_lines

    def planned_at_s(self, batch_id: int) -> float | None:
        """When it was planned."""
        return parse(batch_id, self.offsets[batch_id]).planned_at_s

    def ends(self, batch_id: int) -> dict[TopicPartition, int]:
        """Where a batch ends; -1 is what was there before the first one."""
        return dict(self.initial) if batch_id < 0 else kafka_offsets(self.lines(batch_id))

    def ranges(self, batch_id: int) -> dict[TopicPartition, tuple[int, int]]:
        """What a batch reads: [start, end) of each partition. It depends on nothing else."""
        starts = self.ends(batch_id - 1)
        return {tp: (starts[tp], end) for tp, end in sorted(self.ends(batch_id).items())}
