"""Reads logs that are known to the byte: Fetch, ListOffsets, OffsetForLeaderEpoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from oncelog.core.errors import ErrorCode
from oncelog.peer.connection import Connection
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    encode_fetch_request,
    parse_fetch_response,
)
from oncelog.protocol.messages import list_offsets, offset_for_leader_epoch
from oncelog.simulation.peers.exact_asking import ExactAnswer
from oncelog.simulation.peers.exact_log_base import LogAsker, SentRequest
from oncelog.simulation.peers.exact_logs import KnownBatch, KnownLog, LogMark, same_batches

__all__ = ["IDS_SINCE", "AtSending", "LogQuestions", "as_sent"]

LATEST: Final = -1
EARLIEST: Final = -2
_NEWEST: Final = -3
_EARLIEST_LOCAL: Final = -4
_LATEST_TIERED: Final = -5
_PENDING_UPLOAD: Final = -6
_SINCE: Final = {_NEWEST: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9, _PENDING_UPLOAD: 11}
"""Special timestamps of ListOffsets, and the version that each came with."""

IDS_SINCE: Final = 13
_EPOCHS_SINCE: Final = 9
_READ_COMMITTED_EVERY: Final = 0.4
_WAITS_MS: Final = (20, 60, 200)
_LONG_MS: Final = 3_000
_EARLY_MS: Final = 2.0
"""Clocks of two machines differ by less than this in a wait."""
_PROMPT_MS: Final = 600.0
"""Nothing takes longer than this while nothing is wrong."""


class AtSending(NamedTuple):
    """What is certain of a fetch's answer: errors by partition, and how far logs are."""

    errors: Mapping[int, ErrorCode]
    marks: Sequence[LogMark]


class LogQuestions(LogAsker):
    """Asks for records and offsets, and knows the answers."""

    # --- fetches ----------------------------------------------------------------------

    def fetch(self, connection: Connection, index: int) -> SentRequest:
        """Fetch from some partitions at once, from any offset, in any size."""
        rng, chance = self.context.rng, self.context.chance
        asked = [self.a_partition(index)]
        for other in range(len(self.logs)):
            if other != index and chance(0.5):
                asked.append(self.a_partition(other))
        if chance(0.1):
            missing = len(self.logs) + 1
            asked.insert(rng.randint(0, len(asked)), FetchPartition(missing, 0, 1_000))
        version = self.drawn_version(connection, ApiKey.FETCH, 4)
        request = self.fetch_request(asked, isolation_level=int(chance(_READ_COMMITTED_EVERY)))
        return self.send_fetch(connection, version, request, asked)

    def fetch_request(
        self,
        asked: Sequence[FetchPartition],
        *,
        isolation_level: int = 0,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int | None = None,
    ) -> FetchRequest:
        """Return a request for these partitions of the topic."""
        drawn = self.context.rng.choice((1, 400, 2_000, 1_000_000))
        return FetchRequest(
            max_wait_ms,
            min_bytes,
            drawn if max_bytes is None else max_bytes,
            isolation_level,
            topics=[FetchTopic(self.topic, self.topic_id, asked)],
        )

    def a_partition(self, index: int) -> FetchPartition:
        """Return a wish for one partition: mostly good, sometimes one that is refused."""
        rng, log = self.context.rng, self.logs[index]
        offset = rng.choice((log.start, log.end, rng.randint(log.start, log.end)))
        if self.context.chance(0.08):
            offset = rng.choice((log.end + 50, max(0, log.start - 1)))
        epoch = rng.choices((-1, self.epochs[index], self.epochs[index] + 1), (5, 4, 0.3))[0]
        if self.epochs[index] > 0 and self.context.chance(0.04):
            epoch = self.epochs[index] - 1
        return FetchPartition(index, offset, rng.choice((0, 1, 300, 1_500, 100_000)), epoch)

    def send_fetch(
        self,
        connection: Connection,
        version: int,
        request: FetchRequest,
        asked: Sequence[FetchPartition],
    ) -> SentRequest:
        """Send a fetch without a session; the answer has all partitions, in their order."""
        now = self.now(asked, version)

        def judge(body: memoryview) -> None:
            answer = parse_fetch_response(body, version)
            told = self.partitions_of(answer, version)
            self.expect(
                answer.error is ErrorCode.none
                and answer.session_id == 0
                and answer.throttle_ms == 0
                and [p.partition for p in told] == [p.partition for p in asked],
                lambda: f"Fetch v{version} of {request} gave {answer}",
            )
            by_index = {p.partition: p for p in told}
            self.judge_partitions(version, request, asked, by_index, now)

        frame = encode_fetch_request(
            version, connection.next_correlation_id(), self.context.name, request
        )
        return self.submit(connection, ApiKey.FETCH, version, (frame,), judge)

    def partitions_of(self, answer: FetchResponse, version: int) -> list[FetchPartitionResponse]:
        """Return the answers about our partitions; they are of our topic and no other."""
        key = (None, self.topic_id) if version >= IDS_SINCE else (self.topic, None)
        self.expect(
            all((topic.name, topic.topic_id) == key for topic in answer.topics),
            lambda: f"Fetch v{version} of {key} gave {answer.topics}",
        )
        return [partition for topic in answer.topics for partition in topic.partitions]

    def judge_partitions(
        self,
        version: int,
        request: FetchRequest,
        asked: Sequence[FetchPartition],
        told: Mapping[int, FetchPartitionResponse],
        sent: AtSending,
    ) -> None:
        """Each partition has what the limits leave for it, in the order of the request."""
        limit = min(request.max_bytes, self.settings.get_int("fetch.max.bytes"))
        used = 0
        for wish in asked:
            given = told.get(wish.partition)
            if given is None:
                continue
            error = sent.errors[wish.partition]
            records = bytes(given.records or b"")  # type: ignore[arg-type]
            if error is not ErrorCode.none:
                self._judge_refusal(version, wish, given, sent)
                continue
            log = self.logs[wish.partition]
            watermark, since = given.high_watermark, sent.marks[wish.partition]
            self.expect(
                given.error == 0
                and log.is_high_watermark(watermark, since)
                and (given.last_stable_offset, given.preferred_read_replica) == (watermark, -1)
                and given.log_start_offset == (log.start if version >= 5 else -1)
                and not given.aborted_transactions
                and given.current_leader is None
                and given.diverging_epoch is None,
                lambda wish=wish, given=given, log=log: (  # type: ignore[misc]
                    f"Fetch v{version} of {wish} gave {given}, known are {log}"
                ),
            )
            ends = [end for end in log.watermarks(since) if end <= watermark]
            fits = self.fitting(log, wish, limit - used, ends, is_first=used == 0)
            epochs = range(self.epochs[wish.partition] + 1)
            self.expect(
                any(same_batches(records, batches, epochs) for batches in fits),
                lambda wish=wish, records=records, fits=fits: (  # type: ignore[misc]
                    f"Fetch v{version} of {wish} within {limit} bytes gave {len(records)} bytes, "
                    f"wanted {fits[-1]}"
                ),
            )
            used += len(records)
            log.committed = max(log.committed, watermark)

    def fitting(
        self,
        log: KnownLog,
        wish: FetchPartition,
        left: int,
        ends: Sequence[int],
        *,
        is_first: bool,
    ) -> list[list[KnownBatch]]:
        """Return the batches that may be in an answer, for each watermark that was possible.

        Records are read first and the watermark is told later, when it may have moved.
        """
        if left <= 0 and not is_first:
            return [[]]
        size = max(0, min(wish.partition_max_bytes, left))
        return [log.read(wish.fetch_offset, size, end, whole_first=is_first) for end in ends] or [
            []
        ]

    def now(self, asked: Sequence[FetchPartition], version: int) -> AtSending:
        """Return what is certain for a request that is sent now."""
        errors = {wish.partition: self.fetch_error(as_sent(wish, version)) for wish in asked}
        return AtSending(errors, self.marks())

    def fetch_error(self, wish: FetchPartition) -> ErrorCode:
        """Return the error that a partition's answer has to have."""
        if wish.partition >= len(self.logs):
            return ErrorCode.unknown_topic_or_partition
        epoch, log = self.epochs[wish.partition], self.logs[wish.partition]
        if wish.current_leader_epoch > epoch:
            return ErrorCode.unknown_leader_epoch
        if -1 < wish.current_leader_epoch < epoch:
            return ErrorCode.fenced_leader_epoch
        is_in = log.start <= wish.fetch_offset <= log.end
        return ErrorCode.none if is_in else ErrorCode.offset_out_of_range

    def _judge_refusal(
        self,
        version: int,
        wish: FetchPartition,
        given: FetchPartitionResponse,
        sent: AtSending,
    ) -> None:
        error = sent.errors[wish.partition]
        is_fine = ErrorCode(given.error) is error and not given.records
        if error is ErrorCode.offset_out_of_range:
            log = self.logs[wish.partition]
            start = log.start if version >= 5 else -1
            since = sent.marks[wish.partition]
            is_fine = is_fine and log.is_high_watermark(given.high_watermark, since)
            is_fine = is_fine and given.log_start_offset == start
        else:
            is_fine = is_fine and (given.high_watermark, given.log_start_offset) == (-1, -1)
        if error in (ErrorCode.fenced_leader_epoch, ErrorCode.unknown_leader_epoch):
            leader = (self.node, self.epochs[wish.partition]) if version >= 16 else None
            is_fine = is_fine and given.current_leader == leader
        self.expect(
            is_fine, lambda: f"Fetch v{version} of {wish} gave {given}, wanted {error.name}"
        )

    # --- fetches that wait ------------------------------------------------------------

    async def wait_alone(self, connection: Connection) -> None:
        """Fetch where there is nothing: the answer comes after the time that was asked for."""
        rng = self.context.rng
        wait_ms = rng.choice(_WAITS_MS)
        asked = [FetchPartition(i, log.end, 10_000) for i, log in enumerate(self.logs)]
        if self.context.chance(0.3):
            asked.append(FetchPartition(len(self.logs), 0, 10_000))
        request = self.fetch_request(asked, max_wait_ms=wait_ms, min_bytes=rng.choice((1, 5_000)))
        begun_ms = self.context.clock.monotonic_ms()
        version = self.drawn_version(connection, ApiKey.FETCH, 4)
        await self.carry_out(self.send_fetch(connection, version, request, asked))
        took_ms = self.context.clock.monotonic_ms() - begun_ms
        self.expect(
            took_ms >= wait_ms - _EARLY_MS, lambda: f"a fetch waited {took_ms} of {wait_ms} ms"
        )
        self._is_prompt(took_ms - wait_ms, f"a fetch that may wait {wait_ms} ms")

    async def wait_for_news(self, connection: Connection) -> None:
        """Fetch where there is nothing, and write: the answer comes with the records."""
        index = self.context.rng.randrange(len(self.logs))
        log = self.logs[index]
        end = log.end
        if log.committed < end:
            return
        asked = [FetchPartition(index, end, 100_000, self.epochs[index])]
        request = self.fetch_request(asked, max_wait_ms=_LONG_MS, max_bytes=100_000)
        version = self.drawn_version(connection, ApiKey.FETCH, 4)
        begun_ms = self.context.clock.monotonic_ms()
        fetch = self.send_fetch(connection, version, request, asked)
        await self.write_elsewhere(index)
        await self.carry_out(fetch)
        took_ms = self.context.clock.monotonic_ms() - begun_ms
        self.expect(
            log.committed > end or took_ms >= _LONG_MS - _EARLY_MS,
            lambda: f"a fetch of {self.topic}-{index} from {end} was answered without records",
        )
        self._is_prompt(took_ms, "a fetch whose records were written meanwhile")

    async def write_elsewhere(self, index: int) -> None:
        """Write a batch on another connection. Raises `LostError`."""
        raise NotImplementedError

    def _is_prompt(self, took_ms: float, what: str) -> None:
        self.expect(
            took_ms <= _PROMPT_MS or not self.is_undisturbed,
            lambda: f"{what} took {took_ms:.0f} ms more",
        )

    # --- offsets ----------------------------------------------------------------------

    def list_ends(self, connection: Connection) -> SentRequest:
        """ListOffsets of the ends of all partitions."""
        return self._list(connection, dict.fromkeys(range(len(self.logs)), LATEST))

    def list_by_time(self, connection: Connection, index: int) -> SentRequest:
        """ListOffsets by time and by special times, of known and unknown partitions."""
        rng = self.context.rng
        log = self.logs[index]
        times = [time for batch in log.batches[-5:] for time in batch.times]
        special = (LATEST, LATEST, EARLIEST, EARLIEST, *_SINCE, -7)
        time = rng.choice((*special, *(t + rng.choice((0, 0, 1)) for t in times[:6]), 0))
        asked = {index: time}
        if self.context.chance(0.3):
            other = rng.randrange(len(self.logs) + 1)
            asked.setdefault(other, rng.choice((LATEST, EARLIEST)))
        return self._list(connection, asked)

    def _list(self, connection: Connection, asked: Mapping[int, int]) -> SentRequest:
        rng = self.context.rng
        epochs = {
            index: rng.choices((-1, self.epochs[index], self.epochs[index] + 1), (6, 4, 0.4))[0]
            if index < len(self.logs)
            else -1
            for index in asked
        }
        entries = [
            list_offsets.ListOffsetsPartition(
                partition_index=index, current_leader_epoch=epochs[index], timestamp=time
            )
            for index, time in asked.items()
        ]
        is_twice = self.context.chance(0.05)
        if is_twice:
            entries.append(entries[0])
        topic = list_offsets.ListOffsetsTopic(name=self.topic, partitions=tuple(entries))
        marks = self.marks()
        request = list_offsets.ListOffsetsRequest(
            replica_id=-1, isolation_level=int(self.context.chance(0.3)), topics=(topic,)
        )

        def judge(answer: ExactAnswer[list_offsets.ListOffsetsResponse]) -> None:
            told = [p for each in answer.response.topics for p in each.partitions]
            seen = [p for each in answer.request.topics for p in each.partitions]
            wanted = []
            for place, wish in enumerate(seen):
                given = told[place] if place < len(told) else None
                twice = [p.partition_index for p in seen].count(wish.partition_index) > 1
                wanted.append(self._listed(answer.version, wish, given, marks, is_twice=twice))
            row = list_offsets.ListOffsetsTopicResponse(name=self.topic, partitions=tuple(wanted))
            self.compare(answer, list_offsets.ListOffsetsResponse(topics=(row,)))

        return self.send(connection, ApiKey.LIST_OFFSETS, request, judge)

    def _listed(
        self,
        version: int,
        wish: list_offsets.ListOffsetsPartition,
        given: list_offsets.ListOffsetsPartitionResponse | None,
        marks: Sequence[LogMark],
        *,
        is_twice: bool,
    ) -> list_offsets.ListOffsetsPartitionResponse:
        """Return what must be told; offsets that may be one of several are taken as told."""
        index = wish.partition_index
        error = self._list_error(version, wish)
        if is_twice:
            error = ErrorCode.invalid_request
        if error is not ErrorCode.none:
            return list_offsets.ListOffsetsPartitionResponse(
                partition_index=index, error_code=error
            )
        log, time, since = self.logs[index], wish.timestamp, marks[index]
        told = -1 if given is None else given.offset
        found = -1, told
        epoch = self.epochs[index]
        if time == LATEST:
            found = (-1, told) if log.is_high_watermark(told, since) else (-1, log.end)
            log.committed = max(log.committed, found[1])
        elif time in (EARLIEST, _EARLIEST_LOCAL):
            found = -1, log.start
        elif time in (_LATEST_TIERED, _PENDING_UPLOAD):
            found = -1, -1
        else:
            ends = log.watermarks(since)
            if time == _NEWEST:
                later = [since.end, *(end for end in ends if end > since.end)]
                rows = [log.newest(high, end) for end in later for high in ends if high <= end]
            else:
                rows = [log.at_time(time, high) for high in ends]
            row = (-1, -1) if given is None else (given.timestamp, given.offset)
            found = row if row in rows else rows[-1]
        is_plain = time == LATEST
        if given is not None and not is_plain and -1 <= given.leader_epoch <= epoch:
            epoch = given.leader_epoch
        if time in (_LATEST_TIERED, _PENDING_UPLOAD):
            epoch = -1
        return list_offsets.ListOffsetsPartitionResponse(
            partition_index=index, timestamp=found[0], offset=found[1], leader_epoch=epoch
        )

    def _list_error(self, version: int, wish: list_offsets.ListOffsetsPartition) -> ErrorCode:
        index, time = wish.partition_index, wish.timestamp
        if index >= len(self.logs):
            return ErrorCode.unknown_topic_or_partition
        if wish.current_leader_epoch > self.epochs[index]:
            return ErrorCode.unknown_leader_epoch
        if -1 < wish.current_leader_epoch < self.epochs[index]:
            return ErrorCode.fenced_leader_epoch
        is_known = time >= -6 and version >= _SINCE.get(time, 0)
        return ErrorCode.none if is_known else ErrorCode.unsupported_version

    def epoch_ends(self, connection: Connection, index: int) -> SentRequest:
        """OffsetForLeaderEpoch of the present epoch, of later ones, and under a wrong epoch."""
        rng = self.context.rng
        now = self.epochs[index]
        asked = {index: (rng.choice((-1, now, now, now + 1)), rng.choice((now, now + 1)))}
        if self.context.chance(0.3):
            asked[len(self.logs)] = (-1, 0)
        request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            topics=(
                offset_for_leader_epoch.OffsetForLeaderTopic(
                    topic=self.topic,
                    partitions=tuple(
                        offset_for_leader_epoch.OffsetForLeaderPartition(
                            partition=p, current_leader_epoch=current, leader_epoch=epoch
                        )
                        for p, (current, epoch) in asked.items()
                    ),
                ),
            ),
        )
        rows = []
        for p, (current, epoch) in asked.items():
            error, end = ErrorCode.none, (-1, -1)
            if p >= len(self.logs):
                error = ErrorCode.unknown_topic_or_partition
            elif current > now:
                error = ErrorCode.unknown_leader_epoch
            elif epoch == now:
                end = now, self.logs[p].end
            rows.append(
                offset_for_leader_epoch.EpochEndOffset(
                    error_code=error, partition=p, leader_epoch=end[0], end_offset=end[1]
                )
            )
        row = offset_for_leader_epoch.OffsetForLeaderTopicResult(
            topic=self.topic, partitions=tuple(rows)
        )
        wanted = offset_for_leader_epoch.OffsetForLeaderEpochResponse(topics=(row,))
        return self.send(
            connection,
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            request,
            lambda answer: self.compare(answer, wanted),
        )


def as_sent(wish: FetchPartition, version: int) -> FetchPartition:
    """Return what the broker reads of a wish in this version."""
    return wish if version >= _EPOCHS_SINCE else wish._replace(current_leader_epoch=-1)
