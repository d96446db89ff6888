"""Handles AddOffsetsToTxn (25), versions 0-4: adds a group's offsets to a transaction.

The partition of `__consumer_offsets` that stores the group joins the transaction, so that the end
marker is written there too (INV-6). Before version 2 a fenced producer gets INVALID_PRODUCER_EPOCH
(KIP-588).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, ProducerEpoch, ProducerId, TopicPartition
from oncelog.core.pending import Pending
from oncelog.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from oncelog.transaction.events import AddPartitions, AddPartitionsReply

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


def handle(
    context: Context, request: Request[AddOffsetsToTxnRequest]
) -> AddOffsetsToTxnResponse | Pending[AddOffsetsToTxnResponse]:
    """Add the group's partition to the transaction."""
    body = request.body
    if not body.group_id:
        return _response(ErrorCode.invalid_group_id)
    partition = TopicPartition(CONSUMER_OFFSETS_TOPIC, context.groups.partition_of(body.group_id))
    event = AddPartitions(
        body.transactional_id,
        ProducerId(body.producer_id),
        ProducerEpoch(body.producer_epoch),
        (partition,),
    )

    def convert(result: AddPartitionsReply) -> AddOffsetsToTxnResponse:
        return _response(result.error)

    return context.transactions.ask(body.transactional_id, event, convert, _response)


def _response(error: ErrorCode) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=error)
