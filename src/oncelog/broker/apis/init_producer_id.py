"""InitProducerId, versions 0 to 5.

Behaviour: without a transactional id a fresh producer id with epoch 0 (INV-11); with one, the
transaction coordinator fences the previous producer, finishes what it left and bumps the epoch
(INV-5). Two-phase commit (KIP-939, v6) is not announced. Before version 4 a fenced producer is told
INVALID_PRODUCER_EPOCH (KIP-588).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.broker.apis import Request
from oncelog.broker.apis.responses import NO_THROTTLE, fenced_for_old, in_order
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import ProducerEpoch, ProducerId
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import message, response_class, to_milliseconds
from oncelog.transaction.events import InitProducerId, InitProducerIdResult

if TYPE_CHECKING:
    from oncelog.broker.broker import Broker

__all__ = ["handle"]

_Response = response_class(ApiKey.INIT_PRODUCER_ID)


def handle(broker: Broker, request: Request) -> Any:
    """Issue a producer id, or ask the transaction coordinator."""
    if broker.producer_ids.remaining_count == 0:
        return _when_ready(broker, request)
    if request.body.transactional_id is None:
        producer_id = broker.producer_ids.take()
        assert producer_id is not None
        return _response(ErrorCode.none, producer_id, 0)
    return _transactional(broker, request)


async def _when_ready(broker: Broker, request: Request) -> Any:
    await broker.producer_ids.ready()
    result = handle(broker, request)
    return await result if hasattr(result, "__await__") else result


def _transactional(broker: Broker, request: Request) -> Any:
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

    return in_order(
        broker.transactions,
        body.transactional_id,
        event,
        request.connection,
        convert,
        lambda error: _response(error, -1, -1),
    )


def _response(error: ErrorCode, producer_id: int, producer_epoch: int) -> Any:
    return message(
        _Response,
        throttle_time=NO_THROTTLE,
        error_code=error,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
