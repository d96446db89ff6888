"""Reads the final state of a run over the wire, into a `FinalState`.

It uses its own client, after all clients have settled: it reads every batch of every partition with
the markers between them (raw Fetch, read_uncommitted), the records that `Consumer` returns under
read_committed, the records of `__transaction_state`, and the offsets of groups. The watermarks are
requested first and bound everything that is read, so later writes do not make the state
inconsistent. `FinalState.unread` names what cannot be read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from oncelog.client import Admin, ClientError, Consumer, OffsetOutOfRangeError
from oncelog.client.cluster import Cluster
from oncelog.client.group_offsets import fetch_offsets
from oncelog.core.errors import ErrorCode, OncelogError, ProtocolError
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.batch import BatchHeader, check_crc, iter_headers, read_header
from oncelog.protocol.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchTopic,
    encode_fetch_request,
    parse_fetch_response,
)
from oncelog.protocol.record import Record, iter_records, read_end_marker
from oncelog.protocol.records.transaction_log import decode_key, decode_value
from oncelog.simulation.archive import Archive
from oncelog.simulation.compacted import keyed_records, removable
from oncelog.simulation.context import ClientContext
from oncelog.simulation.final import (
    FinalPartition,
    FinalState,
    LoggedBatch,
    LoggedRecord,
    TransactionEntry,
)
from oncelog.simulation.history import Value
from oncelog.simulation.marks import PartitionMarks, marks_of, settled_marks
from oncelog.transaction.states import TransactionState

__all__ = ["read_final_state"]

BOUND_S: Final = 40.0
"""Seconds after which no request is sent any more; the rest is unread."""
REQUEST_TIMEOUT_MS: Final = 5_000
RETRY_TIMEOUT_MS: Final = 10_000
FETCH_BYTES: Final = 16 * 1024 * 1024
FAILURES_COUNT_MAX: Final = 5
"""Consecutive responses without records for one partition after which it counts as unread."""
NOTHING_READ: Final = "no batch"
RETRY_PAUSE_MS: Final = 200
FETCH_BY_NAME_MAX: Final = 12

T = TypeVar("T")


class _Chunk(NamedTuple):
    """One batch as it was read: its bytes stay in the answer's buffer."""

    buffer: memoryview
    position: int
    header: BatchHeader


async def read_final_state(
    context: ClientContext,
    topics: Iterable[str],
    groups: Iterable[str] = (),
    *archives: Archive,
) -> FinalState:
    """Read these topics and the offsets of these groups; `archives` hold replaced batches.

    A topic that does not exist is in neither `partitions` nor `unread`. A topic whose partitions
    are unknown is unread under its partition -1, a group under the partition -1 of "group <name>".
    No answer of a broker raises an exception.
    """
    reading = _Reading(context, archives)
    try:
        return await reading.state(sorted(set(topics)), sorted(set(groups)))
    finally:
        await reading.close()


class _Reading:
    def __init__(self, context: ClientContext, archives: Sequence[Archive]) -> None:
        self._archives = archives
        host, port = context.bootstrap
        options: dict[str, Any] = {
            "client_id": context.name,
            "network": context.network,
            "clock": context.clock,
            "rng": context.rng,
            **context.client_options,
            "first_contact_ms": None,
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
        }
        bootstrap = f"{host}:{port}"
        self._clock = context.clock
        self._deadline_ms = context.clock.monotonic_ms() + BOUND_S * 1000
        self._cluster = Cluster(bootstrap, **options)
        self._admin = Admin(bootstrap, timeout_ms=RETRY_TIMEOUT_MS, **options)
        self._consumer = Consumer(
            bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="none",
            retry_timeout_ms=RETRY_TIMEOUT_MS,
            **options,
        )
        self._unread: dict[TopicPartition, str] = {}
        self._values: dict[bytes, Value | None] = {}

    async def close(self) -> None:
        for client in (self._consumer, self._admin, self._cluster):
            await client.close()

    async def state(self, topics: Sequence[str], groups: Sequence[str]) -> FinalState:
        there = await self._partitions({*topics, TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC})
        marks = await settled_marks(self._admin, self._try, there)
        left = await self._logs(marks)
        logs = {tp: self._as_written(tp, marks[tp], chunks) for tp, chunks in left.items()}
        compacted = {
            tp: keyed_records(self._rows_of(tp, logs[tp]), self._rows_of(tp, left[tp]))
            for tp in logs
            if logs[tp] is not left[tp]
        }
        partitions: dict[TopicPartition, FinalPartition] = {}
        for tp in marks:
            if tp.topic in topics:
                found = await self._partition(tp, marks[tp], logs.get(tp, []))
                records = compacted.get(tp, ())
                removed = frozenset(record.offset for record in records if record.is_removed)
                may_go = removable(records) if len(self._archives) > 1 else frozenset()
                partitions[tp] = replace(found, compacted=removed, removable=may_go)
        entries = [
            entry
            for tp in marks
            if tp.topic == TRANSACTION_STATE_TOPIC
            for entry in self._entries(tp, logs.get(tp, []))
        ]
        offsets = await self._offsets(groups)
        return FinalState(partitions, tuple(entries), offsets, self._unread, compacted)

    async def _try(self, where: TopicPartition, call: Callable[[], Awaitable[T]]) -> T | None:
        """Await `call`; if it fails or no time is left, mark `where` as unread and return None."""
        if self._clock.monotonic_ms() >= self._deadline_ms:
            self._unread.setdefault(where, f"not read within {BOUND_S:g} s")
            return None
        try:
            return await call()
        except OncelogError as error:
            self._unread.setdefault(where, f"{type(error).__name__}: {error}")
            return None

    # --- what there is ----------------------------------------------------------------

    async def _partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        names = sorted(topics)

        async def refresh() -> dict[str, ClientError]:
            return await self._cluster.refresh(names)

        nowhere = TopicPartition("", -1)
        errors = await self._try(nowhere, lambda: self._cluster.retrying(refresh, RETRY_TIMEOUT_MS))
        found: list[TopicPartition] = []
        for name in names:
            topic = self._cluster.metadata.topics.get(name)
            if topic is not None:
                found += [TopicPartition(name, p.index) for p in topic.partitions]
            elif errors is None:
                self._unread[TopicPartition(name, -1)] = self._unread[nowhere]
            elif name in errors:
                self._unread[TopicPartition(name, -1)] = str(errors[name])
        self._unread.pop(nowhere, None)
        return found

    # --- whole logs -------------------------------------------------------------------

    async def _logs(
        self, marks: dict[TopicPartition, PartitionMarks]
    ) -> dict[TopicPartition, list[_Chunk]]:
        """Read every batch below the high watermark, control batches too."""
        logs: dict[TopicPartition, list[_Chunk]] = {tp: [] for tp in marks}
        positions = {tp: mark.log_start_offset for tp, mark in marks.items()}
        failures: dict[TopicPartition, int] = {}
        while True:
            pending = {
                tp: position
                for tp, position in positions.items()
                if position < marks[tp].high_watermark and tp not in self._unread
            }
            if not pending:
                return logs
            if self._clock.monotonic_ms() >= self._deadline_ms:
                self._unread |= dict.fromkeys(pending, f"not read within {BOUND_S:g} s")
                return logs
            reasons = dict.fromkeys(pending, "no answer")
            for tp, answer in await self._fetch(pending, reasons):
                positions[tp] = self._accept(
                    tp, answer, marks[tp], positions[tp], logs[tp], reasons
                )
            stuck = [tp for tp, position in pending.items() if positions[tp] == position]
            if len(stuck) < len(pending):
                # Others may have taken all the bytes that one answer may have.
                stuck = [tp for tp in stuck if reasons[tp] != NOTHING_READ]
            for tp in stuck:
                failures[tp] = failures.get(tp, 0) + 1
                # Retention may have removed what was about to be read.
                for now in (await marks_of(self._admin, self._try, [tp])).values():
                    if now.log_start_offset > positions[tp]:
                        marks[tp], positions[tp] = now, now.log_start_offset
                        logs[tp].clear()
                if failures[tp] >= FAILURES_COUNT_MAX:
                    self._unread[tp] = f"{reasons[tp]} at offset {positions[tp]}"
            if stuck:
                await self._clock.sleep(RETRY_PAUSE_MS)

    async def _fetch(
        self, wanted: dict[TopicPartition, int], reasons: dict[TopicPartition, str]
    ) -> list[tuple[TopicPartition, FetchPartitionResponse]]:
        """Fetch once from each leader; failures are added to `reasons`."""
        by_node: dict[int, list[TopicPartition]] = {}
        for tp in wanted:
            try:
                by_node.setdefault(await self._cluster.leader(tp), []).append(tp)
            except OncelogError as error:
                reasons[tp] = str(error)
        answers: list[tuple[TopicPartition, FetchPartitionResponse]] = []
        for node_id, partitions in by_node.items():
            try:
                answers += await self._fetch_from(node_id, {tp: wanted[tp] for tp in partitions})
            except OncelogError as error:
                for tp in partitions:
                    reasons[tp] = str(error)
                    self._cluster.metadata.mark_stale(tp.topic)
        return answers

    async def _fetch_from(
        self, node_id: int, wanted: dict[TopicPartition, int]
    ) -> list[tuple[TopicPartition, FetchPartitionResponse]]:
        by_name: dict[str, list[FetchPartition]] = {}
        for tp, offset in sorted(wanted.items()):
            asked = FetchPartition(tp.partition, offset, FETCH_BYTES)
            by_name.setdefault(tp.topic, []).append(asked)
        ids = {name: self._cluster.metadata.topic_id(name) for name in by_name}
        connection = await self._cluster.connection(node_id)
        at_most = FETCH_BY_NAME_MAX if None in ids.values() else None
        version = connection.version_for(ApiKey.FETCH, at_most)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=4 * FETCH_BYTES,
            isolation_level=0,
            topics=[FetchTopic(name, ids[name], asked) for name, asked in by_name.items()],
        )
        frame = encode_fetch_request(
            version, connection.next_correlation_id(), connection.client_id, request
        )
        body = await connection.submit(ApiKey.FETCH, version, (frame,), REQUEST_TIMEOUT_MS)
        response = parse_fetch_response(body, version, 0)
        if response.error is not ErrorCode.none:
            raise ProtocolError(response.error, "fetch")
        names = {topic_id: name for name, topic_id in ids.items()}
        return [
            (TopicPartition(topic.name or names.get(topic.topic_id, ""), p.partition), p)
            for topic in response.topics
            for p in topic.partitions
        ]

    def _accept(
        self,
        tp: TopicPartition,
        answer: FetchPartitionResponse,
        marks: PartitionMarks,
        position: int,
        log: list[_Chunk],
        reasons: dict[TopicPartition, str],
    ) -> int:
        """Keep the batches of one response; return the next offset to fetch."""
        code = ErrorCode(answer.error)
        if code is not ErrorCode.none:
            reasons[tp] = code.name.upper()
            self._cluster.metadata.mark_stale(tp.topic)
            if not code.retriable and code is not ErrorCode.offset_out_of_range:
                self._unread[tp] = f"{reasons[tp]} at offset {position}"
            return position
        reasons[tp] = NOTHING_READ
        buffer = memoryview(
            answer.records if isinstance(answer.records, bytes | memoryview) else b""
        )
        try:
            for start, header in iter_headers(buffer, allow_partial=True):
                if header.base_offset >= marks.high_watermark:
                    return max(position, marks.high_watermark)
                if not check_crc(buffer, start, header):
                    self._unread[tp] = f"damaged batch at offset {header.base_offset}"
                    return position
                log.append(_Chunk(buffer, start, header))
                position = max(position, header.next_offset)
        except ProtocolError as error:
            self._unread[tp] = f"{error} at offset {position}"
        return position

    # --- what was compacted -----------------------------------------------------------

    def _as_written(
        self, tp: TopicPartition, marks: PartitionMarks, log: list[_Chunk]
    ) -> list[_Chunk]:
        """Return the log with the batches that compaction replaced.

        Without those that were cut off after that: a later epoch stands before or in their place.
        """
        archived: dict[int, bytes] = {}
        for archive in self._archives:
            for base_offset, data in archive.of(tp).items():
                known = archived.get(base_offset, data)
                # A follower gets, and may clean again, what its leader has cleaned.
                archived[base_offset] = max(known, data, key=_age)
        if not archived:
            return log
        written = {chunk.header.base_offset: chunk for chunk in log}
        epochs = {base_offset: chunk.header.leader_epoch for base_offset, chunk in written.items()}
        newest = -1
        for base_offset in sorted(archived.keys() | epochs.keys()):
            newest = max(newest, epochs.get(base_offset, -1))
            if base_offset not in archived:
                continue
            header = read_header(archived[base_offset])
            is_in_bounds = marks.log_start_offset <= header.last_offset < marks.high_watermark
            left = written.get(base_offset)
            if left is not None and left.header.record_count >= header.record_count:
                continue
            if is_in_bounds and header.leader_epoch >= newest:
                written[base_offset] = _Chunk(memoryview(archived[base_offset]), 0, header)
        return [written[base_offset] for base_offset in sorted(written)]

    def _rows_of(self, tp: TopicPartition, log: list[_Chunk]) -> list[tuple[BatchHeader, Record]]:
        return [(chunk.header, row) for chunk in log for row in self._rows(tp, chunk)]

    # --- as values --------------------------------------------------------------------

    async def _partition(
        self, tp: TopicPartition, marks: PartitionMarks, log: list[_Chunk]
    ) -> FinalPartition:
        batches = [self._batch(tp, chunk, marks.log_start_offset) for chunk in log]
        known = {chunk.header: batch.records for chunk, batch in zip(log, batches, strict=True)}
        committed: list[LoggedRecord] = []
        start = await self._try(tp, partial(self._committed, tp, marks, known, committed))
        if start is not None and start > marks.log_start_offset:
            marks = marks._replace(log_start_offset=start)
            left = [chunk for chunk in log if chunk.header.last_offset >= start]
            batches = [self._batch(tp, chunk, start) for chunk in left]
        topic_id = self._cluster.metadata.topic_id(tp.topic)
        return FinalPartition(tp, str(topic_id or ""), *marks, tuple(batches), tuple(committed))

    def _batch(self, tp: TopicPartition, chunk: _Chunk, start: int) -> LoggedBatch:
        header = chunk.header
        marker = ""
        records: tuple[LoggedRecord, ...] = ()
        rows = self._rows(tp, chunk)
        if header.is_control:
            ends = [end for row in rows if (end := read_end_marker(row)) is not None]
            marker = ("commit" if ends[0].commit else "abort") if ends else ""
        else:
            records = tuple(
                LoggedRecord(row.offset, self._value(row.value))
                for row in rows
                if row.offset >= start
            )
        return LoggedBatch(
            header.base_offset,
            header.last_offset,
            header.leader_epoch,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_sequence,
            header.is_transactional,
            marker,
            records,
        )

    def _rows(self, tp: TopicPartition, chunk: _Chunk) -> list[Record]:
        try:
            return list(iter_records(chunk.buffer, chunk.position, chunk.header))
        except ProtocolError as error:
            self._unread.setdefault(tp, f"{error} at offset {chunk.header.base_offset}")
            return []

    def _value(self, data: bytes | None) -> Value | None:
        if data is None:
            return None
        if data not in self._values:
            try:
                self._values[data] = Value.decode(data)
            except ValueError:
                self._values[data] = None
        return self._values[data]

    async def _committed(
        self,
        tp: TopicPartition,
        marks: PartitionMarks,
        known: Mapping[BatchHeader, tuple[LoggedRecord, ...]],
        into: list[LoggedRecord],
    ) -> int:
        """Read what our Consumer returns under read_committed up to the last stable offset.

        A batch with the same header, CRC included, as an earlier one is not decoded again. Return
        where the log begins. Raises `OncelogError`.
        """
        log_start = position = marks.log_start_offset
        while position < marks.last_stable_offset:
            try:
                got = await self._consumer.fetch_batches(tp, position, FETCH_BYTES, max_wait_ms=0)
            except OffsetOutOfRangeError:
                # Retention may have removed what was about to be read.
                now = (await marks_of(self._admin, self._try, [tp])).get(tp, marks)
                if now.log_start_offset <= log_start:
                    raise
                log_start = position = now.log_start_offset
                into.clear()
                continue
            for start, header in iter_headers(got.batches):
                records = known.get(header)
                if records is None:
                    records = tuple(
                        LoggedRecord(row.offset, self._value(row.value))
                        for row in iter_records(got.batches, start, header)
                    )
                if header.base_offset >= position and header.last_offset < marks.last_stable_offset:
                    into += records
                else:
                    end = marks.last_stable_offset
                    into += [record for record in records if position <= record.offset < end]
            if got.next_offset == position:
                raise ProtocolError(ErrorCode.unknown_server_error, f"no batch at {position}")
            position = got.next_offset
        return log_start

    def _entries(self, tp: TopicPartition, log: list[_Chunk]) -> list[TransactionEntry]:
        """Return the records of one partition of `__transaction_state`."""
        entries: list[TransactionEntry] = []
        for chunk in log:
            for row in self._rows(tp, chunk):
                try:
                    entry = _entry(row)
                except (ProtocolError, ValueError) as error:
                    self._unread.setdefault(tp, f"{error} at offset {row.offset}")
                else:
                    entries += [entry] if entry is not None else []
        return entries

    async def _offsets(self, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
        found: dict[str, dict[TopicPartition, int]] = {}
        for group in groups:

            async def ask(group: str = group) -> dict[TopicPartition, int]:
                offsets = await fetch_offsets(self._cluster, group, None, True, RETRY_TIMEOUT_MS)
                return {tp: at.offset for tp, at in offsets.items()}

            offsets = await self._try(TopicPartition(f"group {group}", -1), ask)
            if offsets is not None:
                found[group] = offsets
        return found


def _age(batch: bytes) -> tuple[int, int]:
    """Order the forms of one batch: the newest epoch, as it was before any of it was removed."""
    header = read_header(batch)
    return header.leader_epoch, header.record_count


def _entry(row: Record) -> TransactionEntry | None:
    """Return a record of `__transaction_state`; None for an unknown kind of key."""
    transactional_id = decode_key(row.key or b"")
    if transactional_id is None:
        return None
    if row.value is None:
        return TransactionEntry(transactional_id, -1, -1, "", ())
    value = decode_value(row.value)
    return TransactionEntry(
        transactional_id,
        value.producer_id,
        value.producer_epoch,
        TransactionState(value.status).label,
        tuple(
            TopicPartition(topic, index)
            for topic, indexes in value.partitions or ()
            for index in indexes
        ),
    )
