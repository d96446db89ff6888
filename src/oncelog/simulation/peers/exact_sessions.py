"""Keeps a fetch session over logs that are known to the byte, with a naive model of KIP-227.

A session has partitions in an order. An incremental answer has those with news: records, another
high watermark or log start than last told, an error. Those with records move to the end of the
order. A broker may forget a session where there are more than it keeps, or after a restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oncelog.core.errors import ErrorCode
from oncelog.peer.connection import Connection
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    encode_fetch_request,
    parse_fetch_response,
)
from oncelog.simulation.peers.exact_log_questions import (
    IDS_SINCE,
    AtSending,
    LogQuestions,
    as_sent,
)
from oncelog.simulation.peers.exact_logs import LogMark

__all__ = ["SessionQuestions"]

_SESSIONS_SINCE: Final = 7
_FINAL_EPOCH: Final = -1
_SLOTS_PLENTY: Final = 100
"""With so many slots no session is forgotten for another."""


class SessionQuestions(LogQuestions):
    """Fetches with a session: full, incremental, in the wrong order, and to its end."""

    _session_id = 0
    _epoch = 0
    _is_by_id = False
    _opened_on: Connection | None = None

    def close_session(self) -> None:
        """Forget the session; the broker may keep it."""
        self._session_id = 0
        self._wishes: dict[int, FetchPartition] = {}
        """The session's partitions, in its order."""
        self._told: dict[int, tuple[int, int]] = {}
        """(high watermark, log start) as told last; -1 after an error."""

    async def use_session(self, connection: Connection) -> None:
        """Open a session, or use the one that there is. Raises `LostError`."""
        if self._session_id == 0:
            await self._open(connection)
            return
        step = self.context.rng.choices(
            (self._go_on, self._use_wrongly, self._end, self._open), (12, 2, 1, 1)
        )[0]
        await step(connection)

    async def _ask(
        self, connection: Connection, version: int, request: FetchRequest
    ) -> FetchResponse:
        answers: list[FetchResponse] = []

        def judge(body: memoryview) -> None:
            answers.append(parse_fetch_response(body, version))

        number = connection.next_correlation_id()
        frame = encode_fetch_request(version, number, self.context.name, request)
        await self.carry_out(self.submit(connection, ApiKey.FETCH, version, (frame,), judge))
        return answers[0]

    def _a_version(self, connection: Connection, *, is_by_id: bool) -> int:
        newest = self.wire.version(connection, ApiKey.FETCH)
        if is_by_id:
            return self.context.rng.randint(IDS_SINCE, newest)
        return self.context.rng.randint(_SESSIONS_SINCE, IDS_SINCE - 1)

    async def _open(self, connection: Connection) -> None:
        """A full fetch, which ends a session that there is."""
        self._is_by_id = self.context.chance(0.5)
        version = self._a_version(connection, is_by_id=self._is_by_id)
        former = self._session_id
        self.close_session()
        wishes = [self.a_partition(index) for index in range(len(self.logs))]
        wishes = self.context.rng.sample(wishes, self.context.rng.randint(1, len(wishes)))
        wishes = [as_sent(wish, version) for wish in wishes]
        request = self.fetch_request(wishes)._replace(session_id=former, session_epoch=0)
        now = self.now(wishes, version)
        answer = await self._ask(connection, version, request)
        told = self.partitions_of(answer, version)
        self.expect(
            answer.error is ErrorCode.none
            and [p.partition for p in told] == [wish.partition for wish in wishes]
            and (answer.session_id > 0 or not self._has_space()),
            lambda: f"Fetch v{version} of {request} gave {answer}",
        )
        by_index = {p.partition: p for p in told}
        self.judge_partitions(version, request, wishes, by_index, now)
        self._session_id, self._epoch = answer.session_id, 1
        self._opened_on = connection
        self._wishes = {wish.partition: wish for wish in wishes}
        for given in told:
            self._note(given)

    def _has_space(self) -> bool:
        return self.settings.get_int("max.incremental.fetch.session.cache.slots") >= _SLOTS_PLENTY

    def _note(self, given: FetchPartitionResponse) -> None:
        watermark = -1 if given.error else given.high_watermark
        self._told[given.partition] = watermark, given.log_start_offset

    async def _go_on(self, connection: Connection) -> None:
        """An incremental fetch with some changes."""
        rng = self.context.rng
        version = self._a_version(connection, is_by_id=self._is_by_id)
        changed = [
            self.a_partition(index) for index in range(len(self.logs)) if self.context.chance(0.5)
        ]
        forgotten = [
            index
            for index in self._wishes
            if index not in [wish.partition for wish in changed] and self.context.chance(0.1)
        ]
        max_bytes = rng.choice((400, 2_000, 1_000_000, 1_000_000))
        request = self._incremental(changed, forgotten, max_bytes=max_bytes)
        marks = self.marks()
        answer = await self._ask(connection, version, request)
        if answer.error is ErrorCode.fetch_session_id_not_found:
            self._is_gone(connection, answer)
            return
        for wish in changed:
            # A partition that is changed keeps its place.
            self._wishes[wish.partition] = as_sent(wish, version)
        for index in forgotten:
            self._wishes.pop(index)
            self._told.pop(index, None)
        told = self.partitions_of(answer, version)
        if not self._wishes:
            # A session without partitions has ended.
            self.expect(
                answer.session_id == 0 and not told and answer.error is ErrorCode.none,
                lambda: f"Fetch v{version} of {request} gave {answer}",
            )
            self.close_session()
            return
        self.expect(
            answer.error is ErrorCode.none and answer.session_id == self._session_id,
            lambda: f"Fetch v{version} of {request} gave {answer}",
        )
        self._judge_news(version, request, told, marks)
        self._epoch += 1

    def _judge_news(
        self,
        version: int,
        request: FetchRequest,
        told: list[FetchPartitionResponse],
        marks: Sequence[LogMark],
    ) -> None:
        """An answer has the partitions with news, in the order of the session, and no others."""
        order = list(self._wishes)
        by_index = {given.partition: given for given in told}
        whole = dict(by_index)
        for index in order:
            wish = self._wishes[index]
            given = by_index.get(index)
            if given is not None:
                news = (-1 if given.error else given.high_watermark, given.log_start_offset)
                is_news = bool(given.records or given.error) or news != self._told.get(index)
                self.expect(
                    is_news,
                    lambda given=given: f"Fetch v{version} told {given} again",  # type: ignore[misc]
                )
                continue
            watermark, start = self._told.get(index, (-1, -1))
            # What is left out is as it was told last, and has no records within the limits.
            whole[index] = FetchPartitionResponse(index, 0, watermark, watermark, start)
            error = self.fetch_error(wish)
            self.expect(
                error is ErrorCode.none and watermark >= 0,
                lambda wish=wish: f"Fetch v{version} left {wish} out",  # type: ignore[misc]
            )
        self.expect(
            [given.partition for given in told] == [i for i in order if i in by_index],
            lambda: f"Fetch v{version} of the session {order} gave {told}",
        )
        wishes = [self._wishes[index] for index in order]
        errors = {wish.partition: self.fetch_error(wish) for wish in wishes}
        now = AtSending(errors, marks)
        self.judge_partitions(version, request, wishes, whole, now)
        for given in told:
            self._note(given)
            if given.records:
                self._wishes[given.partition] = self._wishes.pop(given.partition)

    def _incremental(
        self, changed: list[FetchPartition], forgotten: list[int], *, max_bytes: int
    ) -> FetchRequest:
        request = self.fetch_request(changed, max_bytes=max_bytes)
        topics = [FetchTopic(self.topic, self.topic_id, changed)] if changed else []
        gone = [ForgottenTopic(self.topic, self.topic_id, forgotten)] if forgotten else []
        return request._replace(
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=topics,
            forgotten_topics=gone,
        )

    def _is_gone(self, connection: Connection, answer: FetchResponse) -> None:
        """The broker does not know the session: only after a restart, or for want of space."""
        self.expect(
            not answer.topics
            and answer.session_id == 0
            and (connection is not self._opened_on or not self._has_space()),
            lambda: f"Fetch of session {self._session_id} gave {answer}",
        )
        self.close_session()

    async def _use_wrongly(self, connection: Connection) -> None:
        """An epoch out of order, an unknown id, topics by id after names: nothing changes."""
        request = self._incremental([], [], max_bytes=1_000)
        version = self._a_version(connection, is_by_id=self._is_by_id)
        wanted = ErrorCode.invalid_fetch_session_epoch
        kind = self.context.rng.choice(("epoch", "epoch", "id", "version"))
        if kind == "epoch":
            wrong = self.context.rng.choice((self._epoch + 1, self._epoch - 1 or 7))
            request = request._replace(session_epoch=wrong)
        elif kind == "id":
            request = request._replace(session_id=self._session_id ^ 1)
            wanted = ErrorCode.fetch_session_id_not_found
        else:
            version = self._a_version(connection, is_by_id=not self._is_by_id)
            wanted = ErrorCode.fetch_session_topic_id_error
        answer = await self._ask(connection, version, request)
        if answer.error is ErrorCode.fetch_session_id_not_found and kind != "id":
            self._is_gone(connection, answer)
            return
        self.expect(
            answer.error is wanted and not answer.topics and answer.session_id == 0,
            lambda: f"Fetch v{version} of {request} gave {answer}, wanted {wanted.name}",
        )

    async def _end(self, connection: Connection) -> None:
        """The last fetch of a session is one without; the session is not known any more."""
        version = self._a_version(connection, is_by_id=self._is_by_id)
        former = self._session_id
        wishes = [self.a_partition(index) for index in range(len(self.logs))]
        last = self.fetch_request(wishes)._replace(session_id=former, session_epoch=_FINAL_EPOCH)
        await self.carry_out(self.send_fetch(connection, version, last, wishes))
        answer = await self._ask(connection, version, self._incremental([], [], max_bytes=1_000))
        self.expect(
            answer.error is ErrorCode.fetch_session_id_not_found,
            lambda: f"Fetch of the ended session {former} gave {answer}",
        )
        self.close_session()
