"""ListTransactions (66), versions 0-2: the transactional ids that this broker coordinates.

Filters by state and producer id, from version 1 on by duration (KIP-994), from version 2 on by a
pattern of the id (KIP-1152). States that do not exist are named in the answer. While a shard is
being loaded the answer is COORDINATOR_LOAD_IN_PROGRESS. Gap: see `oncelog.transaction.pattern` for
what a pattern may hold.

Who asks with our tagged field `include_expiry` is told when each id expires unless it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.core.pending import gather
from oncelog.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from oncelog.transaction.events import NEVER_MS, ListTransactions, ListTransactionsResult
from oncelog.transaction.pattern import BadPattern, Pattern
from oncelog.transaction.queries import STATE_BY_LABEL

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


def handle(context: Context, request: Request[ListTransactionsRequest]) -> Any:
    """Ask every shard led here."""
    body = request.body
    event = ListTransactions(
        producer_ids=frozenset(body.producer_id_filters),
        states=frozenset(body.state_filters),
        duration_ms=body.duration_filter,
        pattern=body.transactional_id_pattern or "",
    )
    tells_expiry = body.include_expiry
    if event.pattern and not _is_pattern(event.pattern):
        return ListTransactionsResponse(error_code=ErrorCode.invalid_regular_expression)

    def convert(results: list[ListTransactionsResult]) -> Any:
        return _response(results, sorted(event.states - STATE_BY_LABEL.keys()), tells_expiry)

    return gather(context.transactions.ask_all(event), convert, holds_back=True)


def _is_pattern(text: str) -> bool:
    """Look before anybody is asked: a broker may coordinate nothing yet."""
    try:
        Pattern(text)
    except BadPattern:
        return False
    return True


def _response(
    results: list[ListTransactionsResult], unknown_states: list[str], tells_expiry: bool
) -> ListTransactionsResponse:
    failed = next((r.error for r in results if r.error is not ErrorCode.none), None)
    if failed is not None and failed is not ErrorCode.not_coordinator:
        return ListTransactionsResponse(error_code=failed)
    return ListTransactionsResponse(
        error_code=ErrorCode.none,
        unknown_state_filters=tuple(unknown_states),
        transaction_states=tuple(
            TransactionState(
                transactional_id=listed.transactional_id,
                producer_id=listed.producer_id,
                transaction_state=listed.state.label,
                expires_at_ms=listed.expires_at_ms if tells_expiry else NEVER_MS,
            )
            for result in results
            for listed in result.transactions
        ),
    )
