"""Handles InitProducerId (22), versions 0-5: assigns a producer id and epoch.

Without a transactional id the producer gets a fresh id with epoch 0 (INV-11). With one, the
transaction coordinator fences the previous producer, ends its transaction and bumps the epoch
(INV-5). A producer sends both its producer id and epoch, or neither: otherwise it gets
INVALID_REQUEST. Our tagged field `is_administrator` says that a command, not a producer, takes the
id over: the id's history then tells so. Before version 4 a fenced producer gets
INVALID_PRODUCER_EPOCH (KIP-588). Gap: two-phase commit (KIP-939, version 6) is not announced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId
from oncelog.core.limits import CLIENT_ID_TOLD_LENGTH_MAX
from oncelog.core.pending import Pending
from oncelog.metadata.store import StoreFailure
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.transaction.events import InitProducerId, InitProducerIdReply

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from oncelog.broker.apis.context import Context

__all__ = ["handle"]

Answer: TypeAlias = "InitProducerIdResponse | Pending[InitProducerIdResponse]"


def handle(context: Context, request: Request[InitProducerIdRequest]) -> Answer | Awaitable[Answer]:
    """Assign a producer id, or ask the transaction coordinator."""
    body = request.body
    if (body.producer_id == NO_PRODUCER_ID) != (body.producer_epoch == NO_PRODUCER_EPOCH):
        return _response(ErrorCode.invalid_request, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    if context.producer_ids.remaining_count == 0:
        return _when_ready(context, request)
    return _answer(context, request)


def _answer(context: Context, request: Request[InitProducerIdRequest]) -> Answer:
    transactional_id = request.body.transactional_id
    if transactional_id is None:
        producer_id = context.producer_ids.take()
        assert producer_id is not None
        return _response(ErrorCode.none, producer_id, 0)
    return _transactional(context, request, transactional_id)


async def _when_ready(context: Context, request: Request[InitProducerIdRequest]) -> Answer:
    try:
        await context.producer_ids.ready()
    except StoreFailure:
        # As in Kafka, while no block of ids can be had: older clients retry this code.
        return _response(ErrorCode.coordinator_load_in_progress, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    return _answer(context, request)


def _transactional(
    context: Context, request: Request[InitProducerIdRequest], transactional_id: str
) -> Answer:
    body = request.body
    event = InitProducerId(
        transactional_id,
        body.transaction_timeout_ms,
        ProducerId(body.producer_id),
        ProducerEpoch(body.producer_epoch),
        client=f"client {request.client_id[:CLIENT_ID_TOLD_LENGTH_MAX]!r} at"
        f" {request.connection.peer_host}",
        is_administrator=body.is_administrator,
    )

    def convert(result: InitProducerIdReply) -> InitProducerIdResponse:
        return _response(result.error, result.producer_id, result.producer_epoch)

    return context.transactions.ask(
        transactional_id, event, convert, lambda error: _response(error, -1, -1)
    )


def _response(error: ErrorCode, producer_id: int, producer_epoch: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=error,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
