"""What is done to the two logs, and what each of these has to come to (see `log_model`)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import isfunction

from hypothesis import strategies as st

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.batch import iter_headers, set_max_timestamp
from oncelog.protocol.record import Record, build_batch, control_batch
from oncelog.storage import Origin, PartitionLog
from oncelog.storage.cleaner import clean_log
from oncelog.storage.placement import assign_offsets
from tests.properties import log_checks
from tests.properties.data_folder import COMPACTED, KEPT, PARTITIONS, DataFolder
from tests.properties.log_model import Batch, LogModel, Producer, batches_of

PRODUCER_IDS = (1, 2, 3)
KEYS = (b"a", b"b", b"c")
MINUTE_MS = 60_000
_TV2 = 2


@dataclass(slots=True)
class Ledger:
    """What is known besides the logs: epochs of leaders, and of producers at their coordinator."""

    models: dict[TopicPartition, LogModel]
    leader_epoch: int = 0
    producer_epochs: dict[int, int] = field(default_factory=dict)
    in_transaction: set[int] = field(default_factory=set)

    def epoch(self, producer_id: int) -> int:
        return self.producer_epochs.get(producer_id, 0)


Operation = Callable[[DataFolder, Ledger], None]


@dataclass(frozen=True, slots=True)
class Append:
    """One batch, of a producer (0: of none), sound or with something wrong with it."""

    partition: TopicPartition
    producer_id: int
    transactional: bool
    count: int
    size: int
    age_ms: int | None
    """None: without timestamps."""
    lie_ms: int
    fault: str
    key: int

    def __call__(self, folder: DataFolder, ledger: Ledger) -> None:
        model, log = ledger.models[self.partition], folder.logs[self.partition]
        if model.hit is not None and self.producer_id:
            return
        known = model.producer(self.producer_id)
        first = log.segment_base_offsets[0]
        if known.batches and known.batches[-1].base < first <= known.last_offset:
            return  # A marker is left: whether the last sequence is known is not certain.
        if known.open and known.last_offset < first:
            return  # Retention took all of a transaction: a restart may not know that it is open.
        epoch = max(ledger.epoch(self.producer_id), known.epoch)
        transactional = self.transactional and self.producer_id > 0
        wanted, sequence = ErrorCode.none, known.next_sequence
        if epoch != known.epoch:
            sequence = 0
        is_known = known.last_offset >= first and self.producer_id > 0
        duplicate: Batch | None = None
        if is_known and self.fault == "gap":
            wanted, sequence = ErrorCode.out_of_order_sequence_number, sequence + 1
        elif is_known and self.fault == "stale" and known.epoch > 0:
            wanted, epoch = ErrorCode.invalid_producer_epoch, known.epoch - 1
        elif is_known and self.fault == "again" and epoch == known.epoch and known.batches:
            duplicate = known.batches[-1]
        elif known.open and not transactional:
            wanted = ErrorCode.invalid_txn_state
        data = (
            bytearray(duplicate.data)
            if duplicate is not None
            else self._batch(folder.now_ms, epoch, sequence, transactional)
        )
        if duplicate is not None:
            data[:8] = bytes(8)
        if len(data) > log.config.segment_bytes:
            wanted = ErrorCode.record_list_too_large
        if duplicate is not None:
            self._append_again(folder, ledger, data, duplicate, known)
        elif wanted is not ErrorCode.none:
            result = log.append(data, leader_epoch=ledger.leader_epoch, now_ms=folder.now_ms)
            assert result.error is wanted, result
        else:
            append(folder, ledger, self.partition, data, Origin.CLIENT)

    def _append_again(
        self,
        folder: DataFolder,
        ledger: Ledger,
        data: bytearray,
        known: Batch,
        producer: Producer,
    ) -> None:
        log = folder.logs[self.partition]
        result = log.append(data, leader_epoch=ledger.leader_epoch, now_ms=folder.now_ms)
        if known.header.is_transactional and known not in producer.open:
            assert result.error is ErrorCode.unknown_producer_id, result
            return
        assert result.duplicate, result
        assert (result.base_offset, result.last_offset) == (known.base, known.end - 1)

    def _batch(self, now_ms: int, epoch: int, sequence: int, transactional: bool) -> bytearray:
        begun_ms = -1 if self.age_ms is None else now_ms - self.age_ms
        step = 0 if self.age_ms is None else 1
        records = [
            Record(
                index,
                begun_ms + index * step,
                KEYS[(self.key + index) % len(KEYS)],
                None if self.size == 0 else b"%d" % index + b"." * self.size,
            )
            for index in range(self.count)
        ]
        has_producer = self.producer_id > 0
        data = build_batch(
            records,
            producer_id=self.producer_id if has_producer else -1,
            producer_epoch=epoch if has_producer else -1,
            base_sequence=sequence if has_producer else -1,
            transactional=transactional,
        )
        # On a compacted topic records are looked at, and the header is put right.
        if self.lie_ms and self.age_ms is not None and self.partition is KEPT:
            set_max_timestamp(data, begun_ms + self.lie_ms)
        return data


def append(
    folder: DataFolder,
    ledger: Ledger,
    partition: TopicPartition,
    data: bytearray,
    origin: Origin,
) -> None:
    """Append what has to be taken."""
    model, log = ledger.models[partition], folder.logs[partition]
    copy = bytearray(data)
    assign_offsets(copy, list(iter_headers(copy)), model.end, ledger.leader_epoch)
    batches = batches_of(bytes(copy), folder.now_ms)
    model.in_doubt = batches
    result = log.append(data, leader_epoch=ledger.leader_epoch, now_ms=folder.now_ms, origin=origin)
    assert result.error is ErrorCode.none, result
    assert (result.base_offset, result.last_offset) == (batches[0].base, batches[-1].end - 1)
    acknowledged(model, log)


def acknowledged(model: LogModel, log: PartitionLog) -> None:
    """What was in doubt is in the log, flushed as often as its topic asks for."""
    model.appended(model.in_doubt)
    model.in_doubt = []
    assert log.log_end_offset - log.recovery_point < log.config.flush_messages
    model.flushed(log.recovery_point)


@dataclass(frozen=True, slots=True)
class AppendSeveral:
    """Some batches in one write, as coordinators do it."""

    partition: TopicPartition
    count: int
    size: int

    def __call__(self, folder: DataFolder, ledger: Ledger) -> None:
        data = bytearray()
        for index in range(self.count):
            value = b"%d" % index + b"." * self.size
            data += build_batch([Record(0, folder.now_ms, KEYS[index % len(KEYS)], value)])
        if len(data) <= folder.logs[self.partition].config.segment_bytes:
            append(folder, ledger, self.partition, data, Origin.COORDINATOR)


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """The markers of one producer in both logs; under TV2 it has the next epoch from then on."""

    producer_id: int
    commit: bool
    bumps: bool

    def __call__(self, folder: DataFolder, ledger: Ledger) -> None:
        epoch = ledger.epoch(self.producer_id)
        known = [ledger.models[p].producer(self.producer_id) for p in PARTITIONS]
        epoch = max([epoch, *(producer.epoch for producer in known)]) + self.bumps
        ledger.producer_epochs[self.producer_id] = epoch
        for partition, producer in zip(PARTITIONS, known, strict=True):
            if ledger.models[partition].hit is None and (producer.open or producer.epoch >= 0):
                self._mark(folder, ledger, partition, epoch)

    def _mark(
        self, folder: DataFolder, ledger: Ledger, partition: TopicPartition, epoch: int
    ) -> None:
        model, log = ledger.models[partition], folder.logs[partition]
        end = (self.producer_id, epoch, 0)
        data = control_batch(
            self.commit,
            *end,
            folder.now_ms,
            base_offset=model.end,
            leader_epoch=ledger.leader_epoch,
        )
        model.in_doubt = batches_of(bytes(data), folder.now_ms)
        result = log.append_marker(
            *end,
            self.commit,
            leader_epoch=ledger.leader_epoch,
            now_ms=folder.now_ms,
            transaction_version=_TV2 if self.bumps else 1,
        )
        assert result.error is ErrorCode.none, result
        acknowledged(model, log)


@dataclass(frozen=True, slots=True)
class Flush:
    """Of one log, or of the folder with its checkpoints."""

    partition: TopicPartition | None

    def __call__(self, folder: DataFolder, ledger: Ledger) -> None:
        if self.partition is None:
            folder.manager.flush()
            note_starts(ledger)
        else:
            log = folder.logs[self.partition]
            log.flush()
            ledger.models[self.partition].synced(log.recovery_point)
        for partition in PARTITIONS if self.partition is None else (self.partition,):
            log = folder.logs[partition]
            assert log.recovery_point == log.log_end_offset
            ledger.models[partition].flushed(log.recovery_point)


def checkpoint(folder: DataFolder, ledger: Ledger) -> None:
    """Write the checkpoints as they are."""
    folder.manager.checkpoint()
    note_starts(ledger)


def note_starts(ledger: Ledger) -> None:
    """The checkpoint of log starts was written."""
    for model in ledger.models.values():
        model.start_noted = model.start


@dataclass(frozen=True, slots=True)
class Retain:
    """Retention by time, size and log start."""

    partition: TopicPartition

    def __call__(self, folder: DataFolder, ledger: Ledger) -> None:
        model, log = ledger.models[self.partition], folder.logs[self.partition]
        bases = [*log.segment_base_offsets, model.end]
        least, most = (0, len(bases) - 1) if model.hit else expired(model, log, folder.now_ms)
        model.start_max = max(model.start, bases[most])
        model.start_highest = max(model.start_highest, model.start_max)
        count = log.delete_old_segments(folder.now_ms, log.log_end_offset)
        assert least <= count <= most, f"{count} segments went, not {least} to {most}"
        first = log.segment_base_offsets[0]
        assert first == bases[count]
        model.start_moved(max(model.start, first), first)


def expired(model: LogModel, log: PartitionLog, now_ms: int) -> tuple[int, int]:
    """How many of the oldest segments must go at least and may go at most."""
    bases, config = log.segment_base_offsets, log.config
    ends = [*bases[1:], model.end]
    contents = [
        [batch for batch in model.batches if base <= batch.base < end]
        for base, end in zip(bases, ends, strict=True)
    ]
    sizes = [sum(len(batch.data) for batch in batches) for batches in contents]
    if not model.compacted:
        assert log.size_bytes == sum(sizes)
    by_policy = "delete" in config.cleanup_policy
    excess = sum(sizes) - config.retention_bytes
    deadline_ms = now_ms - config.retention_ms
    least, most, is_certain = 0, 0, True
    for slot, (batches, size) in enumerate(zip(contents, sizes, strict=True)):
        is_active = slot == len(bases) - 1
        if is_active and not size:
            break
        newest_ms = max((batch.header.max_timestamp for batch in batches), default=-1)
        written_ms = max((batch.written_ms for batch in batches), default=0)
        passed = not is_active and ends[slot] <= model.start
        oversized = by_policy and config.retention_bytes >= 0 and excess >= size
        aged = by_policy and 0 <= newest_ms < deadline_ms
        # Without timestamps the time of the file counts, which a start may have renewed.
        may_be_aged = by_policy and newest_ms < 0 and written_ms < deadline_ms
        must = passed or oversized or aged
        if not (must or may_be_aged):
            break
        is_certain = is_certain and must
        excess -= size
        most += 1
        least += is_certain
    return least, most


@dataclass(frozen=True, slots=True)
class DeleteRecords:
    """Move the start of the log."""

    partition: TopicPartition
    part: float

    def __call__(self, folder: DataFolder, ledger: Ledger) -> None:
        model, log = ledger.models[self.partition], folder.logs[self.partition]
        offset = model.start + int(self.part * (model.end - model.start))
        model.start_max = offset
        model.start_highest = max(model.start_highest, offset)
        assert log.delete_records(offset) == offset
        model.start_moved(offset, model.files_start)


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut off the end, as a follower does."""

    part: float

    def __call__(self, folder: DataFolder, ledger: Ledger) -> None:
        model, log = ledger.models[KEPT], folder.logs[KEPT]
        offset = model.start + int(self.part * (model.end - model.start))
        if model.hit is not None or offset >= model.end:
            return
        kept = [batch for batch in model.batches if batch.end <= offset]
        end = kept[-1].end if kept else 0
        # Otherwise a start would take the bytes that were cut off for damage; and what takes their
        # place for deleted, where the log started behind it.
        log.recovery_point = min(log.recovery_point, end)
        model.durable_end = min(model.durable_end, end)
        checkpoint(folder, ledger)
        model.truncated(offset)
        log.truncate_to(offset, folder.now_ms)
        assert log.log_end_offset == end
        model.ghosts.clear()
        checkpoint(folder, ledger)


@dataclass(frozen=True, slots=True)
class MakeAgain:
    """Delete the topic, and make another one of the same name."""

    partition: TopicPartition

    def __call__(self, folder: DataFolder, ledger: Ledger) -> None:
        # The metadata has recorded it before, whatever becomes of the folder.
        ledger.models[self.partition] = LogModel(compacted=self.partition is COMPACTED)
        folder.make_again(self.partition)


@dataclass(frozen=True, slots=True)
class Wait:
    """Let time pass."""

    ms: int

    def __call__(self, folder: DataFolder, ledger: Ledger) -> None:
        folder.later(self.ms)


def clean(folder: DataFolder, ledger: Ledger) -> None:
    """Compact the compacted log."""
    model, log = ledger.models[COMPACTED], folder.logs[COMPACTED]
    if model.hit is not None:
        return
    stable = log.last_stable_offset(log.log_end_offset)
    model.cleaned_end = max(model.cleaned_end, min(stable, log.segment_base_offsets[-1]))
    clean_log(folder.machine.disk, log, folder.now_ms, clean_offset=0)
    model.flushed(log.recovery_point)
    found = log_checks.read_from(log, model.start)
    log_checks.judge_compacted(model, found, model.start, model.end)
    model.batches = [batch for batch in model.batches if batch.end <= model.start] + found


@dataclass(frozen=True, slots=True)
class Stretch:
    """One after the other."""

    operations: list[Operation]

    def __call__(self, folder: DataFolder, ledger: Ledger) -> None:
        for operation in self.operations:
            operation(folder, ledger)


def name_of(operation: Operation) -> str:
    """For people."""
    return operation.__name__ if isfunction(operation) else type(operation).__name__


# ---- drawing them ----


def _any_of(*kinds: st.SearchStrategy[Operation]) -> st.SearchStrategy[Operation]:
    """Each as often as the others, whatever it is made of."""
    return st.sampled_from(kinds).flatmap(lambda kind: kind)


_partitions = st.sampled_from(PARTITIONS)
_parts = st.floats(0, 1)
_AGES_MS = (0, 0, 0, None, 5 * MINUTE_MS, 60 * MINUTE_MS)

appends = st.builds(
    Append,
    _partitions,
    st.integers(0, len(PRODUCER_IDS)),
    st.booleans(),
    st.integers(1, 3),
    st.sampled_from((0, 5, 80, 300)),
    st.sampled_from(_AGES_MS),
    st.sampled_from((0, 0, 0, 1, 30 * MINUTE_MS)),
    st.sampled_from(("", "", "", "", "gap", "stale", "again")),
    st.integers(0, len(KEYS) - 1),
)
ends = st.builds(EndTransaction, st.sampled_from(PRODUCER_IDS), st.booleans(), st.booleans())
flushes = st.one_of(st.builds(Flush, st.sampled_from((None, *PARTITIONS))), st.just(checkpoint))
waits = st.builds(Wait, st.sampled_from((1, 20_000, 10 * MINUTE_MS, 35 * MINUTE_MS)))
retentions = st.builds(Retain, st.sampled_from((KEPT, KEPT, COMPACTED)))
cleanings = st.just(clean)
deletions = st.builds(DeleteRecords, _partitions, _parts)
truncations = st.builds(Truncate, _parts)
remakings = st.builds(MakeAgain, _partitions)
several = st.builds(AppendSeveral, _partitions, st.integers(2, 4), st.sampled_from((0, 5, 80)))
writes = _any_of(appends, appends, appends, several, ends)
upkeep = _any_of(
    flushes,
    flushes,
    waits,
    retentions,
    retentions,
    cleanings,
    deletions,
    deletions,
    truncations,
    remakings,
)
stretches = st.builds(
    Stretch, st.lists(_any_of(writes, writes, writes, upkeep), min_size=4, max_size=16)
)

__all__ = [
    "MINUTE_MS",
    "Ledger",
    "MakeAgain",
    "Operation",
    "Stretch",
    "Truncate",
    "checkpoint",
    "clean",
    "name_of",
    "note_starts",
    "stretches",
]
