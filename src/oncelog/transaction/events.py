"""Defines the events and replies of the transaction coordinator.

They are plain frozen values; the handlers make events from requests and responses from replies.
Results carry the newest error codes; handlers map them down for old versions (KIP-588:
PRODUCER_FENCED becomes INVALID_PRODUCER_EPOCH for InitProducerId < 4, EndTxn < 2, AddOffsetsToTxn
and AddPartitionsToTxn < 2).
"""

from collections.abc import Mapping
from typing import TypeAlias

from oncelog.coordinator.shard import Decision
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from oncelog.core.values import value
from oncelog.transaction.life import Outcomes, Step
from oncelog.transaction.states import NO_TIMESTAMP_MS, TransactionState

NEVER_MS = -1
"""An id with an open transaction does not expire."""

MARKER_REFUSALS = frozenset(
    {
        ErrorCode.invalid_producer_epoch,
        ErrorCode.transaction_coordinator_fenced,
    }
)
"""Errors of a leader that refuses a marker as older than its partition's state."""


@value
class Parked:
    """The state that a waiting request found on arrival (D7). Only the shard makes and reads it.

    `ordinal` is the transaction that it found, `met_open` whether that was still open; `ticket`
    orders competing InitProducerIds; `has_aborted` means that this InitProducerId has already
    aborted the transaction that it found open.
    """

    ordinal: int
    ticket: int = 0
    met_open: bool = False
    has_aborted: bool = False


# Requests. Each gets the reply of the same name.


@value
class InitProducerId:
    """A producer takes over the id, or bumps the epoch that it sends (KIP-360).

    The handler serves a null transactional id itself, from the producer id blocks. `client` names
    the client for the log; `is_administrator` if an administrator's command takes the id over.
    """

    transactional_id: str
    timeout_ms: int
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    keep_prepared: bool = False
    enable_two_phase_commit: bool = False
    client: str = ""
    is_administrator: bool = False
    parked: Parked | None = None


@value
class AddPartitions:
    """Partitions join the transaction; the first begins it.

    Also AddOffsetsToTxn, with the group's offsets partition.

    `verify_only` asks whether they are in it already (KIP-890). `transaction_version` is 2 for the
    implicit add of TV2 (Produce v12+, TxnOffsetCommit v5+), otherwise 1. Without `may_wait` it gets
    CONCURRENT_TRANSACTIONS while the transaction before is ending.
    """

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: tuple[TopicPartition, ...]
    verify_only: bool = False
    transaction_version: int = 1
    may_wait: bool = True
    parked: Parked | None = None


@value
class EndTxn:
    """Commit or abort the open transaction.

    `transaction_version` is 2 from EndTxn v5 on, which bumps the epoch (KIP-890), otherwise 1.
    """

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    commit: bool
    transaction_version: int = 1
    parked: Parked | None = None


@value
class DescribeTransaction:
    """Describe one id (KIP-664). Changes nothing.

    `include_life` asks for its recent steps.
    """

    transactional_id: str
    include_life: bool = False


@value
class ListTransactions:
    """List the ids that pass every given filter (KIP-664, KIP-994, KIP-1152). Changes nothing.

    `states` are names as tools print them; `duration_ms` selects transactions open for longer;
    `pattern` matches whole ids.
    """

    producer_ids: frozenset[int] = frozenset()
    states: frozenset[str] = frozenset()
    duration_ms: int = -1
    pattern: str = ""


@value
class FindDeletedTopics:
    """Ask which of these deleted topics are in a transaction that has not ended."""

    names: frozenset[str]


@value
class MarkersWritten:
    """The replies of partition leaders to the markers of one `SendMarkers`.

    A report may cover any part of them, in any order, even twice.

    A leader that could not be reached counts as NOT_LEADER_OR_FOLLOWER for its partitions, and so
    does one that no longer knows a partition; UNKNOWN_TOPIC_OR_PARTITION is one that the metadata
    does not show. A partition whose topic the metadata names deleted is listed in `deleted` and not
    in `outcomes`: its marker can no longer be written.

    A partition that refused the marker as too old (`MARKER_REFUSALS`), and in which the producer
    has no open transaction, is listed in `closed` with its error: there is nothing to end.

    `ordinal` is that of the `SendMarkers`: under TV1 only it distinguishes a late report from one
    about the next transaction (INV-4).
    """

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    coordinator_epoch: int
    outcomes: tuple[tuple[TopicPartition, ErrorCode], ...]
    deleted: tuple[TopicPartition, ...] = ()
    ordinal: int = 0
    closed: tuple[tuple[TopicPartition, ErrorCode], ...] = ()


# Timers: the shard creates them in `tick`.


@value
class AbortTimedOut:
    """The sweep found this transaction open beyond its timeout."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch


@value
class CompletePrepared:
    """Every marker is written, but COMPLETE is not.

    Its append failed, or there was no marker to write.
    """

    transactional_id: str


@value
class ExpireId:
    """The sweep found this id idle beyond `transactional.id.expiration.ms`."""

    transactional_id: str


@value
class OutsideMarkers:
    """Markers were written past the coordinator (WriteTxnMarkers), by producer id.

    Each with the outcomes and a remark that says by whom, for the history of the producer's id.
    """

    by_producer: Mapping[int, tuple[Outcomes, str]]


@value
class TellOfExpiry:
    """Some ids expired a moment ago: log them together."""


@value
class WarnOfExpiry:
    """The sweep found ids that expire soon unless they are used; it finds each once."""

    transactional_ids: tuple[str, ...]


# Replies.


@value
class InitProducerIdReply:
    """The producer id and epoch to use; -1 and -1 with an error."""

    error: ErrorCode
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH


@value
class AddPartitionsReply:
    """One error for the request; its partitions have the same, or their own (verify-only).

    `coordinator_epoch` is that of the shard that decided it, -1 if it is not known.
    """

    error: ErrorCode
    partitions: tuple[tuple[TopicPartition, ErrorCode], ...]
    coordinator_epoch: int = -1


@value
class EndTxnReply:
    """The producer id and epoch of the next transaction under TV2 (EndTxn v5).

    Otherwise -1 and -1.
    """

    error: ErrorCode
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH


@value
class DescribeTransactionReply:
    """The description of one id.

    `cause` is the reason of its producer's last fencing, or how an id that does not exist expired,
    if known; `life` has the recent steps, if requested; `trouble` is what prevents the transaction
    from ending, and the remedy.
    """

    error: ErrorCode
    transactional_id: str
    state: TransactionState = TransactionState.EMPTY
    timeout_ms: int = -1
    start_timestamp_ms: int = NO_TIMESTAMP_MS
    last_update_timestamp_ms: int = NO_TIMESTAMP_MS
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    partitions: tuple[TopicPartition, ...] = ()
    cause: str | None = None
    life: tuple[Step, ...] = ()
    trouble: str = ""


@value
class ListedTransaction:
    """One transaction of a listing; `expires_at_ms` is when the id expires unless it is used."""

    transactional_id: str
    producer_id: ProducerId
    state: TransactionState
    expires_at_ms: int = NEVER_MS


@value
class ListTransactionsReply:
    """The ids in order. `unknown_states` are filters that are no state's name."""

    error: ErrorCode
    transactions: tuple[ListedTransaction, ...] = ()
    unknown_states: tuple[str, ...] = ()


@value
class DeletedTopicsReply:
    """Those topics that are in such a transaction."""

    names: frozenset[str]


# Effects.


@value
class SendMarkers:
    """Have the leaders of `partitions` append the end marker (WriteTxnMarkers) after `delay_ms`.

    Released only after PREPARE is committed, so that the outcome is certain before any reader can
    see it (INV-4).

    `ordinal` numbers the id's transactions under this leadership, and the report returns it.
    """

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    coordinator_epoch: int
    commit: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int
    delay_ms: int = 0
    ordinal: int = 0


@value
class Notice:
    """Write a line about a transaction to the broker's log.

    The coordinator has no logger itself. Notices with a `subject` are of one kind: if there are
    several in one turn of the event loop, one line names their subjects.
    """

    text: str
    is_warning: bool = False
    subject: str = ""


TransactionEvent: TypeAlias = (
    InitProducerId
    | AddPartitions
    | EndTxn
    | DescribeTransaction
    | ListTransactions
    | FindDeletedTopics
    | MarkersWritten
    | AbortTimedOut
    | CompletePrepared
    | ExpireId
    | OutsideMarkers
    | TellOfExpiry
    | WarnOfExpiry
)
"""The events of the transaction coordinator. A new event is added here and in `shard.decide`."""

TransactionReply: TypeAlias = (
    InitProducerIdReply
    | AddPartitionsReply
    | EndTxnReply
    | DescribeTransactionReply
    | ListTransactionsReply
    | DeletedTopicsReply
)
"""The replies of the transaction coordinator."""

TransactionEffect: TypeAlias = SendMarkers | Notice
"""The effects of the transaction coordinator."""

TransactionDecision: TypeAlias = Decision[TransactionEvent, TransactionReply, TransactionEffect]
"""The result of each decision function of this package."""
