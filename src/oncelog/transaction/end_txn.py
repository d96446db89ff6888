"""Decides EndTxn: commits or aborts, for clients and for transaction timeouts.

The reply is sent when PREPARE is committed; markers and COMPLETE follow (INV-4). A retry that finds
PREPARE waits for COMPLETE and then gets the same reply (D7).

TV2 (KIP-890): the epoch identifies the transaction. A request with the epoch before the current one
is a retry, if the last end was under TV2 and so bumped the epoch:

    state           abort retry  abort current  commit retry  commit current
    Empty           FENCED       bump           FENCED        INVALID_TXN_STATE
    CompleteAbort   NONE         bump           INVALID       INVALID_TXN_STATE
    CompleteCommit  INVALID      bump           NONE          INVALID_TXN_STATE

The current epoch in a prepared state means the producer's next transaction, whose epoch the reply
to PREPARE carried; Kafka fences it, we wait for COMPLETE and then reply by the table.

An end under TV1 bumps no epoch. After it, the epoch before the current one belongs to a producer
that a takeover fenced. Kafka treats its request as a retry and returns the successor's producer id
and epoch, so that its next record joins the successor's transaction; we fence it (INV-5).

TV1: all transactions of a producer share one epoch, so a delayed EndTxn can end the next one. Only
what is proved late is refused:

- A request that had to wait belongs to the transaction that it found. If another is open
  afterwards, the reply is CONCURRENT_TRANSACTIONS.
- A request whose connection was closed before it was decided is dropped (D7).

The age of a connection proves nothing: a client may use several, and return to any of them. So an
EndTxn that comes late on an open connection ends the open transaction, as in Kafka.
"""

from dataclasses import replace

from oncelog.coordinator.shard import NOTHING, Decision, EventContext, replies_to, reply_at_once
from oncelog.core.errors import ErrorCode
from oncelog.core.limits import PRODUCER_EPOCH_EXHAUSTED
from oncelog.transaction import notices
from oncelog.transaction.events import (
    AbortTimedOut,
    EndTxn,
    EndTxnReply,
    Parked,
    TransactionDecision,
)
from oncelog.transaction.life import OWN_ABORT
from oncelog.transaction.states import TransactionMetadata, TransactionState
from oncelog.transaction.store import Proposal, TransactionStore
from oncelog.transaction.transitions import (
    EPOCH_BUMP_VERSION,
    coming_ids,
    ending,
    needs_producer_id,
    prepare,
    prepare_fence,
)

_S = TransactionState
_COMMITTED = frozenset({_S.PREPARE_COMMIT, _S.COMPLETE_COMMIT})


def decide(store: TransactionStore, event: EndTxn, context: EventContext) -> TransactionDecision:
    """Decide an EndTxn, either new or after it waited (`event.parked`)."""
    if not event.transactional_id:
        return reply_at_once(context, EndTxnReply(ErrorCode.invalid_request))
    metadata = store.transactions.get(event.transactional_id)
    if metadata is None:
        return reply_at_once(context, EndTxnReply(ErrorCode.invalid_producer_id_mapping))
    if event.transaction_version >= EPOCH_BUMP_VERSION:
        return _decide_tv2(store, metadata, event, context)
    return _decide_tv1(store, metadata, event, context)


def park(store: TransactionStore, event: EndTxn) -> EndTxn:
    """Record in a waiting request which transaction it found."""
    return replace(event, parked=Parked(store.volatile[event.transactional_id].ordinal))


def _decide_tv1(
    store: TransactionStore,
    metadata: TransactionMetadata,
    event: EndTxn,
    context: EventContext,
) -> TransactionDecision:
    if metadata.producer_id != event.producer_id:
        return reply_at_once(context, EndTxnReply(ErrorCode.invalid_producer_id_mapping))
    if metadata.producer_epoch != event.producer_epoch:
        return reply_at_once(context, EndTxnReply(ErrorCode.producer_fenced))
    if metadata.state is _S.EMPTY:
        return reply_at_once(context, EndTxnReply(ErrorCode.invalid_txn_state))
    if metadata.state is not _S.ONGOING:
        if (metadata.state in _COMMITTED) != event.commit:
            return reply_at_once(context, EndTxnReply(ErrorCode.invalid_txn_state))
        if metadata.state.is_prepared:
            return _wait(store, event)
        return reply_at_once(context, EndTxnReply(ErrorCode.none))
    ordinal = store.volatile[event.transactional_id].ordinal
    if event.parked is not None and event.parked.ordinal != ordinal:
        return reply_at_once(context, EndTxnReply(ErrorCode.concurrent_transactions))
    prepared = prepare(store, metadata, event.commit, event.transaction_version, context)
    return _end(store, prepared, event, context, tells_ids=False)


def _decide_tv2(
    store: TransactionStore,
    metadata: TransactionMetadata,
    event: EndTxn,
    context: EventContext,
) -> TransactionDecision:
    is_current = _is_current(metadata, event)
    is_retry = _is_retry(metadata, event)
    if metadata.state.is_prepared:
        return _decide_tv2_prepared(store, metadata, event, context, is_retry)
    if metadata.producer_id != event.producer_id and not is_retry:
        return reply_at_once(context, EndTxnReply(ErrorCode.invalid_producer_id_mapping))
    if not is_current and not (is_retry and metadata.state.is_complete):
        return reply_at_once(context, EndTxnReply(ErrorCode.producer_fenced))
    if is_retry:
        if (metadata.state in _COMMITTED) != event.commit:
            return reply_at_once(context, EndTxnReply(ErrorCode.invalid_txn_state))
        ids = (metadata.producer_id, metadata.producer_epoch)
        return reply_at_once(context, EndTxnReply(ErrorCode.none, *ids))
    if metadata.state is not _S.ONGOING and event.commit:
        return reply_at_once(context, EndTxnReply(ErrorCode.invalid_txn_state))
    prepared = prepare(store, metadata, event.commit, event.transaction_version, context)
    return _end(store, prepared, event, context, tells_ids=True)


def _decide_tv2_prepared(
    store: TransactionStore,
    metadata: TransactionMetadata,
    event: EndTxn,
    context: EventContext,
    is_retry: bool,
) -> TransactionDecision:
    """Let a request wait for the markers, as a retry or as the end of the next transaction."""
    if is_retry:
        if (metadata.state in _COMMITTED) != event.commit:
            return reply_at_once(context, EndTxnReply(ErrorCode.invalid_txn_state))
        return _wait(store, event)
    if (event.producer_id, event.producer_epoch) == coming_ids(metadata):
        return _wait(store, event)
    if metadata.producer_id != event.producer_id:
        return reply_at_once(context, EndTxnReply(ErrorCode.invalid_producer_id_mapping))
    return reply_at_once(context, EndTxnReply(ErrorCode.producer_fenced))


def _is_current(metadata: TransactionMetadata, event: EndTxn) -> bool:
    current = (metadata.producer_id, metadata.producer_epoch)
    return (event.producer_id, event.producer_epoch) == current


def _is_retry(metadata: TransactionMetadata, event: EndTxn) -> bool:
    """Whether the request has the epoch before the last bump, even of the previous producer id."""
    if metadata.client_transaction_version < EPOCH_BUMP_VERSION:
        return False
    if event.producer_id == metadata.producer_id:
        return metadata.producer_epoch == event.producer_epoch + 1
    return (
        event.producer_id == metadata.previous_producer_id
        and event.producer_epoch == PRODUCER_EPOCH_EXHAUSTED
        and metadata.producer_epoch == 0
    )


def _wait(store: TransactionStore, event: EndTxn) -> TransactionDecision:
    resume = park(store, event) if event.parked is None else event
    return Decision(id=event.transactional_id, wait=True, resume=resume)


def _end(
    store: TransactionStore,
    prepared: Proposal | None,
    event: EndTxn,
    context: EventContext,
    tells_ids: bool,
) -> TransactionDecision:
    """Append PREPARE, and reply once it is committed."""
    if prepared is None:
        return needs_producer_id(event)
    if prepared.after.state is _S.PREPARE_ABORT:
        prepared = Proposal(prepared.after, prepared.last_producer_epoch, OWN_ABORT)
    ids = coming_ids(prepared.after) if tells_ids else ()
    replies = replies_to(context.token, EndTxnReply(ErrorCode.none, *ids))
    return ending(store, prepared, context, replies)


def abort_timed_out(
    store: TransactionStore, event: AbortTimedOut, context: EventContext
) -> TransactionDecision:
    """Fence and abort a transaction that is open beyond its timeout, if it still is (INV-5).

    The event waited since the sweep: another request may have ended the transaction meanwhile, and
    even begun the next.
    """
    metadata = store.transactions.get(event.transactional_id)
    if metadata is None or not metadata.is_overdue(context.now_ms):
        return NOTHING
    if (metadata.producer_id, metadata.producer_epoch) != (event.producer_id, event.producer_epoch):
        return NOTHING
    cause = f"transaction timeout of {metadata.timeout_ms} ms"
    prepared = prepare_fence(store, metadata, context, cause)
    if prepared is None:
        return needs_producer_id(event)
    begun = ending(store, prepared, context)
    told = notices.timed_out(metadata, prepared.after, cause)
    return begun._replace(effects=(*begun.effects, told))
