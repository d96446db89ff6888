"""Decides InitProducerId: a producer takes over a transactional id or bumps its own epoch.

Sources: KIP-98, KIP-360. Without an open transaction, the epoch is bumped, or the id gets a fresh
producer id when its epochs are exhausted. An open transaction is fenced and aborted first (INV-5).
Kafka then returns CONCURRENT_TRANSACTIONS and the client retries; we let the request wait for the
end of the abort and reply once (D7). If several starting producers wait, the newest gets the id and
the others PRODUCER_FENCED.

Only a starting producer supersedes those that wait. A request with an expected producer id and
epoch is decided by the state after its wait, so it needs no ticket: after a takeover it is fenced,
before one it is superseded. A request that no state can satisfy (`is_hopeless`) is refused at once
and changes nothing.

Stricter than Kafka in one point: with an expected epoch that is not the current one, an open
transaction is not aborted. Otherwise a delayed InitProducerId of a superseded producer would end
its successor's transaction (INV-5).
"""

from dataclasses import replace

from oncelog.coordinator.shard import Decision, EventContext, replies_to, reply_at_once
from oncelog.core.errors import ErrorCode, require
from oncelog.core.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId
from oncelog.core.limits import PRODUCER_EPOCH_EXHAUSTED
from oncelog.transaction import notices
from oncelog.transaction.events import (
    InitProducerId,
    InitProducerIdReply,
    Parked,
    TransactionDecision,
)
from oncelog.transaction.states import NO_TIMESTAMP_MS, TransactionMetadata, TransactionState, moved
from oncelog.transaction.store import Proposal, TransactionStore
from oncelog.transaction.transitions import (
    coming_ids,
    ending,
    needs_producer_id,
    prepare_fence,
)


def decide(
    store: TransactionStore, event: InitProducerId, context: EventContext
) -> TransactionDecision:
    """Decide an InitProducerId, either new or after it waited (`event.parked`)."""
    error = _refusal(store, event)
    if error is not None:
        return reply_at_once(context, InitProducerIdReply(error))
    metadata = store.transactions.get(event.transactional_id)
    if metadata is None:
        store.leave_init(context.token)
        return _create(store, event, context)
    has_aborted = event.parked is not None and event.parked.has_aborted
    if _is_superseded(store, metadata, event) and not has_aborted:
        return reply_at_once(context, InitProducerIdReply(ErrorCode.producer_fenced))
    if event.parked is None:
        event = park(store, event, context)
    if metadata.state.is_prepared:
        return Decision(id=event.transactional_id, wait=True, resume=event)
    ticket = 0 if event.parked is None else event.parked.ticket
    if not store.is_newest_init(event.transactional_id, ticket):
        store.leave_init(context.token)
        return reply_at_once(context, InitProducerIdReply(ErrorCode.producer_fenced))
    if metadata.state is TransactionState.ONGOING:
        return _fence(store, metadata, event, context)
    store.leave_init(context.token)
    return _take_over(store, metadata, event, has_aborted, context)


def park(store: TransactionStore, event: InitProducerId, context: EventContext) -> InitProducerId:
    """Record in a waiting request the state it found, and its ticket among competing requests."""
    token = None if _is_expecting(event) else context.token
    ticket = store.enter_init(event.transactional_id, token)
    ordinal = store.volatile[event.transactional_id].ordinal
    return replace(event, parked=Parked(ordinal, ticket))


def is_hopeless(store: TransactionStore, event: InitProducerId) -> bool:
    """Whether no state that the request could wait for can make it succeed.

    A transition under way does not matter: clients receive only committed epochs, so an epoch that
    is neither the current, the next nor the last one was fenced.
    """
    if _refusal(store, event) is not None:
        return True
    metadata = store.transactions.get(event.transactional_id)
    return metadata is not None and _is_superseded(store, metadata, event)


def _is_superseded(
    store: TransactionStore, metadata: TransactionMetadata, event: InitProducerId
) -> bool:
    """Whether the producer's id and epoch are valid in no state after this one (INV-5)."""
    if not _is_expecting(event) or _expects_current(metadata, event):
        return False
    coming = coming_ids(metadata) if metadata.state.is_prepared else None
    is_coming = (event.producer_id, event.producer_epoch) == coming
    return not is_coming and not _expects_last(store, metadata, event)


def _refusal(store: TransactionStore, event: InitProducerId) -> ErrorCode | None:
    """Return the error of the request itself, whatever the state."""
    has_epoch = event.producer_epoch != NO_PRODUCER_EPOCH
    if not event.transactional_id or has_epoch is not _is_expecting(event):
        return ErrorCode.invalid_request
    if event.enable_two_phase_commit:
        return ErrorCode.transactional_id_authorization_failed
    if event.keep_prepared:
        return ErrorCode.unsupported_version
    if not 0 < event.timeout_ms <= store.config.timeout_ms_max:
        return ErrorCode.invalid_transaction_timeout
    return None


def _create(
    store: TransactionStore, event: InitProducerId, context: EventContext
) -> TransactionDecision:
    """Assign a new id its first producer id, at epoch 0; what the producer expected is ignored."""
    fresh = context.fresh_producer_id
    if fresh is None:
        return needs_producer_id(event)
    new = TransactionMetadata(
        transactional_id=event.transactional_id,
        producer_id=fresh,
        producer_epoch=NO_PRODUCER_EPOCH,
        timeout_ms=event.timeout_ms,
    )
    after = moved(new, TransactionState.EMPTY, context.now_ms, producer_epoch=ProducerEpoch(0))
    return _grant(store, Proposal(after, NO_PRODUCER_EPOCH), context)


def _fence(
    store: TransactionStore,
    metadata: TransactionMetadata,
    event: InitProducerId,
    context: EventContext,
) -> TransactionDecision:
    """Abort the open transaction under a bumped epoch, and decide again afterwards."""
    current = (metadata.producer_id, metadata.producer_epoch)
    if _is_expecting(event) and (event.producer_id, event.producer_epoch) != current:
        return reply_at_once(context, InitProducerIdReply(ErrorCode.producer_fenced))
    cause = notices.takeover(event, is_own=_is_expecting(event))
    prepared = prepare_fence(store, metadata, context, cause)
    if prepared is None:
        return needs_producer_id(event)
    parked = event.parked
    require(parked is not None, "an InitProducerId that fences has been parked")
    assert parked is not None
    begun = ending(store, prepared, context)
    told = notices.aborted(metadata, prepared.after, cause)
    return begun._replace(
        effects=(*begun.effects, told),
        wait=True,
        resume=replace(event, parked=replace(parked, has_aborted=True)),
    )


def _take_over(
    store: TransactionStore,
    metadata: TransactionMetadata,
    event: InitProducerId,
    has_aborted: bool,
    context: EventContext,
) -> TransactionDecision:
    """Bump the epoch of an id without an open transaction, or repeat a lost reply (KIP-360).

    An expected epoch is the current or the last one here: others were refused before.
    """
    is_expecting = _is_expecting(event)
    if is_expecting and not has_aborted and not _expects_current(metadata, event):
        kept = store.volatile[metadata.transactional_id].last_producer_epoch
        again = _emptied(metadata, event, context.now_ms)
        return _grant(store, Proposal(again, kept), context)
    last = event.producer_epoch if is_expecting else NO_PRODUCER_EPOCH
    cause = notices.takeover(event, is_own=is_expecting)
    if not metadata.is_epoch_exhausted:
        epoch = ProducerEpoch(metadata.producer_epoch + 1)
        after = _emptied(metadata, event, context.now_ms, producer_epoch=epoch)
    else:
        fresh = context.fresh_producer_id
        if fresh is None:
            return needs_producer_id(event)
        first = ProducerEpoch(0)
        after = _emptied(metadata, event, context.now_ms, producer_id=fresh, producer_epoch=first)
    granted = _grant(store, Proposal(after, last, cause), context)
    if is_expecting or has_aborted:
        return granted
    return granted._replace(effects=(notices.fenced(metadata, after, cause),))


def _is_expecting(event: InitProducerId) -> bool:
    """Whether the producer sends its producer id and epoch; a starting one sends -1 and -1."""
    return event.producer_id != NO_PRODUCER_ID


def _expects_current(metadata: TransactionMetadata, event: InitProducerId) -> bool:
    current = (metadata.producer_id, metadata.producer_epoch)
    return (event.producer_id, event.producer_epoch) == current


def _expects_last(
    store: TransactionStore, metadata: TransactionMetadata, event: InitProducerId
) -> bool:
    """Whether this is a retry: it expects the epoch before the last bump.

    That epoch may belong to an exhausted previous producer id.
    """
    if event.producer_epoch != store.volatile[metadata.transactional_id].last_producer_epoch:
        return False
    is_used_up = event.producer_epoch >= PRODUCER_EPOCH_EXHAUSTED
    return event.producer_id == metadata.producer_id or (
        is_used_up and event.producer_id == metadata.previous_producer_id
    )


def _emptied(
    metadata: TransactionMetadata,
    event: InitProducerId,
    now_ms: int,
    producer_id: ProducerId | None = None,
    producer_epoch: ProducerEpoch | None = None,
) -> TransactionMetadata:
    return moved(
        metadata,
        TransactionState.EMPTY,
        now_ms,
        timeout_ms=event.timeout_ms,
        partitions=frozenset(),
        start_timestamp_ms=NO_TIMESTAMP_MS,
        next_producer_id=NO_PRODUCER_ID,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def _grant(
    store: TransactionStore, proposal: Proposal, context: EventContext
) -> TransactionDecision:
    after = proposal.after
    result = InitProducerIdReply(ErrorCode.none, after.producer_id, after.producer_epoch)
    return Decision(
        store.propose(context.metadata, proposal),
        replies_to(context.token, result),
        id=after.transactional_id,
    )
