"""Serves DescribeTransactions and ListTransactions from committed state (KIP-664).

Nothing here changes state.
"""

from oncelog.coordinator import patterns
from oncelog.coordinator.shard import EventContext, reply_at_once
from oncelog.core.errors import ErrorCode
from oncelog.transaction import notices
from oncelog.transaction.events import (
    NEVER_MS,
    DeletedTopicsReply,
    DescribeTransaction,
    DescribeTransactionReply,
    FindDeletedTopics,
    ListedTransaction,
    ListTransactions,
    ListTransactionsReply,
    TransactionDecision,
)
from oncelog.transaction.states import TransactionMetadata, TransactionState
from oncelog.transaction.store import TransactionStore

STATE_BY_LABEL = {state.label: state for state in TransactionState}


def describe(
    store: TransactionStore, event: DescribeTransaction, context: EventContext
) -> TransactionDecision:
    """Describe one id.

    INVALID_REQUEST if it is empty, TRANSACTIONAL_ID_NOT_FOUND if it does not exist.
    """
    id_ = event.transactional_id
    if not id_:
        return reply_at_once(context, DescribeTransactionReply(ErrorCode.invalid_request, id_))
    metadata = store.transactions.get(id_)
    if metadata is None:
        expiry = store.expired.get(id_)
        cause = None if expiry is None else notices.expiry_cause(*expiry)
        error = ErrorCode.transactional_id_not_found
        return reply_at_once(context, DescribeTransactionReply(error, id_, cause=cause))
    volatile = store.volatile[id_]
    partitions = volatile.markers_left if metadata.state.is_prepared else metadata.partitions
    refused = {one: why for one, why in volatile.refused.items() if one in volatile.markers_left}
    result = DescribeTransactionReply(
        error=ErrorCode.none,
        transactional_id=id_,
        state=metadata.state,
        timeout_ms=metadata.timeout_ms,
        start_timestamp_ms=metadata.start_timestamp_ms,
        last_update_timestamp_ms=metadata.last_update_timestamp_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        # While the transaction ends, list those that still owe a marker, as Kafka does: its tools
        # treat others as hanging.
        partitions=tuple(sorted(partitions)),
        cause=volatile.cause,
        life=store.lives.steps(id_) if event.include_life else (),
        trouble=notices.advice(metadata, refused) if refused else "",
    )
    return reply_at_once(context, result)


def list_transactions(
    store: TransactionStore, event: ListTransactions, context: EventContext
) -> TransactionDecision:
    """List the ids that pass all filters; INVALID_REGULAR_EXPRESSION for an invalid pattern."""
    try:
        named = patterns.matching(event.pattern, store.transactions) if event.pattern else None
    except patterns.InvalidPattern:
        return reply_at_once(context, ListTransactionsReply(ErrorCode.invalid_regular_expression))
    unknown = tuple(sorted(event.states - STATE_BY_LABEL.keys()))
    states = {STATE_BY_LABEL[label] for label in event.states - set(unknown)}

    def is_listed(metadata: TransactionMetadata) -> bool:
        if event.producer_ids and metadata.producer_id not in event.producer_ids:
            return False
        if event.states and metadata.state not in states:
            return False
        open_ms = context.now_ms - metadata.start_timestamp_ms
        if event.duration_ms >= 0 and open_ms <= event.duration_ms:
            return False
        return named is None or metadata.transactional_id in named

    listed = tuple(
        ListedTransaction(id_, metadata.producer_id, metadata.state, _expiry_ms(store, metadata))
        for id_, metadata in sorted(store.transactions.items())
        if is_listed(metadata)
    )
    return reply_at_once(context, ListTransactionsReply(ErrorCode.none, listed, unknown))


def find_deleted(
    store: TransactionStore, event: FindDeletedTopics, context: EventContext
) -> TransactionDecision:
    """Return the deleted topics that a transaction names whose markers are owed, or will be."""
    named = {
        partition.topic
        for metadata in store.transactions.values()
        for partition in metadata.partitions
    }
    return reply_at_once(context, DeletedTopicsReply(event.names & named))


def _expiry_ms(store: TransactionStore, metadata: TransactionMetadata) -> int:
    if not metadata.state.is_at_rest:
        return NEVER_MS
    return metadata.last_update_timestamp_ms + store.config.id_expiration_ms
