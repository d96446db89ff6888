"""InitProducerId.

A producer takes a transactional id over, or bumps its own epoch (KIP-98, KIP-360).

At rest, the epoch is bumped, or the id moves to a fresh producer id when its epochs are used up. An
open transaction is fenced and aborted first (INV-5). Kafka then answers CONCURRENT_TRANSACTIONS and
has the client try again; we let the request wait for the end of the abort and answer in one go
(D7). If another producer that starts has asked meanwhile, the newest of them gets the id and the
others PRODUCER_FENCED.

Only a producer that starts supersedes those that wait. A request with an expected producer id and
epoch is judged by the state that it finds at its turn, so it needs no ticket: behind a takeover it
is fenced, and before one it is superseded. A request that cannot be granted whatever it waits for
(`is_hopeless`) is refused at once and changes nothing.

Stricter than Kafka in one point: with an expected epoch that is not the current one, an open
transaction is not aborted. A delayed InitProducerId of a superseded producer would end its
successor's transaction otherwise (INV-5).
"""

from dataclasses import replace

from oncelog.coordinator.shard import Decision, EventContext, answer, replies_to
from oncelog.core.errors import ErrorCode, require
from oncelog.core.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId
from oncelog.core.limits import PRODUCER_EPOCH_EXHAUSTED
from oncelog.transaction import notices
from oncelog.transaction.events import (
    InitProducerId,
    InitProducerIdResult,
    Parked,
    TransactionDecision,
)
from oncelog.transaction.states import NO_TIMESTAMP_MS, TransactionMetadata, TransactionState, moved
from oncelog.transaction.store import Proposal, TransactionStore
from oncelog.transaction.transitions import coming_ids, ending, prepare_fence


def decide(
    store: TransactionStore, event: InitProducerId, context: EventContext
) -> TransactionDecision:
    """Decide an InitProducerId that has just arrived, or that waited (`event.parked`)."""
    error = _refusal(store, event)
    if error is not None:
        return answer(context, InitProducerIdResult(error))
    metadata = store.transactions.get(event.transactional_id)
    if metadata is None:
        store.leave_init(context.token)
        return _create(store, event, context)
    has_aborted = event.parked is not None and event.parked.has_aborted
    if _is_superseded(store, metadata, event) and not has_aborted:
        return answer(context, InitProducerIdResult(ErrorCode.producer_fenced))
    if event.parked is None:
        event = park(store, event, context)
    if metadata.state.is_prepared:
        return Decision(id=event.transactional_id, wait=True, resume=event)
    ticket = 0 if event.parked is None else event.parked.ticket
    if not store.is_newest_init(event.transactional_id, ticket):
        store.leave_init(context.token)
        return answer(context, InitProducerIdResult(ErrorCode.producer_fenced))
    if metadata.state is TransactionState.ONGOING:
        return _fence(store, metadata, event, context)
    store.leave_init(context.token)
    return _take_over(store, metadata, event, has_aborted, context)


def park(store: TransactionStore, event: InitProducerId, context: EventContext) -> InitProducerId:
    """Note in a waiting request what it found, and its turn among those that compete for the id."""
    token = None if _is_expecting(event) else context.token
    ticket = store.enter_init(event.transactional_id, token)
    ordinal = store.volatile[event.transactional_id].ordinal
    return replace(event, parked=Parked(ordinal, ticket))


def is_hopeless(store: TransactionStore, event: InitProducerId) -> bool:
    """Say whether nothing that the request could wait for can still make it succeed.

    What is under way does not matter: clients are told only of epochs that are committed, so an
    epoch that is neither the current, the coming nor the last one was fenced.
    """
    if _refusal(store, event) is not None:
        return True
    metadata = store.transactions.get(event.transactional_id)
    return metadata is not None and _is_superseded(store, metadata, event)


def _is_superseded(
    store: TransactionStore, metadata: TransactionMetadata, event: InitProducerId
) -> bool:
    """The producer has an id and epoch that no end of this state makes valid (INV-5)."""
    if not _is_expecting(event) or _expects_current(metadata, event):
        return False
    coming = coming_ids(metadata) if metadata.state.is_prepared else None
    is_coming = (event.producer_id, event.producer_epoch) == coming
    return not is_coming and not _expects_last(store, metadata, event)


def _refusal(store: TransactionStore, event: InitProducerId) -> ErrorCode | None:
    """What is wrong with the request itself, whatever the state."""
    if not event.transactional_id:
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
    """Give a new id its first producer id, at epoch 0, whatever the producer says it had before."""
    fresh = context.fresh_producer_id()
    if fresh is None:
        return answer(context, InitProducerIdResult(ErrorCode.coordinator_load_in_progress))
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
    """Abort the open transaction under a bumped epoch, and come back when it is over."""
    current = (metadata.producer_id, metadata.producer_epoch)
    if _is_expecting(event) and (event.producer_id, event.producer_epoch) != current:
        store.leave_init(context.token)
        return answer(context, InitProducerIdResult(ErrorCode.producer_fenced))
    cause = notices.takeover(event, is_own=_is_expecting(event))
    prepared = prepare_fence(store, metadata, context, cause)
    if isinstance(prepared, ErrorCode):
        store.leave_init(context.token)
        return answer(context, InitProducerIdResult(prepared))
    parked = event.parked
    require(parked is not None, "an InitProducerId that fences has been parked")
    assert parked is not None
    begun = ending(store, prepared, context.now_ms)
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
    """Bump the epoch of an id at rest, or repeat the answer that got lost (KIP-360).

    An epoch that is expected is the current or the last one here: others were refused before.
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
        fresh = context.fresh_producer_id()
        if fresh is None:
            return answer(context, InitProducerIdResult(ErrorCode.coordinator_load_in_progress))
        first = ProducerEpoch(0)
        after = _emptied(metadata, event, context.now_ms, producer_id=fresh, producer_epoch=first)
    granted = _grant(store, Proposal(after, last, cause), context)
    if is_expecting or has_aborted:
        return granted
    return granted._replace(effects=(notices.fenced(metadata, after, cause),))


def _is_expecting(event: InitProducerId) -> bool:
    """The producer says which (producer id, epoch) it has; -1 and -1 is a producer that starts."""
    return event.producer_id != NO_PRODUCER_ID


def _expects_current(metadata: TransactionMetadata, event: InitProducerId) -> bool:
    current = (metadata.producer_id, metadata.producer_epoch)
    return (event.producer_id, event.producer_epoch) == current


def _expects_last(
    store: TransactionStore, metadata: TransactionMetadata, event: InitProducerId
) -> bool:
    """Recognise a retry.

    The epoch before the last bump, of this producer id or of a used up one before it.
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
    result = InitProducerIdResult(ErrorCode.none, after.producer_id, after.producer_epoch)
    return Decision(
        store.propose(proposal), replies_to(context.token, result), id=after.transactional_id
    )
