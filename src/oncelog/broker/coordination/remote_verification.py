"""Has the coordinators of other brokers verify transactions (AddPartitionsToTxn from version 4 on).

Whom to ask, the newest image says that this broker knows. One request carries all that is due to a
broker when it is sent; a few are on their way at a time, over connections of their own: no marker
waits behind them. Where the coordinator is another one meanwhile the question ends at once, and so
it does when its connection breaks: the producer sends again, and the next coordinator is asked. The
effect happens once, because an add that is repeated adds nothing.

An add that meets the end of the transaction before waits for that (D7): the coordinator keeps it
for a moment only, as other brokers' questions wait behind it, and then it is asked again.

Built with the second registered broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from oncelog.broker.coordination.verification import ask_here
from oncelog.broker.peers.connections import PeerUnreachable
from oncelog.controller.image import MetadataImage
from oncelog.core.cluster_limits import (
    VERIFICATION_REQUESTS_IN_FLIGHT_COUNT_MAX,
    VERIFICATION_RETRY_MS_MAX,
    VERIFICATION_RETRY_MS_MIN,
    VERIFICATION_WAIT_MS_MAX,
    VERIFICATIONS_TOGETHER_COUNT_MAX,
)
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from oncelog.core.limits import PARKED_REQUEST_WAIT_MS_MAX
from oncelog.core.pending import Pending
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fields import RequestFor, ResponseT
from oncelog.protocol.messages import add_partitions_to_txn as schema
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from oncelog.runtime.backoff import Backoff
from oncelog.runtime.framed import DisconnectedError
from oncelog.transaction.events import AddPartitions, AddPartitionsReply

if TYPE_CHECKING:
    from oncelog.broker.coordination.coordinators import TransactionRuntime

__all__ = ["ClusterCoordinators"]

log = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")

_VERSION: Final = 5

_MUST_ASK_AGAIN = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.operation_not_attempted,
    }
)
"""The coordinator does not know a partition yet that this broker leads."""


class Asks(Protocol):
    """What is used of `oncelog.broker.peers.connections.Peers`."""

    async def ask(
        self, broker_id: int, api: ApiKey, version: int, request: RequestFor[ResponseT]
    ) -> ResponseT:
        """See `Peers.ask`."""
        ...


class ClusterCoordinators:
    """The coordinators of transactions on all brokers.

    `image` returns the newest metadata that this broker knows. `on_bug` gets what must not happen.
    """

    has_rivals = True

    def __init__(
        self,
        broker_id: int,
        transactions: TransactionRuntime,
        image: Callable[[], MetadataImage],
        peers: Asks,
        uniform: Callable[[float, float], float],
        on_bug: Callable[[BaseException], None],
    ) -> None:
        self.clock = transactions.clock
        self._broker_id = broker_id
        self._transactions = transactions
        self._image = image
        self._peers = peers
        self._backoff = Backoff(VERIFICATION_RETRY_MS_MIN, VERIFICATION_RETRY_MS_MAX, uniform)
        self._on_bug = on_bug
        self._loop = asyncio.get_running_loop()
        self._lines: dict[int, _Asking] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def add_partitions(
        self,
        event: AddPartitions,
        conclude: Callable[[AddPartitionsReply], AnswerT | Pending[AnswerT]],
        unavailable: Callable[[ErrorCode], AnswerT | Pending[AnswerT]],
    ) -> AnswerT | Pending[AnswerT]:
        """See `oncelog.broker.coordination.verification.TransactionCoordinators`."""
        coordinator = self._coordinator_of(event.transactional_id)
        if coordinator == self._broker_id:
            return ask_here(self._transactions, event, conclude, unavailable)
        if coordinator < 0 or self._is_closed:
            return unavailable(ErrorCode.coordinator_not_available)

        pending = Pending(conclude, holds_back=True, refuse=unavailable)
        question = _Verifying(event, pending, self.clock.now_ms())
        pending.on_drop = question.drop
        self._ask(coordinator, question)
        return pending

    def apply(self) -> None:
        """Follow the image: end the questions to brokers that are the coordinator no more."""
        for broker_id, line in self._lines.items():
            for question in tuple(line.open):
                if self._coordinator_of(question.event.transactional_id) != broker_id:
                    question.settle(ErrorCode.not_coordinator)

    async def close(self) -> None:
        """End all questions."""
        self._is_closed = True
        for line in self._lines.values():
            for question in tuple(line.open):
                question.settle(ErrorCode.coordinator_not_available)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _coordinator_of(self, transactional_id: str) -> int:
        """Return who leads the id's partition, -1 if no broker is known to."""
        index = self._transactions.partition_of(transactional_id)
        partition = self._image().partition(TRANSACTION_STATE_TOPIC, index)
        return -1 if partition is None else partition.leader

    def _ask(self, broker_id: int, question: _Verifying) -> None:
        line = self._lines.get(broker_id)
        if line is None:
            line = self._lines[broker_id] = _Asking(broker_id)
        line.put(question)
        self._send_due(line)

    def _send_due(self, line: _Asking) -> None:
        """Send what is due in the next turn of the loop, with what is asked in this one."""
        if line.may_send:
            line.is_starting = True
            line.in_flight_count += 1
            task = self._loop.create_task(self._send(line))
            self._tasks.add(task)
            task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (bug := task.exception()):
            self._on_bug(bug)

    async def _send(self, line: _Asking) -> None:
        """Send one request, and settle its questions with the answers."""
        line.is_starting = False
        questions = line.take()
        self._send_due(line)  # A second question of one id goes with the next request.
        try:
            if questions:
                self._answered(questions, await self._outcomes(line.broker_id, questions))
        finally:
            line.in_flight_count -= 1
        self._send_due(line)

    async def _outcomes(
        self, broker_id: int, questions: list[_Verifying]
    ) -> list[AddPartitionsReply | ErrorCode]:
        request = AddPartitionsToTxnRequest(
            transactions=tuple(question.wanted() for question in questions)
        )
        api = ApiKey.ADD_PARTITIONS_TO_TXN
        try:
            response = await self._peers.ask(broker_id, api, _VERSION, request)
            return list(_replies(questions, response))
        except (PeerUnreachable, DisconnectedError) as error:
            log.debug("verification by broker %d: %s", broker_id, error)
        except ProtocolError as error:
            log.warning("the answer of broker %d to a verification: %s", broker_id, error)
        return [ErrorCode.network_exception] * len(questions)

    def _answered(
        self, questions: list[_Verifying], outcomes: list[AddPartitionsReply | ErrorCode]
    ) -> None:
        now_ms = self.clock.now_ms()
        for question, outcome in zip(questions, outcomes, strict=True):
            if question.line is None:
                continue  # No request waits for it any more.
            if _waits(question.event, outcome) and now_ms < question.until_ms:
                delay_ms = self._backoff.delay_ms(question.attempts_count)
                question.attempts_count += 1
                question.timer = self._loop.call_later(delay_ms / 1000, self._again, question)
            else:
                question.settle(outcome)

    def _again(self, question: _Verifying) -> None:
        """Ask the broker again that is the coordinator now."""
        question.timer = None
        coordinator = self._coordinator_of(question.event.transactional_id)
        if coordinator < 0 or coordinator == self._broker_id:
            question.settle(ErrorCode.not_coordinator)
        else:
            self._ask(coordinator, question)


class _Verifying:
    """One verification by another broker, until it has an answer or no request waits for it."""

    __slots__ = ("_pending", "attempts_count", "event", "line", "timer", "until_ms")

    def __init__(self, event: AddPartitions, pending: Pending[Any], now_ms: int) -> None:
        self.event = event
        self.until_ms = now_ms + PARKED_REQUEST_WAIT_MS_MAX
        self.attempts_count = 0
        self.timer: asyncio.TimerHandle | None = None
        self.line: _Asking | None = None
        self._pending = pending

    def settle(self, outcome: AddPartitionsReply | ErrorCode) -> None:
        """Answer; a second answer, or one that no request waits for, says nothing."""
        if self.line is not None:
            self.drop()
            if isinstance(outcome, AddPartitionsReply):
                self._pending.complete(outcome)
            else:
                self._pending.fail(outcome)

    def drop(self) -> None:
        """Forget the question: it is asked no more."""
        if self.timer is not None:
            self.timer.cancel()
        if self.line is not None:
            self.line.remove(self)
            self.line = None

    def wanted(self) -> schema.AddPartitionsToTxnTransaction:
        """Return what is sent: the first time the coordinator may keep it for a moment."""
        event = self.event
        topics: dict[str, list[int]] = {}
        for name, index in event.partitions:
            topics.setdefault(name, []).append(index)
        return schema.AddPartitionsToTxnTransaction(
            transactional_id=event.transactional_id,
            producer_id=event.producer_id,
            producer_epoch=event.producer_epoch,
            verify_only=event.verify_only,
            topics=tuple(
                schema.AddPartitionsToTxnTopic(name=name, partitions=tuple(indexes))
                for name, indexes in topics.items()
            ),
            wait_ms=0 if self.attempts_count else VERIFICATION_WAIT_MS_MAX,
        )


class _Asking:
    """The questions to one broker, in order: those to be sent, and all that have no answer."""

    __slots__ = ("_due", "broker_id", "in_flight_count", "is_starting", "open")

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.in_flight_count = 0
        self.is_starting = False
        """Whether a request will be sent in the next turn of the loop."""
        self.open: dict[_Verifying, None] = {}
        self._due: dict[_Verifying, None] = {}

    @property
    def may_send(self) -> bool:
        """Whether another request is to be sent, and may be."""
        is_full = self.in_flight_count >= VERIFICATION_REQUESTS_IN_FLIGHT_COUNT_MAX
        return bool(self._due) and not self.is_starting and not is_full

    def put(self, question: _Verifying) -> None:
        if question.line is not None:
            question.line.remove(question)
        question.line = self
        self.open[question] = self._due[question] = None

    def remove(self, question: _Verifying) -> None:
        self.open.pop(question, None)
        self._due.pop(question, None)

    def take(self) -> list[_Verifying]:
        """Take what the next request carries: an id once, as Kafka answers by id."""
        found: dict[str, _Verifying] = {}
        for question in self._due:
            if len(found) == VERIFICATIONS_TOGETHER_COUNT_MAX:
                break
            found.setdefault(question.event.transactional_id, question)
        questions = list(found.values())
        for question in questions:
            del self._due[question]
        return questions


def _waits(event: AddPartitions, outcome: AddPartitionsReply | ErrorCode) -> bool:
    """Whether an add has met the end of the transaction before."""
    return (
        not event.verify_only
        and isinstance(outcome, AddPartitionsReply)
        and any(error is ErrorCode.concurrent_transactions for _, error in outcome.partitions)
    )


def _replies(
    questions: list[_Verifying], response: AddPartitionsToTxnResponse
) -> Iterator[AddPartitionsReply | ErrorCode]:
    """Return the reply to each question. Raises `ProtocolError` where the response lacks one."""
    if response.error_code is not ErrorCode.none:
        raise ProtocolError(response.error_code, "the whole request is refused")
    results = {result.transactional_id: result for result in response.results_by_transaction}
    for question in questions:
        event = question.event
        result = results.get(event.transactional_id)
        if result is None:
            raise _no_answer(f"transactional id {event.transactional_id!r}")
        errors = {
            TopicPartition(topic.name, each.partition_index): each.partition_error_code
            for topic in result.topic_results
            for each in topic.results_by_partition
        }
        if not errors.keys() >= set(event.partitions):
            raise _no_answer(f"a partition of {event.transactional_id!r}")
        if _MUST_ASK_AGAIN.intersection(errors.values()):
            yield ErrorCode.coordinator_not_available
        else:
            each_error = tuple((partition, errors[partition]) for partition in event.partitions)
            yield AddPartitionsReply(ErrorCode.none, each_error, result.coordinator_epoch)


def _no_answer(whose: str) -> ProtocolError:
    return ProtocolError(ErrorCode.unknown_server_error, f"{whose} has no answer")
