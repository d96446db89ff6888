"""Identifies a producer: InitProducerId, and the calls to coordinators with retries.

Every call is repeated until it has a final response or its time is over: after a lost response,
after a retriable error, and at another broker if the coordinator moved. Between the tries the
client waits, after CONCURRENT_TRANSACTIONS only shortly, as Java does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, NamedTuple

from oncelog.client import requests
from oncelog.core.errors import ErrorCode
from oncelog.core.limits import PRODUCER_EPOCH_MAX
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fields import RequestFor, ResponseT
from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import ProducerInitialized
from oncelog.simulation.peers.sending import PeerSender
from oncelog.simulation.peers.wire import LostError, PeerWire, RefusedError

__all__ = ["CallOutcome", "IdempotentIdentity", "call_coordinator"]

_MOVED: Final = frozenset({ErrorCode.not_coordinator, ErrorCode.coordinator_not_available})
_CONCURRENT_BACKOFF_MS: Final = 20


class CallOutcome(NamedTuple, Generic[ResponseT]):
    """How a call ended. `code` None: its time was over before it had a final answer.

    `perhaps`: a try may have taken effect: it had no response, or an inconclusive one.
    """

    code: ErrorCode | None
    answer: ResponseT | None
    perhaps: bool


async def call_coordinator(
    context: ClientContext,
    wire: PeerWire,
    kind: int,
    key: str,
    api: ApiKey,
    request: RequestFor[ResponseT],
    error_of: Callable[[ResponseT], ErrorCode],
    *,
    time_s: float,
    at_most: int | None = None,
    lane: str | None = None,
) -> CallOutcome[ResponseT]:
    """Call a coordinator until there is a final response, for at most `time_s` seconds."""
    if lane is None:
        lane = wire.lane(kind)
    deadline_s = context.elapsed_s() + time_s
    perhaps = False
    attempt = 0
    while context.elapsed_s() < deadline_s:
        address = await wire.coordinator(kind, key)
        if address is None:
            await context.back_off(attempt)
            attempt += 1
            continue
        try:
            answer = await wire.ask(api, request, to=address, lane=lane, at_most=at_most)
        except RefusedError as refused:
            if context.login is not None and context.login.heeds:
                return CallOutcome(refused.code, None, perhaps)
            await context.back_off(attempt)
            attempt += 1
            continue
        except LostError:
            perhaps = True
            wire.forget_coordinator(kind, key)
            await context.back_off(attempt)
            attempt += 1
            continue
        code = error_of(answer)
        if code is ErrorCode.none or not code.retriable:
            return CallOutcome(code, answer, perhaps)
        if code in _MOVED or code is ErrorCode.request_timed_out:
            # Kafka also returns this after a failed write of the coordinator, which may have been
            # done.
            perhaps = True
            wire.forget_coordinator(kind, key)
        if code is ErrorCode.concurrent_transactions:
            await context.pause(0.5 * _CONCURRENT_BACKOFF_MS, 2 * _CONCURRENT_BACKOFF_MS)
        else:
            await context.back_off(attempt)
            attempt += 1
    return CallOutcome(None, None, perhaps)


class IdempotentIdentity:
    """The producer id of a producer without transactions. Any broker returns one."""

    def __init__(self, context: ClientContext, wire: PeerWire) -> None:
        self._context = context
        self._wire = wire

    async def obtain(self, sender: PeerSender) -> None:
        """Request a producer id until there is one."""
        request = requests.init_producer_id_request(None, 2**31 - 1, -1, -1)
        attempt = 0
        while True:
            code = answer = None
            try:
                answer = await self._wire.ask(ApiKey.INIT_PRODUCER_ID, request)
                code = answer.error_code
            except LostError:
                pass
            if answer is not None and code is ErrorCode.none:
                producer_id, epoch = int(answer.producer_id), int(answer.producer_epoch)
                self._context.record(ProducerInitialized, "", producer_id, epoch)
                if producer_id < 0 or epoch < 0:
                    self._context.stuck(f"InitProducerId gave {producer_id}, {epoch}")
                sender.identify(producer_id, epoch)
                return
            is_final = code is not None and not code.retriable
            if code is not None and is_final and code is not ErrorCode.unknown_server_error:
                self._context.stuck(f"InitProducerId answered {code.name}")
            await self._context.back_off(attempt)
            attempt += 1

    async def renew(self, sender: PeerSender) -> None:
        """Continue after a gap: Java raises its epoch, librdkafka requests a new id."""
        bumped = sender.epoch + 1
        if self._wire.flavor.bumps_locally and bumped < PRODUCER_EPOCH_MAX:
            sender.identify(sender.producer_id, bumped)
            return
        await self.obtain(sender)
