"""Handles ListTransactions (66), versions 0-2: lists the transactional ids of this coordinator.

Filters by state and producer id, from version 1 on by duration (KIP-994), from version 2 on by a
pattern of the id (KIP-1152), in RE2's syntax. The reply names unknown states. It waits for shards
that are being loaded; after a limit it is COORDINATOR_LOAD_IN_PROGRESS. COORDINATOR_NOT_AVAILABLE
while a shard of this broker's is missing, because its log is damaged or its log directory off line:
tools take a transaction that no list names for a hanging one and abort it, and the missing shard
may commit it elsewhere (INV-4). Kafka then lists the ids of the other shards.

A request with our tagged field `include_expiry` also gets the time at which each unused id expires.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.net.request import Request
from oncelog.coordinator import patterns
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TRANSACTION_STATE_TOPIC
from oncelog.core.pending import Pending, gather
from oncelog.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionOverview,
)
from oncelog.transaction.events import NEVER_MS, ListTransactions, ListTransactionsReply
from oncelog.transaction.queries import STATE_BY_LABEL

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


def handle(
    context: Context, request: Request[ListTransactionsRequest]
) -> ListTransactionsResponse | Pending[ListTransactionsResponse]:
    """Ask every shard that this broker leads."""
    body = request.body
    event = ListTransactions(
        producer_ids=frozenset(body.producer_id_filters),
        states=frozenset(body.state_filters),
        duration_ms=body.duration_filter,
        pattern=body.transactional_id_pattern or "",
    )
    tells_expiry = body.include_expiry
    runtime = context.transactions
    is_whole = runtime.has_shards_of(
        context.image.topic(TRANSACTION_STATE_TOPIC), context.broker_id
    )
    if event.pattern and not _is_pattern(event.pattern):
        return ListTransactionsResponse(error_code=ErrorCode.invalid_regular_expression)

    def convert(results: list[ListTransactionsReply]) -> ListTransactionsResponse:
        error = _list_error([result.error for result in results], is_whole)
        if error is not ErrorCode.none:
            return ListTransactionsResponse(error_code=error)
        return _response(results, sorted(event.states - STATE_BY_LABEL.keys()), tells_expiry)

    return gather(runtime.ask_all(event, ListTransactionsReply), convert, holds_back=True)


def _is_pattern(text: str) -> bool:
    """Check the pattern first: a broker without shards must refuse a bad one as well."""
    try:
        patterns.check(text)
    except patterns.InvalidPattern:
        return False
    return True


def _list_error(errors: list[ErrorCode], is_whole: bool) -> ErrorCode:
    """Return the error of the whole list.

    A shard that is being loaded comes first: asking again helps then.
    """
    failed = set(errors) - {ErrorCode.none}
    if ErrorCode.coordinator_load_in_progress in failed:
        return ErrorCode.coordinator_load_in_progress
    if not is_whole or ErrorCode.not_coordinator in failed:
        return ErrorCode.coordinator_not_available
    return next(iter(failed), ErrorCode.none)


def _response(
    results: list[ListTransactionsReply], unknown_states: list[str], tells_expiry: bool
) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        error_code=ErrorCode.none,
        unknown_state_filters=tuple(unknown_states),
        transaction_states=tuple(
            TransactionOverview(
                transactional_id=listed.transactional_id,
                producer_id=listed.producer_id,
                transaction_state=listed.state.label,
                expires_at_ms=listed.expires_at_ms if tells_expiry else NEVER_MS,
            )
            for result in results
            for listed in result.transactions
        ),
    )
