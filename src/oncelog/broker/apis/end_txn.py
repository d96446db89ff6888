"""Handles EndTxn (26), versions 0-5: commits or aborts a transaction.

The reply is sent when PREPARE is committed, which fixes the outcome (INV-4); markers are written
afterwards. From version 5 on (TV2, KIP-890) the reply carries the producer id and epoch of the next
transaction. Before version 2 a fenced producer gets INVALID_PRODUCER_EPOCH (KIP-588).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import ProducerEpoch, ProducerId
from oncelog.core.pending import Pending
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.transaction.events import EndTxn, EndTxnReply

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]

_TV2_SINCE = 5


def handle(
    context: Context, request: Request[EndTxnRequest]
) -> EndTxnResponse | Pending[EndTxnResponse]:
    """Ask the transaction coordinator to commit or abort."""
    body = request.body
    event = EndTxn(
        body.transactional_id,
        ProducerId(body.producer_id),
        ProducerEpoch(body.producer_epoch),
        commit=body.committed,
        transaction_version=2 if request.version >= _TV2_SINCE else 1,
    )

    def convert(result: EndTxnReply) -> EndTxnResponse:
        return EndTxnResponse(
            error_code=result.error,
            producer_id=result.producer_id,
            producer_epoch=result.producer_epoch,
        )

    def refuse(error: ErrorCode) -> EndTxnResponse:
        return EndTxnResponse(error_code=error)

    return context.transactions.ask(body.transactional_id, event, convert, refuse)
