"""EndTxn: commit or abort, under TV1 and TV2, for clients and for the coordinator's own timeouts.

The answer goes out when PREPARE is committed; markers and COMPLETE follow (INV-4). A retry that
finds PREPARE waits for COMPLETE and then hears the same (D7).

TV2 (KIP-890): the epoch says which transaction is meant. With the epoch before the current one it
is a retry, provided that the end which stands was one of TV2 and so bumped the epoch:

    state           abort retry  abort current  commit retry  commit current
    Empty           FENCED       bump           FENCED        INVALID_TXN_STATE
    CompleteAbort   NONE         bump           INVALID       INVALID_TXN_STATE
    CompleteCommit  INVALID      bump           NONE          INVALID_TXN_STATE

The current epoch in a prepared state is the producer's next transaction, which it was told of when
PREPARE was committed; Kafka fences it, we wait for COMPLETE and then answer by the table.

An end under TV1 bumps nothing. If that stands, the epoch before the current one is that of a
producer which a takeover fenced. Kafka takes its request for a retry and tells it the successor's
producer id and epoch, so that its next record lands in the successor's transaction (INV-5).

TV1: all transactions of a producer share one epoch, so a delayed EndTxn can hit the next one. What
the wire lets us see:

- A request that had to wait is for the transaction that it met. If another is open by then:
  CONCURRENT_TRANSACTIONS.
- A client that lost patience ends its transaction again on a newer connection and never returns to
  the old one. So an EndTxn on a connection older than one that has ended a transaction of this
  producer is late: INVALID_TXN_STATE. Requests that add partitions are held to the same rule.
"""

from dataclasses import replace

from oncelog.coordinator.shard import NOTHING, Decision, EventContext, answer, replies_to
from oncelog.core.errors import ErrorCode
from oncelog.core.limits import PRODUCER_EPOCH_EXHAUSTED
from oncelog.transaction import notices
from oncelog.transaction.events import (
    AbortTimedOut,
    AddPartitions,
    EndTxn,
    EndTxnResult,
    Parked,
    TransactionDecision,
)
from oncelog.transaction.states import TransactionMetadata, TransactionState
from oncelog.transaction.store import Proposal, TransactionStore
from oncelog.transaction.transitions import (
    EPOCH_BUMP_VERSION,
    coming_ids,
    ending,
    prepare,
    prepare_fence,
)

_S = TransactionState
_COMMITTED = frozenset({_S.PREPARE_COMMIT, _S.COMPLETE_COMMIT})


def decide(store: TransactionStore, event: EndTxn, context: EventContext) -> TransactionDecision:
    """Decide an EndTxn that has just arrived, or that waited (`event.parked`)."""
    if not event.transactional_id:
        return answer(context, EndTxnResult(ErrorCode.invalid_request))
    metadata = store.transactions.get(event.transactional_id)
    if metadata is None:
        return answer(context, EndTxnResult(ErrorCode.invalid_producer_id_mapping))
    if event.transaction_version >= EPOCH_BUMP_VERSION:
        return _decide_tv2(store, metadata, event, context)
    return _decide_tv1(store, metadata, event, context)


def park(store: TransactionStore, event: EndTxn) -> EndTxn:
    """Note in a waiting request which transaction it found."""
    return replace(event, parked=Parked(store.volatile[event.transactional_id].ordinal))


def is_late(store: TransactionStore, event: EndTxn | AddPartitions) -> bool:
    """Say whether a TV1 request comes on a connection that its client has given up.

    That is so once an EndTxn of the same producer came on a newer connection. A client that made
    its connection anew has a newer one, and connection 0 is unknown.
    """
    return 0 < event.connection < store.volatile[event.transactional_id].end_connection


def _decide_tv1(
    store: TransactionStore,
    metadata: TransactionMetadata,
    event: EndTxn,
    context: EventContext,
) -> TransactionDecision:
    if metadata.producer_id != event.producer_id:
        return answer(context, EndTxnResult(ErrorCode.invalid_producer_id_mapping))
    if metadata.producer_epoch != event.producer_epoch:
        return answer(context, EndTxnResult(ErrorCode.producer_fenced))
    if metadata.state is _S.EMPTY:
        return answer(context, EndTxnResult(ErrorCode.invalid_txn_state))
    volatile = store.volatile[event.transactional_id]
    if metadata.state is not _S.ONGOING:
        if (metadata.state in _COMMITTED) != event.commit:
            return answer(context, EndTxnResult(ErrorCode.invalid_txn_state))
        volatile.end_connection = max(volatile.end_connection, event.connection)
        if metadata.state.is_prepared:
            return _wait(store, event)
        return answer(context, EndTxnResult(ErrorCode.none))
    if event.parked is not None and event.parked.ordinal != volatile.ordinal:
        return answer(context, EndTxnResult(ErrorCode.concurrent_transactions))
    if is_late(store, event):
        return answer(context, EndTxnResult(ErrorCode.invalid_txn_state))
    volatile.end_connection = max(volatile.end_connection, event.connection)
    prepared = prepare(store, metadata, event.commit, event.transaction_version, context)
    return _end(store, prepared, context, tells_ids=False)


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
        return answer(context, EndTxnResult(ErrorCode.invalid_producer_id_mapping))
    if not is_current and not (is_retry and metadata.state.is_complete):
        return answer(context, EndTxnResult(ErrorCode.producer_fenced))
    if is_retry:
        if (metadata.state in _COMMITTED) != event.commit:
            return answer(context, EndTxnResult(ErrorCode.invalid_txn_state))
        ids = (metadata.producer_id, metadata.producer_epoch)
        return answer(context, EndTxnResult(ErrorCode.none, *ids))
    if metadata.state is not _S.ONGOING and event.commit:
        return answer(context, EndTxnResult(ErrorCode.invalid_txn_state))
    prepared = prepare(store, metadata, event.commit, event.transaction_version, context)
    return _end(store, prepared, context, tells_ids=True)


def _decide_tv2_prepared(
    store: TransactionStore,
    metadata: TransactionMetadata,
    event: EndTxn,
    context: EventContext,
    is_retry: bool,
) -> TransactionDecision:
    """While markers are under way: wait as a retry, or as the end of the next transaction."""
    if is_retry:
        if (metadata.state in _COMMITTED) != event.commit:
            return answer(context, EndTxnResult(ErrorCode.invalid_txn_state))
        return _wait(store, event)
    if (event.producer_id, event.producer_epoch) == coming_ids(metadata):
        return _wait(store, event)
    if metadata.producer_id != event.producer_id:
        return answer(context, EndTxnResult(ErrorCode.invalid_producer_id_mapping))
    return answer(context, EndTxnResult(ErrorCode.producer_fenced))


def _is_current(metadata: TransactionMetadata, event: EndTxn) -> bool:
    current = (metadata.producer_id, metadata.producer_epoch)
    return (event.producer_id, event.producer_epoch) == current


def _is_retry(metadata: TransactionMetadata, event: EndTxn) -> bool:
    """The request bears the epoch before the last bump, also across a change of the producer id."""
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
    prepared: Proposal | ErrorCode,
    context: EventContext,
    tells_ids: bool,
) -> TransactionDecision:
    """Start the ending, and answer once PREPARE is committed."""
    if isinstance(prepared, ErrorCode):
        return answer(context, EndTxnResult(prepared))
    ids = coming_ids(prepared.after) if tells_ids else ()
    replies = replies_to(context.token, EndTxnResult(ErrorCode.none, *ids))
    return ending(store, prepared, context.now_ms, replies)


def abort_timed_out(
    store: TransactionStore, event: AbortTimedOut, context: EventContext
) -> TransactionDecision:
    """Fence and abort a transaction that is open beyond its timeout, if it still is (INV-5).

    The sweep saw it earlier: the request that it waited behind may have ended it, and even begun
    another.
    """
    metadata = store.transactions.get(event.transactional_id)
    if metadata is None or not metadata.is_overdue(context.now_ms):
        return NOTHING
    if (metadata.producer_id, metadata.producer_epoch) != (event.producer_id, event.producer_epoch):
        return NOTHING
    cause = f"transaction timeout of {metadata.timeout_ms} ms"
    prepared = prepare_fence(store, metadata, context, cause)
    if isinstance(prepared, ErrorCode):
        return NOTHING
    begun = ending(store, prepared, context.now_ms)
    told = notices.aborted(metadata, prepared.after, cause)
    return begun._replace(effects=(*begun.effects, told))
