"""What one partition's log must hold and know, kept as simply as possible: a list of batches.

The model knows no files, segments or indexes. It is told what was asked of the log and what came of
it; what a crash left in doubt it settles by what the log shows afterwards, within the bounds that
INV-9 sets.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from oncelog.core.limits import INT64_MAX
from oncelog.protocol.batch import CRC_START, LENGTH_PREFIX_SIZE, BatchHeader, iter_headers
from oncelog.protocol.record import iter_records, read_end_marker

CACHED_BATCHES_COUNT = 5
Records = dict[int, tuple[bytes | None, bytes | None, int]]
"""(key, value, timestamp) by offset."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch as it stands in the log. `commit` is None unless it is an end marker."""

    data: bytes
    header: BatchHeader
    records: Records
    times: dict[int, int]
    """Timestamps by offset, those of control records as well."""
    commit: bool | None
    written_ms: int = 0

    @property
    def base(self) -> int:
        return self.header.base_offset

    @property
    def end(self) -> int:
        return self.header.next_offset

    @property
    def in_transaction(self) -> bool:
        return self.header.is_transactional and self.commit is None

    def is_unlike(self, other: "Batch") -> bool:
        """Whether another batch of the same offsets has other bytes that its CRC covers."""
        return self.base != other.base or self.data[CRC_START:] != other.data[CRC_START:]


def batches_of(data: bytes, written_ms: int = 0) -> list[Batch]:
    """Cut the bytes of a log into its batches."""
    found = []
    for position, header in iter_headers(data):
        records = list(iter_records(data, position, header))
        marker = read_end_marker(records[0]) if header.is_control and records else None
        commit = None if marker is None else marker.commit
        kept: Records = (
            {}
            if header.is_control
            else {record.offset: (record.key, record.value, record.timestamp) for record in records}
        )
        times = {record.offset: record.timestamp for record in records}
        part = data[position : position + header.length]
        found.append(Batch(part, header, kept, times, commit, written_ms))
    return found


@dataclass(slots=True)
class Producer:
    """What a log has to remember of one producer."""

    epoch: int = -1
    coordinator_epoch: int = -1
    batches: list[Batch] = field(default_factory=list)
    """The last ones of its epoch, oldest first."""
    open: list[Batch] = field(default_factory=list)
    """Those of its open transaction."""
    last_offset: int = -1

    @property
    def next_sequence(self) -> int:
        return self.batches[-1].header.last_sequence + 1 if self.batches else 0


@dataclass(frozen=True, slots=True)
class Aborted:
    """A transaction that was aborted, with the offset of its marker."""

    producer_id: int
    batches: tuple[Batch, ...]
    marker: int


class LogModel:
    """See the module's text."""

    def __init__(self, *, compacted: bool = False) -> None:
        self.compacted = compacted
        self.batches: list[Batch] = []
        """All that is in the log, and before it what retention took."""
        self.history: list[Batch] = []
        """As `batches`, but nothing was compacted away."""
        self.in_doubt: list[Batch] = []
        """What an append that failed may have added."""
        self.ghosts: list[Batch] = []
        """What was being cut off."""
        self.start = 0
        self.start_highest = 0
        """Where it ever was: leader epochs below are forgotten, though records may come back."""
        self.start_max = 0
        """Where an operation that did not return may have moved it to."""
        self.start_noted = 0
        """As the checkpoint has it; 0 if it has none."""
        self.files_start = 0
        """Where the oldest file begins that is not removed."""
        self.durable_end = 0
        """All below it survives a loss of power, by the word of the log."""
        self.forgettable_end = 0
        """Of producers' batches below, the last one is remembered, as in Kafka. All are as long as
        nothing happens to the file that is ours."""
        self.cleaned_end = 0
        self.hit: Batch | None = None
        """The batch in which a bit was flipped."""
        self.hit_may_cut = False
        """Whether the flipped bit makes it look as if the file ended within the batch."""
        self._producers: dict[int, Producer] = {}
        self.aborted: list[Aborted] = []

    @property
    def end(self) -> int:
        return max(self.history[-1].end if self.history else 0, self.start)

    def producer(self, producer_id: int) -> Producer:
        return self._producers.get(producer_id, Producer())

    def producers(self) -> Iterable[tuple[int, Producer]]:
        return self._producers.items()

    def open_transactions(self) -> Iterable[tuple[int, Producer]]:
        return [item for item in self._producers.items() if item[1].open]

    def readable(self, offset: int) -> list[Batch]:
        """The batches from the one that holds `offset` on."""
        return [batch for batch in self.batches if batch.end > offset]

    # ---- what happens to the log ----

    def appended(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            self.batches.append(batch)
            self.history.append(batch)
            self._note(batch)

    def truncated(self, offset: int) -> None:
        """To be cut off; until that is done it may be back after a crash."""
        self.ghosts += [batch for batch in self.batches if batch.end > offset]
        self._replace(
            [batch for batch in self.batches if batch.end <= offset],
            [batch for batch in self.history if batch.end <= offset],
        )
        end = self.history[-1].end if self.history else 0
        self.durable_end = min(self.durable_end, end)
        self.start = min(self.start, end)
        # The checkpoint of log starts is not put right.
        self.start_max = max(self.start, self.start_noted)

    def start_moved(self, start: int, files_start: int) -> None:
        self.start = self.start_max = start
        self.start_noted = min(self.start_noted, start)
        self.start_highest = max(self.start_highest, start)
        self.files_start = files_start

    def flushed(self, recovery_point: int) -> None:
        """The log says that all below survives a loss of power."""
        if recovery_point > self.durable_end:
            self.synced(recovery_point)

    def synced(self, recovery_point: int) -> None:
        """A flush has just returned, or a stop in order."""
        self.durable_end = recovery_point
        self.ghosts.clear()

    def restarted(self, found: list[Batch], start: int, end: int, files_start: int) -> None:
        """Take what a start found for the truth, after `judge` has let it pass."""
        first = found[0].base if found else end
        history = [batch for batch in self.history if batch.base < first and batch.end <= end]
        if self.compacted:
            history += [batch for batch in self.history if first <= batch.base < end]
            new = {batch.base for batch in found} - {batch.base for batch in history}
            history += [batch for batch in self.in_doubt if batch.base in new]
        else:
            history += found
        before = [batch for batch in self.batches if batch.base < first and batch.end <= start]
        self._replace(before + found, history)
        self.in_doubt.clear()
        self.start = self.start_max = start
        self.start_noted = min(self.start_noted, start)
        self.files_start = files_start

    def damaged(self, file_base: int, position: int, is_last_file: bool) -> None:
        """A bit flipped in the file that begins with `file_base`."""
        for batch in self.batches:
            if batch.base >= file_base:
                if position < len(batch.data):
                    self.hit = batch
                    self.hit_may_cut = is_last_file and position < LENGTH_PREFIX_SIZE
                    return
                position -= len(batch.data)
        raise AssertionError("the file is longer than what was written to it")

    def restarted_damaged(self, found: list[Batch], start: int, end: int, files_start: int) -> None:
        """As `restarted`, where not every batch can be read."""
        new = [batch for batch in found if batch.base >= self.end]
        if self.hit is not None and end <= self.hit.base:
            self.hit = None
        self._replace(
            [batch for batch in self.batches if batch.end <= end] + new,
            [batch for batch in self.history if batch.end <= end] + new,
        )
        self.in_doubt.clear()
        self.ghosts.clear()
        self.start = self.start_max = start
        self.start_noted = min(self.start_noted, start)
        self.files_start = files_start

    def _replace(self, batches: list[Batch], history: list[Batch]) -> None:
        self.batches, self.history = batches, history
        self._producers.clear()
        self.aborted.clear()
        for batch in history:
            self._note(batch)

    # ---- producers and transactions (INV-2, INV-3) ----

    def _note(self, batch: Batch) -> None:
        header = batch.header
        if header.producer_id < 0:
            return
        producer = self._producers.setdefault(header.producer_id, Producer())
        producer.last_offset = header.last_offset
        if header.producer_epoch > producer.epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        if batch.commit is None:
            producer.batches = [*producer.batches, batch][-CACHED_BATCHES_COUNT:]
            if header.is_transactional:
                producer.open.append(batch)
            return
        if producer.open and not batch.commit:
            entry = Aborted(header.producer_id, tuple(producer.open), batch.base)
            self.aborted.append(entry)
        producer.open = []

    def visible(self, end: int = INT64_MAX) -> Records:
        """What a read_committed reader sees of a log that ends there, by offset."""
        if end < self.end:
            shorter = LogModel()
            shorter.appended(batch for batch in self.history if batch.end <= end)
            return shorter.visible()
        hidden = {b.base for entry in self.aborted for b in entry.batches}
        hidden |= {b.base for _, producer in self.open_transactions() for b in producer.open}
        seen: Records = {}
        for batch in self.history:
            if batch.base not in hidden:
                seen |= batch.records
        return seen
