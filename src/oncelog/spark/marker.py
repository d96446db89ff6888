"""The batch marker: which micro-batch an application committed last (INV-10).

The marker rides in the metadata string of one offset commit inside the batch's own transaction, so
it becomes visible with the batch's output or not at all. `compare` holds the rules of what may run.
It is pure: it knows neither Spark nor Kafka. Anything that is not surely safe fails closed.
"""

import hashlib
import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from oncelog.spark.errors import FailClosedError, UsageError

__all__ = [
    "ACCEPTABLE",
    "BatchIdentity",
    "Marker",
    "Verdict",
    "compare",
    "latest",
    "sources_hash",
]

FORMAT: Final = 1

MISSING_MARKER: Final = "missing-marker"
OTHER_QUERY: Final = "other-query"
OTHER_SOURCES: Final = "other-sources"
OLDER_BATCH: Final = "older-batch"
SKIPPED_BATCHES: Final = "skipped-batches"

ACCEPTABLE: Final = frozenset({MISSING_MARKER, OTHER_SOURCES, OLDER_BATCH, SKIPPED_BATCHES})
"""Reasons that `accept` may name.

A foreign query is accepted by its id instead (`replaces_query`), so that the override cannot be
left on.
"""


class Verdict(Enum):
    """What to do with a batch that Spark hands over."""

    RUN = "run"
    """Write it: the batch before it is the last one committed."""
    DRAIN = "drain"
    """It is committed already.

    Compute it, so that state stores commit, and write nothing (SPARK-52008).
    """


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """What tells one micro-batch from all others.

    The query of the checkpoint, its number, and what it reads.
    """

    query_id: str
    batch_id: int
    sources_hash: str


@dataclass(frozen=True, slots=True)
class Marker:
    """A committed batch.

    `sequence` counts the batches of the application across queries, so that the latest of several
    markers is known.
    """

    sequence: int
    batch: BatchIdentity

    def encode(self) -> str:
        """One line of JSON, about 150 bytes (Kafka's ``offset.metadata.max.bytes`` is 4096)."""
        batch = self.batch
        return json.dumps(
            {
                "oncelog": FORMAT,
                "sequence": self.sequence,
                "query": batch.query_id,
                "batch": batch.batch_id,
                "sources": batch.sources_hash,
            },
            separators=(",", ":"),
        )

    @classmethod
    def decode(cls, text: str | None) -> "Marker | None":
        """Read a metadata string.

        None when it is not a marker; a marker of a newer format is refused.
        """
        if not text or '"oncelog"' not in text:
            return None
        try:
            fields = json.loads(text)
            version = fields["oncelog"]
        except (ValueError, KeyError, TypeError):
            return None
        if version != FORMAT:
            raise FailClosedError(
                "marker-format", f"the marker has format {version}; this version reads {FORMAT}"
            )
        try:
            batch = BatchIdentity(fields["query"], int(fields["batch"]), fields["sources"])
            return cls(int(fields["sequence"]), batch)
        except (KeyError, TypeError, ValueError) as error:
            raise FailClosedError("marker-format", f"unreadable marker: {text!r}") from error


def latest(metadata: Iterable[str | None]) -> Marker | None:
    """The marker of the last committed batch among a group's metadata strings, or None."""
    markers = [marker for text in metadata if (marker := Marker.decode(text)) is not None]
    return max(markers, key=lambda marker: marker.sequence, default=None)


def sources_hash(source_lines: Iterable[str]) -> str:
    """Hash of the source lines of the checkpoint's ``offsets/N``: what the batch reads, exactly."""
    return hashlib.sha256("\n".join(source_lines).encode()).hexdigest()[:32]


def compare(
    committed: Marker | None,
    batch: BatchIdentity,
    *,
    accept: Collection[str] = (),
    replaces_query: str | None = None,
) -> Verdict:
    """Decide whether `batch` runs, given the marker that the transactions of this application left.

    Raises `FailClosedError` in every case but two: the batch is the one committed last (drain), or
    the one right after it (run). `accept` holds reasons (of `ACCEPTABLE`) to run all the same;
    `replaces_query` the id of a query whose checkpoint is lost.
    """
    unknown = set(accept) - ACCEPTABLE
    if unknown:
        raise UsageError(f"accept={sorted(unknown)} is unknown; known are {sorted(ACCEPTABLE)}")
    if committed is None:
        if batch.batch_id == 0 or MISSING_MARKER in accept:
            return Verdict.RUN
        raise FailClosedError(
            MISSING_MARKER,
            f"batch {batch.batch_id} comes after others, but no marker of them is there: wrong "
            f"cluster or application_id, or the group's"
            f" offsets expired. If the batches before it are committed and this one is not, run "
            f"once with accept=[{MISSING_MARKER!r}]",
        )
    last = committed.batch
    if last.query_id != batch.query_id:
        if replaces_query == last.query_id:
            return Verdict.RUN
        raise FailClosedError(
            OTHER_QUERY,
            f"this application_id last committed batch {last.batch_id} of query {last.query_id}, "
            f"and this is query {batch.query_id}: a lost or new"
            " checkpoint, or two queries under one application_id. A stateless query whose source "
            "resumes from the group's offsets"
            f" (startingOffsets=group) may go on with replaces_query={last.query_id!r}",
        )
    return _same_query(last, batch, accept)


def _same_query(last: BatchIdentity, batch: BatchIdentity, accept: Collection[str]) -> Verdict:
    if batch.batch_id == last.batch_id + 1:
        return Verdict.RUN
    if batch.batch_id == last.batch_id:
        if batch.sources_hash == last.sources_hash:
            return Verdict.DRAIN
        reason, what = OTHER_SOURCES, "was committed with other source offsets"
    elif batch.batch_id < last.batch_id:
        reason, what = OLDER_BATCH, f"is older than the last committed one, {last.batch_id}"
    else:
        reason, what = SKIPPED_BATCHES, f"does not follow the last committed one, {last.batch_id}"
    if reason in accept:
        return Verdict.RUN
    raise FailClosedError(
        reason,
        f"batch {batch.batch_id} of query {batch.query_id} {what}: the checkpoint was restored or "
        f"edited."
        f" Running it may write records twice or leave some out; accept=[{reason!r}] runs it all "
        f"the same",
    )
