"""Creates the records that scripted producers send, with all features of the record format.

A value is unique in the run. Keys, headers, codecs and timestamps vary. Pure but for the `rng`
argument.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from oncelog.core.ids import TopicPartition
from oncelog.protocol.record import NO_TIMESTAMP, Record, build_batch
from oncelog.simulation.history import Value

__all__ = ["CODECS", "Batch", "Corners"]

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_RECENT_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Corners:
    """The features of the record format that a producer uses."""

    codecs: Sequence[str] = ("none",)
    timestamps: Sequence[str] = ("now",)
    """Some of "now", "recent" (up to a minute ago) and "none" (-1)."""
    keys: bool = True
    headers: bool = True

    def records(self, rng: random.Random, now_ms: int, values: Sequence[Value]) -> list[Record]:
        """Return the records of one batch."""
        kind = rng.choice(self.timestamps)
        records = []
        for value in values:
            time_ms = now_ms
            if kind == "recent":
                time_ms -= rng.randrange(_RECENT_MS)
            elif kind == "none":
                time_ms = NO_TIMESTAMP
            key = rng.choice((None, b"", b"k", value.client.encode())) if self.keys else None
            headers: list[tuple[str, bytes | None]] = []
            if self.headers and rng.random() < 0.3:
                headers = [("h", rng.choice((None, b"", b"v" * rng.randrange(200))))]
            records.append(Record(0, time_ms, key, value.encode(), headers))
        return records


class Batch:
    """Records for one partition, from the call of `offer` until their outcome is known.

    `order` numbers a producer's batches. `perhaps_written`: it was sent without a response that
    refused it, so it may be in the log or still arrive there.
    """

    __slots__ = (
        "at",
        "codec",
        "deadline_s",
        "epoch",
        "error",
        "is_acked",
        "order",
        "perhaps_written",
        "producer_id",
        "records",
        "sequence",
        "values",
    )

    def __init__(
        self,
        at: TopicPartition,
        values: Sequence[Value],
        records: list[Record],
        *,
        codec: str,
        deadline_s: float,
    ) -> None:
        self.at = at
        self.values = tuple(values)
        self.records = records
        self.codec = codec
        self.deadline_s = deadline_s
        self.order = -1
        self.producer_id = -1
        self.epoch = -1
        self.sequence = -1
        self.perhaps_written = False
        self.error = ""
        self.is_acked = False

    def encode(self, transactional: bool) -> bytearray:
        """Return the batch as bytes, with its current producer id, epoch and sequence."""
        return build_batch(
            self.records,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=transactional,
            codec=self.codec,
        )
