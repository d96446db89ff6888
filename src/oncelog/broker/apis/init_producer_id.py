"""InitProducerId, versions 0 to 5.

Behaviour: without a transactional id a fresh producer id with epoch 0 (INV-11); with one, the
transaction coordinator fences the previous producer, finishes what it left and bumps the epoch
(INV-5). Two-phase commit (KIP-939, v6) is not announced. Before version 4 a fenced producer is told
INVALID_PRODUCER_EPOCH (KIP-588).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.broker.apis.responses import NO_THROTTLE, fenced_for_old
from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import ProducerEpoch, ProducerId
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import message, response_class, to_milliseconds
from oncelog.transaction.events import InitProducerId, InitProducerIdResult

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]

_Response = response_class(ApiKey.INIT_PRODUCER_ID)


def handle(context: Context, request: Request) -> Any:
    """Issue a producer id, or ask the transaction coordinator."""
    if context.producer_ids.remaining_count == 0:
        return _when_ready(context, request)
    if request.body.transactional_id is None:
        producer_id = context.producer_ids.take()
        assert producer_id is not None
        return _response(ErrorCode.none, producer_id, 0)
    return _transactional(context, request)


async def _when_ready(context: Context, request: Request) -> Any:
    await context.producer_ids.ready()
    return handle(context, request)


def _transactional(context: Context, request: Request) -> Any:
    body = request.body
    event = InitProducerId(
        body.transactional_id,
        to_milliseconds(body.transaction_timeout),
        ProducerId(body.producer_id),
        ProducerEpoch(body.producer_epoch),
    )

    def convert(result: InitProducerIdResult) -> Any:
        error = fenced_for_old(result.error, request.version, since=4)
        return _response(error, result.producer_id, result.producer_epoch)

    return context.transactions.ask(
        body.transactional_id, event, convert, lambda error: _response(error, -1, -1)
    )


def _response(error: ErrorCode, producer_id: int, producer_epoch: int) -> Any:
    return message(
        _Response,
        throttle_time=NO_THROTTLE,
        error_code=error,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
