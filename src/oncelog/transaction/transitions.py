"""Defines the moves that end a transaction, shared by EndTxn, fencing and timeouts.

TV1 changes the producer's epoch only to fence it. TV2 bumps it with every PREPARE (KIP-890), so
that each transaction has its own epoch; when the epochs of a producer id are exhausted, PREPARE
names a fresh producer id and COMPLETE switches to it, with epoch 0.
"""

from dataclasses import replace

from oncelog.coordinator.shard import Decision, EventContext, Reply
from oncelog.core.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId
from oncelog.core.limits import PRODUCER_EPOCH_MAX
from oncelog.transaction.events import (
    AbortTimedOut,
    EndTxn,
    InitProducerId,
    TransactionDecision,
    TransactionReply,
)
from oncelog.transaction.states import TransactionMetadata, TransactionState, moved
from oncelog.transaction.store import Proposal, TransactionStore

EPOCH_BUMP_VERSION = 2
"""From this `transaction.version` on, ending a transaction bumps the epoch."""


def prepare(
    store: TransactionStore,
    metadata: TransactionMetadata,
    commit: bool,
    version: int,
    context: EventContext,
) -> Proposal | None:
    """Plan the end that a client requests, under TV1 or TV2.

    None if that needs a fresh producer id (`needs_producer_id`).
    """
    state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
    volatile = store.volatile[metadata.transactional_id]
    if version < EPOCH_BUMP_VERSION:
        plain = moved(
            metadata,
            state,
            context.now_ms,
            next_producer_id=NO_PRODUCER_ID,
            client_transaction_version=0,
        )
        return Proposal(plain, volatile.last_producer_epoch)
    next_producer_id = NO_PRODUCER_ID
    if metadata.is_epoch_exhausted:
        if context.fresh_producer_id is None:
            return None
        next_producer_id = context.fresh_producer_id
    begins = metadata.state.is_at_rest
    bumped = moved(
        metadata,
        state,
        context.now_ms,
        producer_epoch=_next_epoch(metadata),
        next_producer_id=next_producer_id,
        start_timestamp_ms=context.now_ms if begins else metadata.start_timestamp_ms,
        client_transaction_version=EPOCH_BUMP_VERSION,
    )
    return Proposal(bumped, metadata.producer_epoch)


def prepare_fence(
    store: TransactionStore, metadata: TransactionMetadata, context: EventContext, cause: str
) -> Proposal | None:
    """Plan the coordinator's own abort, which fences the producer of an open transaction (INV-5).

    One bump does both, also under TV2 (KAFKA-19367). If the append fails, no state changes: the
    next attempt uses the same epoch, which no client has seen. The last epoch is not bumped further
    (KAFKA-20090). None if that needs a fresh producer id.
    """
    fencing = moved(metadata, TransactionState.PREPARE_EPOCH_FENCE, context.now_ms)
    version = context.metadata.transaction_version
    if version >= EPOCH_BUMP_VERSION:
        ending = prepare(store, fencing, commit=False, version=version, context=context)
        return ending and replace(ending, cause=cause)
    aborted = moved(
        fencing,
        TransactionState.PREPARE_ABORT,
        context.now_ms,
        producer_epoch=_next_epoch(metadata),
        next_producer_id=NO_PRODUCER_ID,
        client_transaction_version=0,
    )
    return Proposal(aborted, NO_PRODUCER_EPOCH, cause)


def complete(metadata: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """Return a prepared transaction's metadata after every partition has its marker."""
    committed = metadata.state is TransactionState.PREPARE_COMMIT
    state = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
    is_used_up = metadata.next_producer_id != NO_PRODUCER_ID
    return moved(
        metadata,
        state,
        now_ms,
        partitions=frozenset(),
        producer_id=metadata.next_producer_id if is_used_up else None,
        producer_epoch=ProducerEpoch(0) if is_used_up else None,
        next_producer_id=NO_PRODUCER_ID,
    )


def needs_producer_id(event: EndTxn | InitProducerId | AbortTimedOut) -> TransactionDecision:
    """Return the decision to decide the event again, with a fresh producer id."""
    return Decision(id=event.transactional_id, wait=True, resume=event, needs_producer_id=True)


def ending(
    store: TransactionStore,
    prepared: Proposal,
    context: EventContext,
    replies: tuple[Reply[TransactionReply], ...] = (),
) -> TransactionDecision:
    """Return the decision that starts an end: PREPARE, then replies and markers.

    A transaction without partitions owes no marker, so PREPARE and COMPLETE go into one append.
    """
    id_ = prepared.after.transactional_id
    if prepared.after.partitions:
        markers = store.markers(prepared.after, prepared.after.partitions)
        return Decision(store.propose(context.metadata, prepared), replies, (markers,), id_)
    completed = complete(prepared.after, context.now_ms)
    both = (prepared, Proposal(completed, prepared.last_producer_epoch))
    return Decision(store.propose(context.metadata, *both), replies, id=id_)


def coming_ids(prepared: TransactionMetadata) -> tuple[ProducerId, ProducerEpoch]:
    """Return producer id and epoch of the transaction after a prepared one: TV2's reply."""
    if prepared.next_producer_id != NO_PRODUCER_ID:
        return prepared.next_producer_id, ProducerEpoch(0)
    return prepared.producer_id, prepared.producer_epoch


def complete_decision(
    store: TransactionStore, metadata: TransactionMetadata, context: EventContext
) -> TransactionDecision:
    """Return the decision that completes a prepared transaction."""
    last = store.volatile[metadata.transactional_id].last_producer_epoch
    proposal = Proposal(complete(metadata, context.now_ms), last)
    records = store.propose(context.metadata, proposal)
    return Decision(records, id=metadata.transactional_id)


def _next_epoch(metadata: TransactionMetadata) -> ProducerEpoch:
    return ProducerEpoch(min(metadata.producer_epoch + 1, PRODUCER_EPOCH_MAX))
