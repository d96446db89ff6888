"""Decides AddPartitionsToTxn and AddOffsetsToTxn: partitions join a transaction.

The first partition begins the transaction. A verify-only request changes nothing.

While the previous transaction is still ending, an add waits (D7). Producer id and epoch are checked
only after that: under TV2 the producer may use the id that COMPLETE assigns (KAFKA-18660).
"""

from dataclasses import replace

from oncelog.coordinator.shard import Decision, EventContext, replies_to, reply_at_once
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.core.limits import TRANSACTION_PARTITIONS_COUNT_MAX
from oncelog.transaction.events import (
    AddPartitions,
    AddPartitionsReply,
    Parked,
    TransactionDecision,
)
from oncelog.transaction.states import TransactionMetadata, TransactionState, moved
from oncelog.transaction.store import Proposal, TransactionStore
from oncelog.transaction.transitions import EPOCH_BUMP_VERSION


def decide(
    store: TransactionStore, event: AddPartitions, context: EventContext
) -> TransactionDecision:
    """Decide a request to add partitions, or to verify them."""
    if not event.transactional_id:
        return refuse(store, event, ErrorCode.invalid_request, context)
    metadata = store.transactions.get(event.transactional_id)
    if metadata is None:
        return refuse(store, event, ErrorCode.invalid_producer_id_mapping, context)
    if event.verify_only:
        return _verify(store, metadata, event, context)
    if metadata.state.is_prepared and (event.parked is None or not event.parked.met_open):
        if not event.may_wait:
            return refuse(store, event, ErrorCode.concurrent_transactions, context)
        resume = park(store, event) if event.parked is None else event
        return Decision(id=event.transactional_id, wait=True, resume=resume)
    error = _identity_error(metadata, event)
    if error is None and event.parked is not None:
        error = _late_error(store, metadata, event.parked)
    if error is not None:
        return refuse(store, event, error, context)
    is_ongoing = metadata.state is TransactionState.ONGOING
    if is_ongoing and metadata.partitions.issuperset(event.partitions):
        return refuse(store, event, ErrorCode.none, context)
    partitions = metadata.partitions.union(event.partitions)
    if len(partitions) > TRANSACTION_PARTITIONS_COUNT_MAX:
        return refuse(store, event, ErrorCode.invalid_request, context)
    return _add(store, metadata, event, partitions, context)


def park(store: TransactionStore, event: AddPartitions) -> AddPartitions:
    """Record in a waiting request which transaction it found.

    The request belongs to that one if it is open, otherwise to the next.
    """
    metadata = store.transactions.get(event.transactional_id)
    met_open = metadata is not None and metadata.state is TransactionState.ONGOING
    ordinal = store.volatile[event.transactional_id].ordinal
    return replace(event, parked=Parked(ordinal, met_open=met_open))


def refuse(
    store: TransactionStore, event: AddPartitions, error: ErrorCode, context: EventContext
) -> TransactionDecision:
    """Answer every partition of a request with one error, or with NONE."""
    return reply_at_once(context, _result(store, event, error))


def _result(store: TransactionStore, event: AddPartitions, error: ErrorCode) -> AddPartitionsReply:
    each = tuple([(partition, error) for partition in event.partitions])
    return AddPartitionsReply(error, each, store.coordinator_epoch)


def _add(
    store: TransactionStore,
    metadata: TransactionMetadata,
    event: AddPartitions,
    partitions: frozenset[TopicPartition],
    context: EventContext,
) -> TransactionDecision:
    begins = metadata.state is not TransactionState.ONGOING
    after = moved(
        metadata,
        TransactionState.ONGOING,
        context.now_ms,
        partitions=partitions,
        start_timestamp_ms=context.now_ms if begins else metadata.start_timestamp_ms,
        # Like Kafka TV1 is logged as 0, as only TV2 bumps the epoch.
        client_transaction_version=EPOCH_BUMP_VERSION
        if event.transaction_version >= EPOCH_BUMP_VERSION
        else 0,
    )
    last = store.volatile[metadata.transactional_id].last_producer_epoch
    return Decision(
        store.propose(context.metadata, Proposal(after, last)),
        replies_to(context.token, _result(store, event, ErrorCode.none)),
        id=metadata.transactional_id,
    )


def _verify(
    store: TransactionStore,
    metadata: TransactionMetadata,
    event: AddPartitions,
    context: EventContext,
) -> TransactionDecision:
    """Return which partitions the transaction contains (KIP-890).

    It never waits: the log checks again when it appends.
    """
    error = _identity_error(metadata, event)
    if error is None and metadata.state.is_prepared:
        error = ErrorCode.concurrent_transactions
    if error is not None:
        return refuse(store, event, error, context)
    each = tuple(
        (
            partition,
            ErrorCode.none if partition in metadata.partitions else ErrorCode.transaction_abortable,
        )
        for partition in event.partitions
    )
    reply = AddPartitionsReply(ErrorCode.none, each, store.coordinator_epoch)
    return reply_at_once(context, reply)


def _identity_error(metadata: TransactionMetadata, event: AddPartitions) -> ErrorCode | None:
    """Return the error of a producer that does not own the id at its current epoch (INV-5)."""
    if metadata.producer_id != event.producer_id:
        return ErrorCode.invalid_producer_id_mapping
    if metadata.producer_epoch != event.producer_epoch:
        return ErrorCode.producer_fenced
    return None


def _late_error(
    store: TransactionStore, metadata: TransactionMetadata, parked: Parked
) -> ErrorCode | None:
    """Refuse an add that waited while the open transaction it found was ended (D7).

    It must not begin or join another transaction: the producer decides whether to ask again. Under
    TV2 the epoch, checked before, shows the same.
    """
    if not parked.met_open:
        return None
    ordinal = store.volatile[metadata.transactional_id].ordinal
    is_same = ordinal == parked.ordinal and metadata.state is TransactionState.ONGOING
    return None if is_same else ErrorCode.concurrent_transactions
