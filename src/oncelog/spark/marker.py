"""The batch marker: which micro-batch an application committed last (INV-10).

The marker is a record of the marker topic (compacted, the application id as key), and the metadata
string of one of the offsets that the batch commits. Both are part of the batch's own transaction,
so they become visible with its output or not at all, and either is enough to find it again.
`compare` decides which batch may run. It is pure: it knows neither Spark nor Kafka. A case that is
not certainly safe fails closed.

Offsets of a group expire (``offsets.retention.minutes``, a week) and go with a deleted topic;
records of a compacted topic do not. Without a marker, batch 0 is either the first there ever was,
or one that was committed by a driver that died before Spark noted it, and whose marker expired.
An existing marker topic does not tell the two apart, as that driver may have used the group only.
So batch 0 runs without a marker in two cases: it was planned less than `UNMARKED_AGE_S_MAX` ago, or
the marker topic holds its query's `opening`. An opening is a record of batch -1, committed in a
transaction of its own before batch 0 is written. It is written only where batch 0 may run, so it
certifies for as long as the topic lives that no batch of the query was committed before it.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from oncelog.core.ids import TopicPartition
from oncelog.spark.errors import FailClosedError

__all__ = [
    "ACCEPTABLE",
    "UNMARKED_AGE_S_MAX",
    "BatchIdentity",
    "Marker",
    "Verdict",
    "check_query",
    "check_start",
    "compare",
    "latest",
    "opened_query",
    "opening",
    "sources_hash",
]

FORMAT: Final = 1

_OPENING: Final = -1
"""The batch of an opening."""

MISSING_MARKER: Final = "missing-marker"
OTHER_QUERY: Final = "other-query"
OTHER_SOURCES: Final = "other-sources"
OLDER_BATCH: Final = "older-batch"
SKIPPED_BATCHES: Final = "skipped-batches"
OTHER_START: Final = "other-start"

UNMARKED_AGE_S_MAX: Final = 24 * 3600.0
"""Without an opening, a batch 0 that was planned longer ago may have lost its marker.

A cluster has to keep the offsets of a group for at least this time.
"""

ACCEPTABLE: Final = frozenset(
    {MISSING_MARKER, OTHER_SOURCES, OLDER_BATCH, SKIPPED_BATCHES, OTHER_START}
)
"""Reasons that `accept` may name.

A foreign query is accepted by its id instead (`replaces_query`), so that the override cannot be
left on.
"""


class Verdict(Enum):
    """The decision about a micro-batch."""

    RUN = "run"
    """Write it: the batch before it is the last one committed."""
    DRAIN = "drain"
    """It is committed already.

    Compute it, so that state stores commit, and write nothing (SPARK-52008).
    """


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """Identifies one micro-batch."""

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
    watermark_ms: int | None = None
    """The batch's future entry in Spark's commit log (`oncelog.spark.commit_log`)."""

    def encode(self) -> str:
        """One line of JSON, about 150 bytes (Kafka's ``offset.metadata.max.bytes`` is 4096)."""
        batch = self.batch
        fields = {
            "oncelog": FORMAT,
            "sequence": self.sequence,
            "query": batch.query_id,
            "batch": batch.batch_id,
            "sources": batch.sources_hash,
        }
        if self.watermark_ms is not None:
            fields["watermark"] = self.watermark_ms
        return json.dumps(fields, separators=(",", ":"))

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
            watermark_ms = fields.get("watermark")
            return cls(
                int(fields["sequence"]), batch, None if watermark_ms is None else int(watermark_ms)
            )
        except (KeyError, TypeError, ValueError) as error:
            raise FailClosedError("marker-format", f"unreadable marker: {text!r}") from error


def latest(metadata: Iterable[str | None]) -> Marker | None:
    """The marker of the last committed batch among markers and other texts, or None."""
    markers = [marker for text in metadata if (marker := Marker.decode(text)) is not None]
    of_batches = [marker for marker in markers if marker.batch.batch_id != _OPENING]
    return max(of_batches, key=lambda marker: marker.sequence, default=None)


def opening(query_id: str) -> Marker:
    """The record that stands in the marker topic before batch 0 of a query is written."""
    return Marker(0, BatchIdentity(query_id, _OPENING, sources_hash(())))


def opened_query(text: str | None) -> str | None:
    """The query of an opening; None for every other text."""
    marker = Marker.decode(text)
    if marker is None or marker.batch.batch_id != _OPENING:
        return None
    return marker.batch.query_id


def sources_hash(source_lines: Iterable[str]) -> str:
    """Hash of the source lines of the checkpoint's ``offsets/N``: what the batch reads, exactly."""
    return hashlib.sha256("\n".join(source_lines).encode()).hexdigest()[:32]


def compare(
    committed: Marker | None,
    batch: BatchIdentity,
    *,
    accept: Collection[str] = (),
    replaces_query: str | None = None,
    may_have_expired: bool = False,
) -> Verdict:
    """Decide whether `batch` runs, given the marker that this application's transactions left.

    Raises `FailClosedError` in every case but two: the batch is the one committed last (drain), or
    the one right after it (run). `accept` has reasons (of `ACCEPTABLE`) to run nevertheless;
    `replaces_query` is the id of a query whose checkpoint is lost; `may_have_expired` means that a
    marker of this very batch could have expired.
    """
    if committed is None:
        return _without_marker(batch, accept, may_have_expired)
    last = committed.batch
    if last.query_id != batch.query_id:
        check_query(committed, batch.query_id, replaces_query if batch.batch_id == 0 else None)
        return Verdict.RUN
    return _same_query(last, batch, accept)


def check_query(committed: Marker, query_id: str | None, replaces_query: str | None) -> None:
    """Refuse a query that is neither the marker's nor the one to replace it.

    `query_id` is None for a query whose checkpoint is empty.
    """
    last = committed.batch
    if last.query_id in (query_id, replaces_query):
        return
    this = "this query's checkpoint is empty" if query_id is None else f"this is query {query_id}"
    raise FailClosedError(
        OTHER_QUERY,
        f"this application_id last committed batch {last.batch_id} of query {last.query_id}, "
        f"and {this}: a lost or new checkpoint, or two queries under one application_id. A "
        "stateless query whose source resumes from the group's offsets (startingOffsets=group) may "
        f"go on with replaces_query={last.query_id!r}",
    )


def check_start(
    begins: Mapping[TopicPartition, int] | None,
    committed: Mapping[TopicPartition, int],
    accept: Collection[str],
) -> None:
    """Refuse batch 0 of a replacing query unless it begins where the replaced one ended.

    `begins` is where the batch begins, None if its source does not report it. `committed` are the
    group's offsets of the last committed batch, empty if it committed none or they were changed
    since. A partition without such an offset is new and may begin anywhere.
    """
    if OTHER_START in accept:
        return
    ways_out = (
        "let the source start there (startingOffsets; format oncelog reads a group's offsets with "
        f"startingOffsets=group), or run once with accept=[{OTHER_START!r}]"
    )
    needed = "replaces_query needs a source that begins where the replaced query ended"
    if begins is None:
        raise FailClosedError(
            OTHER_START, f"{needed}, and this one does not tell where it begins: {ways_out}"
        )
    if not committed:
        raise FailClosedError(
            OTHER_START,
            f"{needed}, and no offsets of its last batch tell where that is: it committed none "
            "(commit_source_offsets=False), or they expired or were reset. Let the source start "
            "at the end of that batch, if you know it, and run once with "
            f"accept=[{OTHER_START!r}]",
        )
    for topic_partition, begin in sorted(begins.items()):
        end = committed.get(topic_partition, begin)
        if begin != end:
            what = "again" if begin < end else "never"
            raise FailClosedError(
                OTHER_START,
                f"the query begins at offset {begin} of {topic_partition}, and the one that it "
                f"replaces ended at {end}: records between them would be written {what}; "
                f"{ways_out}",
            )


def _without_marker(
    batch: BatchIdentity, accept: Collection[str], may_have_expired: bool
) -> Verdict:
    is_first = batch.batch_id == 0 and not may_have_expired
    if is_first or MISSING_MARKER in accept:
        return Verdict.RUN
    if batch.batch_id == 0:
        raise FailClosedError(
            MISSING_MARKER,
            "batch 0 was planned more than a day ago, and no marker tells whether it was committed "
            "before the group's offsets expired. If the output holds nothing of it, run once with "
            f"accept=[{MISSING_MARKER!r}]; if it holds the batch, begin with a new checkpoint and "
            "a source that starts at the offsets in offsets/0 of this one",
        )
    raise FailClosedError(
        MISSING_MARKER,
        f"batch {batch.batch_id} comes after others, but no marker of them is there: wrong cluster "
        "or application_id, or the group's offsets expired and no marker_topic was used. If the "
        "batches before it are committed and this one is not, run once with "
        f"accept=[{MISSING_MARKER!r}]",
    )


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
