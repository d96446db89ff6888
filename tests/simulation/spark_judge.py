"""INV-10, judged at the end of a run: whole micro-batches are committed, each once, in order.

The final committed view of the output, the group's offsets and the marker in their metadata are
held against the checkpoints: what batch N reads is in ``offsets/N`` and nowhere else. The general
checkers of `oncelog.simulation.checkers` judge the same run; these know what a batch is.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from oncelog.client.values import OffsetAndMetadata
from oncelog.core.ids import TopicPartition
from oncelog.simulation.checkers import Anomaly
from oncelog.simulation.checkers.anomaly import found
from oncelog.simulation.final import FinalState
from oncelog.simulation.history import Value
from oncelog.spark.errors import FailClosedError
from oncelog.spark.marker import Marker, latest, sources_hash
from tests.simulation.spark_application import Application, Refusal
from tests.simulation.spark_checkpoint import Checkpoint

__all__ = ["judge_batches"]

KIND = "INV-10"
Row = tuple[TopicPartition, int]
Place = tuple[TopicPartition, int, Value]
"""Where a copy stands: its partition and offset, and what it is."""


def judge_batches(
    app: Application,
    final: FinalState,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    output: str,
    at_s: float,
    record: str | None = None,
) -> list[Anomaly]:
    """Everything that is wrong, as anomalies of the kind INV-10.

    `record` is what the marker topic holds.
    """
    if final.unread:
        # The general checkers say so; nothing can be judged by half of it.
        return []
    return [
        found(KIND, what, particulars, at_s=at_s)
        for what, particulars in _Judge(app, final, committed, output, record).findings()
    ]


class _Judge:
    def __init__(
        self,
        app: Application,
        final: FinalState,
        committed: Mapping[TopicPartition, OffsetAndMetadata],
        output: str,
        record: str | None,
    ) -> None:
        self._app = app
        self._committed = {tp: entry.offset for tp, entry in committed.items()}
        self._metadata = [entry.metadata for entry in committed.values()]
        self._record = record
        self._source: dict[TopicPartition, list[int]] = {
            tp: [record.offset for record in final.partitions[tp].committed]
            for tp in app.partitions
        }
        self._copies: dict[Row, list[Place]] = defaultdict(list)
        self._in_order: dict[TopicPartition, list[tuple[Row, Value]]] = {}
        for tp, partition in sorted(final.partitions.items()):
            if tp.topic == output:
                self._in_order[tp] = []
                for copy in partition.committed:
                    if copy.value is not None and copy.value.source:
                        row = _row(copy.value.source)
                        self._copies[row].append((tp, copy.offset, copy.value))
                        self._in_order[tp].append((row, copy.value))

    def findings(self) -> Iterator[tuple[str, str]]:
        try:
            marker = latest([*self._metadata, self._record])
            of_group = latest(self._metadata)
        except FailClosedError as error:
            yield "the marker cannot be read", str(error)
            return
        if self._app.marker_partition is not None:
            yield from self._carriers(marker, of_group)
        yield from self._records()
        yield from self._refusals(marker)
        if marker is None:
            if self._committed:
                yield "offsets are committed without a marker", repr(self._committed)
            if self._copies:
                yield "output is committed without a marker", f"{len(self._copies)} records"
            if self._app.finished:
                yield "a finished batch has no marker", f"{next(iter(self._app.finished))}"
            return
        checkpoint = self._app.checkpoints.get(marker.batch.query_id)
        if checkpoint is None or marker.batch.batch_id not in checkpoint.offsets:
            yield "the marker names an unknown batch", repr(marker)
            return
        yield from self._marker(marker, checkpoint)
        yield from self._batches(marker, checkpoint)

    def _carriers(
        self, marker: Marker | None, of_group: Marker | None
    ) -> Iterator[tuple[str, str]]:
        """The marker topic has the newest, and the group the same unless its offsets expired."""
        if marker is not None and Marker.decode(self._record) != marker:
            yield "the marker topic is behind the group", f"{self._record}, {marker}"
        if of_group is None and self._app.has_expiry and marker is not None:
            self._committed = self._app.checkpoints[marker.batch.query_id].ends(
                marker.batch.batch_id
            )
        elif of_group != marker:
            yield "the group is behind the marker topic", f"{of_group}, {marker}"

    def _records(self) -> Iterator[tuple[str, str]]:
        """Each record below the committed offset once, none above it."""
        for tp, offsets in self._source.items():
            end = self._committed.get(tp, self._app.checkpoint.initial[tp])
            for offset in offsets:
                copies = self._copies.get((tp, offset), [])
                if len(copies) > 1:
                    yield "a record is there twice", f"{tp}@{offset}: {_places(copies)}"
                if offset < end and not copies:
                    yield "a record is missing", f"{tp}@{offset}, committed is {end}"
                if offset >= end and copies:
                    yield (
                        "output is there without its offset",
                        f"{tp}@{offset}, committed is {end}: {_places(copies)}",
                    )
            strangers = {row for row in self._copies if row[0] == tp} - {(tp, o) for o in offsets}
            for row in sorted(strangers):
                yield "output of a record that is not committed", f"{row}"
            if offsets and end <= offsets[-1]:
                yield "the query stopped before the end", f"{tp}: {end}, there is {offsets[-1]}"

    def _marker(self, marker: Marker, checkpoint: Checkpoint) -> Iterator[tuple[str, str]]:
        last = marker.batch.batch_id
        if checkpoint.ends(last) != self._committed:
            yield (
                "marker and source offsets disagree",
                f"batch {last} ends at {checkpoint.ends(last)}, committed is {self._committed}",
            )
        if sources_hash(checkpoint.lines(last)) != marker.batch.sources_hash:
            yield "the marker's hash is not that of its batch", f"batch {last}"
        if marker.sequence != last + 1:
            yield "the marker does not count its batches", repr(marker)
        for (query_id, batch_id), who in self._app.finished.items():
            if query_id != checkpoint.query_id or batch_id > last:
                yield (
                    "a finished batch is not committed",
                    f"batch {batch_id} of {query_id} by {who}, the marker is {marker}",
                )
        if max(checkpoint.commits, default=-1) > last:
            yield "Spark's commit log is ahead of the marker", f"{max(checkpoint.commits)}, {last}"

    def _batches(self, marker: Marker, checkpoint: Checkpoint) -> Iterator[tuple[str, str]]:
        """Each batch's output is of one transaction, and the batches stand in order."""
        batch_of: dict[Row, int] = {}
        owners: dict[tuple[str, int], int] = {}
        for batch_id in range(marker.batch.batch_id + 1):
            writers = set()
            for tp, (start, end) in checkpoint.ranges(batch_id).items():
                for offset in range(start, end):
                    batch_of[tp, offset] = batch_id
                    for _, _, value in self._copies.get((tp, offset), ()):
                        writers.add((value.client, value.transaction))
            if len(writers) > 1:
                yield "a batch is of several transactions", f"batch {batch_id}: {sorted(writers)}"
            for writer in sorted(writers):
                if owners.setdefault(writer, batch_id) != batch_id:
                    yield "a transaction holds several batches", f"{writer}"
        for place, rows in self._in_order.items():
            last_batch = -1
            last_offset: dict[TopicPartition, int] = {}
            for (tp, offset), value in rows:
                batch_id = batch_of.get((tp, offset), last_batch)
                if batch_id < last_batch or offset <= last_offset.get(tp, -1):
                    yield "output is out of order", f"{place}: {value}"
                    break
                last_batch, last_offset[tp] = batch_id, offset

    def _refusals(self, marker: Marker | None) -> Iterator[tuple[str, str]]:
        """A driver fails closed over a lost checkpoint, or when another one went ahead."""
        for refusal in self._app.refusals:
            if not _is_due(refusal, marker):
                yield f"failed closed without need [{refusal.reason}]", repr(refusal)


def _is_due(refusal: Refusal, last: Marker | None) -> bool:
    seen = refusal.marker
    if seen is None or last is None or seen.sequence > last.sequence:
        return False
    if refusal.reason == "other-query":
        return seen.batch.query_id != refusal.query_id
    if refusal.reason == "older-batch":
        return seen.batch.query_id == refusal.query_id and seen.batch.batch_id > refusal.batch_id
    return False


def _row(source: str) -> Row:
    place, _, offset = source.rpartition("@")
    topic, _, partition = place.rpartition("-")
    return TopicPartition(topic, int(partition)), int(offset)


def _places(copies: list[Place]) -> str:
    return ", ".join(f"{tp}@{offset} by {value}" for tp, offset, value in copies)
