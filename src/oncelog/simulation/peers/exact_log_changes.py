"""Writes to logs that are known to the byte, and cuts them: Produce and DeleteRecords."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from oncelog.core.errors import ErrorCode
from oncelog.peer.connection import Connection
from oncelog.protocol.api import ApiKey
from oncelog.protocol.error_versions import replacements
from oncelog.protocol.messages import delete_records
from oncelog.protocol.produce import (
    ProducePartitionResponse,
    ProduceTopicResponse,
    encode_produce_request,
    encode_produce_response,
    parse_produce_response,
)
from oncelog.protocol.record import Record, build_batch
from oncelog.runtime.framed import DisconnectedError
from oncelog.simulation.peers.exact_asking import NotSentError
from oncelog.simulation.peers.exact_log_base import MESSAGE_BYTES_MAX, LogAsker, SentRequest

__all__ = ["LogChanges"]

_TIMEOUT_MS: Final = 30_000
_LEAST_VERSION: Final = 3
_IDS_SINCE: Final = 13
_CRC_AT: Final = 17
_WITHOUT_START: Final = frozenset({ErrorCode.message_too_large, ErrorCode.corrupt_message})
"""With these a log does not say where it begins."""
_MINUTE_MS: Final = 60_000


class _Wish(NamedTuple):
    """A batch for one partition, and what must become of it."""

    at: int
    data: bytes | None
    times: Sequence[int]
    error: ErrorCode
    bad_records: Sequence[int] = ()


class LogChanges(LogAsker):
    """Produces good and bad batches, and deletes records."""

    def produce(self, connection: Connection, index: int) -> SentRequest:
        """Send a batch to one or more partitions, good ones and bad ones."""
        rng, chance = self.context.rng, self.context.chance
        acks = rng.choices((-1, 1, 0, 2), (10, 5, 2, 0.4))[0]
        least = _LEAST_VERSION
        version = max(least, self.drawn_version(connection, ApiKey.PRODUCE, least))
        wishes = [self._good(index)]
        for other in range(len(self.logs)):
            if other != index and chance(0.3):
                wishes.append(self._good(other))
        if acks != 0 and chance(0.25):
            wishes[0] = self._bad(index)
        if acks != 0 and chance(0.1):
            data, times = self._batch(1)
            missing = len(self.logs) + 2
            wishes.append(_Wish(missing, data, times, ErrorCode.unknown_topic_or_partition))
        if acks == 2:
            refused = ErrorCode.invalid_required_acks
            wishes = [wish._replace(error=refused, bad_records=()) for wish in wishes]
        rng.shuffle(wishes)
        return self._send_batches(connection, version, acks, wishes)

    def produce_one(self, connection: Connection, index: int) -> SentRequest:
        """Send one good batch with acks=-1."""
        version = max(_LEAST_VERSION, self.drawn_version(connection, ApiKey.PRODUCE, 3))
        return self._send_batches(connection, version, -1, [self._good(index)])

    def _send_batches(
        self, connection: Connection, version: int, acks: int, wishes: Sequence[_Wish]
    ) -> SentRequest:
        topic_id = self.topic_id
        buffers = encode_produce_request(
            version,
            connection.next_correlation_id(),
            self.context.name,
            transactional_id=None,
            acks=acks,
            timeout_ms=_TIMEOUT_MS,
            topics=[
                (self.topic, topic_id, [(wish.at, wish.data) for wish in wishes])  # type: ignore[list-item]
            ],
        )
        if acks == 0:
            try:
                connection.submit_without_answer(buffers)
            except DisconnectedError as error:
                raise NotSentError(str(error)) from error
            self._wanted(wishes, acks)
            # Whether the broker has got it shows the answer to the next request.
            sent = self.list_ends(connection)
            return sent._replace(changes=True)
        wanted = self._wanted(wishes, acks)
        is_by_id = version >= _IDS_SINCE

        def judge(body: memoryview) -> None:
            self._judge(body, version, wanted, topic_id if is_by_id else None)
            if acks == -1:
                for wish, given in zip(wishes, wanted, strict=True):
                    if wish.error is ErrorCode.none:
                        log = self.logs[wish.at]
                        log.committed = max(log.committed, given.base_offset + len(wish.times))

        return self.submit(connection, ApiKey.PRODUCE, version, buffers, judge, changes=True)

    def list_ends(self, connection: Connection) -> SentRequest:
        """Ask for something that is answered after what was sent before."""
        raise NotImplementedError

    def _wanted(self, wishes: Sequence[_Wish], acks: int) -> list[ProducePartitionResponse]:
        """Append the good batches to the model; return what must be answered."""
        wanted = []
        for wish in wishes:
            if wish.error is ErrorCode.none:
                log = self.logs[wish.at]
                assert wish.data is not None
                base_offset = log.append(wish.data, wish.times).base_offset
                wanted.append(
                    ProducePartitionResponse(wish.at, 0, base_offset, log_start_offset=log.start)
                )
                continue
            is_of_log = wish.error in (ErrorCode.invalid_timestamp, *_WITHOUT_START)
            tells_start = is_of_log and wish.error not in _WITHOUT_START
            wanted.append(
                ProducePartitionResponse(
                    wish.at,
                    wish.error,
                    log_start_offset=self.logs[wish.at].start if tells_start else -1,
                    record_errors=[(place, None) for place in wish.bad_records],
                )
            )
        return wanted

    def _judge(
        self,
        body: memoryview,
        version: int,
        wanted: Sequence[ProducePartitionResponse],
        topic_id: UUID | None,
    ) -> None:
        told_codes = replacements(ApiKey.PRODUCE, version)
        coded = [
            each._replace(error=told_codes.get(each.error, ErrorCode(each.error)))
            for each in wanted
        ]
        topic = ProduceTopicResponse(self.topic, topic_id, coded)
        encoded = encode_produce_response(version, 0, [topic])
        frame = encoded if isinstance(encoded, bytes) else b"".join(encoded)
        flexible_header = 5 if version >= 9 else 4
        at_version = parse_produce_response(frame, version, flexible_header)
        told = parse_produce_response(body, version)
        left = [(t.name, t.topic_id, [_plain(p) for p in t.partitions]) for t in told.topics]
        right = [(t.name, t.topic_id, [_plain(p) for p in t.partitions]) for t in at_version.topics]
        self.expect(
            left == right and told.throttle_ms == 0 and not told.node_endpoints,
            lambda: f"Produce v{version} gave {told}, wanted {right}",
        )

    # --- batches ----------------------------------------------------------------------

    def _batch(
        self, count: int, *, padding: int = 0, time_ms: int | None = None
    ) -> tuple[bytes, list[int]]:
        now_ms = int(self.context.clock.now_ms()) if time_ms is None else time_ms
        rng = self.context.rng
        times = [now_ms - rng.randrange(_MINUTE_MS) for _ in range(count)]
        value = bytes(rng.randrange(256) for _ in range(3)) + b"x" * padding
        records = [Record(0, time, rng.choice((None, b"k")), value, []) for time in times]
        codec = rng.choice(("none", "none", "gzip", "lz4"))
        return bytes(build_batch(records, codec="none" if padding else codec)), times

    def _good(self, index: int) -> _Wish:
        rng = self.context.rng
        data, times = self._batch(rng.choice((1, 1, 2, 5)), padding=rng.choice((0, 0, 100, 500)))
        return _Wish(index, data, times, ErrorCode.none)

    def _bad(self, index: int) -> _Wish:
        """A batch that a log refuses, or that never reaches it."""
        data, times = self._batch(3)
        kinds = ["short", "none", "crc", "large", "open transaction"]
        if self.refuses_old_records:
            kinds += ["old", "old"]
        kind = self.context.rng.choice(kinds)
        if kind == "short":
            return _Wish(index, data[:30], times, ErrorCode.invalid_record)
        if kind == "none":
            return _Wish(index, None, times, ErrorCode.invalid_record)
        if kind == "crc":
            broken = bytearray(data)
            broken[_CRC_AT] ^= 0xFF
            return _Wish(index, bytes(broken), times, ErrorCode.corrupt_message)
        if kind == "large":
            data, times = self._batch(1, padding=MESSAGE_BYTES_MAX)
            return _Wish(index, data, times, ErrorCode.message_too_large)
        if kind == "old":
            return self._old(index)
        records = [Record(0, times[0], None, b"v", [])]
        batch = build_batch(
            records, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
        )
        return _Wish(index, bytes(batch), times[:1], ErrorCode.invalid_txn_state)

    def _old(self, index: int) -> _Wish:
        """A batch of three records; one or two are older than the topic takes them."""
        now_ms = int(self.context.clock.now_ms())
        bad = sorted(self.context.rng.sample(range(3), self.context.rng.choice((1, 2))))
        times = [1_000 if place in bad else now_ms for place in range(3)]
        data = build_batch([Record(0, time, None, b"v", []) for time in times])
        return _Wish(index, bytes(data), times, ErrorCode.invalid_timestamp, bad)

    # --- cutting ----------------------------------------------------------------------

    async def cut(self, connection: Connection) -> None:
        """Delete records of each partition up to a random offset. Raises `LostError`."""
        rng = self.context.rng
        asked = {}
        for index, log in enumerate(self.logs):
            asked[index] = rng.choice((log.start, rng.randint(0, log.committed), log.end + 50, -7))
        asked[len(self.logs)] = 0
        request = delete_records.DeleteRecordsRequest(
            topics=(
                delete_records.DeleteRecordsTopic(
                    name=self.topic,
                    partitions=tuple(
                        delete_records.DeleteRecordsPartition(partition_index=i, offset=offset)
                        for i, offset in asked.items()
                    ),
                ),
            ),
            timeout_ms=_TIMEOUT_MS,
        )
        rows = []
        for index, offset in asked.items():
            error, low = ErrorCode.none, -1
            if index >= len(self.logs):
                error = ErrorCode.unknown_topic_or_partition
            elif not 0 <= offset <= self.logs[index].end:
                error = ErrorCode.offset_out_of_range
            else:
                low = max(self.logs[index].start, offset)
                self.logs[index].start = low
            rows.append(
                delete_records.DeleteRecordsPartitionResult(
                    partition_index=index, low_watermark=low, error_code=error
                )
            )
        result = delete_records.DeleteRecordsTopicResult(name=self.topic, partitions=tuple(rows))
        wanted = delete_records.DeleteRecordsResponse(topics=(result,))
        await self.carry_out(
            self.send(
                connection,
                ApiKey.DELETE_RECORDS,
                request,
                lambda answer: self.compare(answer, wanted),
                changes=True,
            )
        )


def _plain(given: ProducePartitionResponse) -> tuple[object, ...]:
    """Return all fields, of texts only which records have one."""
    return (
        given.index,
        int(given.error),
        given.base_offset,
        given.log_append_time_ms,
        given.log_start_offset,
        [place for place, _ in given.record_errors],
        given.current_leader,
    )
