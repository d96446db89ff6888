"""What can happen to a transactional id, and what is answered.

The transaction coordinator's vocabulary.

Plain frozen values; the handlers make the events from requests and the wire answers from the
results. Results carry the newest error codes; handlers map them down for old versions (KIP-588:
PRODUCER_FENCED becomes INVALID_PRODUCER_EPOCH for InitProducerId < 4, EndTxn < 2, AddOffsetsToTxn
and AddPartitionsToTxn < 2).

`connection` numbers the client connections of a broker in the order in which they were accepted,
from 1; 0 is unknown. It serves only to refuse requests of TV1 that arrive late (see `end_txn`).
"""

from dataclasses import dataclass
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
from oncelog.transaction.life import Step
from oncelog.transaction.states import NO_TIMESTAMP_MS, TransactionState

NEVER_MS = -1
"""An id with an open transaction does not expire."""

MARKER_REFUSALS = frozenset(
    {
        ErrorCode.invalid_producer_epoch,
        ErrorCode.transaction_coordinator_fenced,
    }
)
"""A leader's answers to a marker that is older than what its partition knows."""


@dataclass(frozen=True, slots=True)
class Parked:
    """What a request that waits found when it came (D7). Only the shard makes and reads it.

    `ordinal` is the transaction that it found, `met_open` whether that was still open; `ticket`
    orders competing InitProducerIds; `has_aborted` says that this InitProducerId has already
    aborted the transaction that it found open.
    """

    ordinal: int
    ticket: int = 0
    met_open: bool = False
    has_aborted: bool = False


# Requests. Each is answered by the result of the same name.


@dataclass(frozen=True, slots=True)
class InitProducerId:
    """A producer takes the id over, or (KIP-360) bumps the epoch that it says it has.

    The handler answers a null transactional id itself, from the producer id blocks. `client` says
    in words who asks, for those who read logs.
    """

    transactional_id: str
    timeout_ms: int
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    keep_prepared: bool = False
    enable_two_phase_commit: bool = False
    client: str = ""
    parked: Parked | None = None


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Partitions join the transaction; the first begins it.

    Also AddOffsetsToTxn, with the group's offsets partition.

    `verify_only` asks whether they are in it already (KIP-890). `transaction_version` is 2 for the
    implicit add of TV2 (Produce v12+, TxnOffsetCommit v5+), otherwise 1. `connection` is the
    client's own to the coordinator; what a partition leader asks has none.
    """

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: tuple[TopicPartition, ...]
    verify_only: bool = False
    transaction_version: int = 1
    connection: int = 0
    parked: Parked | None = None


@dataclass(frozen=True, slots=True)
class EndTxn:
    """Commit or abort. `transaction_version` is 2 from EndTxn v5 on: the epoch is bumped (KIP-890).

    Otherwise 1.
    """

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    commit: bool
    transaction_version: int = 1
    connection: int = 0
    parked: Parked | None = None


@dataclass(frozen=True, slots=True)
class DescribeTransaction:
    """What stands about one id (KIP-664). Changes nothing.

    `include_life` asks what happened to it lately.
    """

    transactional_id: str
    include_life: bool = False


@dataclass(frozen=True, slots=True)
class ListTransactions:
    """The ids that pass every filter that is given (KIP-664, KIP-994, KIP-1152). Changes nothing.

    `states` are names as tools print them; `duration_ms` keeps those open for longer; `pattern`
    matches whole ids.
    """

    producer_ids: frozenset[int] = frozenset()
    states: frozenset[str] = frozenset()
    duration_ms: int = -1
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """What partition leaders answered to the markers of one `SendMarkers`.

    Any part of it, in any order, even twice.

    A leader that could not be reached counts as NOT_LEADER_OR_FOLLOWER for its partitions. A
    partition whose topic is deleted, by the metadata image, goes into `deleted` and not into
    `outcomes`: its marker can no longer be written.

    A partition that refused the marker as older than what it knows (`MARKER_REFUSALS`), and in
    which nothing of the producer is open, goes into `closed` with its refusal: there is nothing to
    end.

    `ordinal` is that of the `SendMarkers`: under TV1 nothing else tells a late report from one
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


# Timers: the shard makes them itself, in `tick`.


@dataclass(frozen=True, slots=True)
class AbortTimedOut:
    """The sweep found this transaction open beyond its timeout."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch


@dataclass(frozen=True, slots=True)
class CompletePrepared:
    """Every marker is written and COMPLETE is not.

    Its append failed, or there was no marker to write.
    """

    transactional_id: str


@dataclass(frozen=True, slots=True)
class ExpireId:
    """The sweep found this id idle beyond `transactional.id.expiration.ms`."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class WarnOfExpiry:
    """The sweep found ids that expire soon unless they are used; each is found once."""

    transactional_ids: tuple[str, ...]


# Results.


@dataclass(frozen=True, slots=True)
class InitProducerIdResult:
    """The producer id and epoch to go on with; -1 and -1 with an error."""

    error: ErrorCode
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH


@dataclass(frozen=True, slots=True)
class AddPartitionsResult:
    """One error for the request; for its partitions the same, or their own (verify-only)."""

    error: ErrorCode
    partitions: tuple[tuple[TopicPartition, ErrorCode], ...]


@dataclass(frozen=True, slots=True)
class EndTxnResult:
    """Under TV2 the producer id and epoch of the next transaction (EndTxn v5).

    Otherwise -1 and -1.
    """

    error: ErrorCode
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH


@dataclass(frozen=True, slots=True)
class DescribeTransactionResult:
    """What stands about one id.

    `cause` says in words why its producer was last fenced, as far as we remember; `life` what
    happened lately, if that was asked; `trouble` what keeps it from ending, and what to do.
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


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """One line of a listing; `expires_at_ms` is when the id expires unless it is used."""

    transactional_id: str
    producer_id: ProducerId
    state: TransactionState
    expires_at_ms: int = NEVER_MS


@dataclass(frozen=True, slots=True)
class ListTransactionsResult:
    """Ids in order. `unknown_states` are the filters that name no state."""

    error: ErrorCode
    transactions: tuple[ListedTransaction, ...] = ()
    unknown_states: tuple[str, ...] = ()


# Effects.


@dataclass(frozen=True, slots=True)
class SendMarkers:
    """Have the leaders of `partitions` append the end marker (WriteTxnMarkers) after `delay_ms`.

    Released only after PREPARE is committed, so that the outcome is certain before anybody sees it
    (INV-4).

    `ordinal` numbers the id's transactions under this leadership, and comes back in the report.
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


@dataclass(frozen=True, slots=True)
class Notice:
    """Have the log say something about a transaction: the coordinator itself has no log."""

    text: str
    is_warning: bool = False


TransactionEvent: TypeAlias = (
    InitProducerId
    | AddPartitions
    | EndTxn
    | DescribeTransaction
    | ListTransactions
    | MarkersWritten
    | AbortTimedOut
    | CompletePrepared
    | ExpireId
    | WarnOfExpiry
)
"""What the transaction coordinator decides. A new event is named here and in `shard.decide`."""

TransactionResult: TypeAlias = (
    InitProducerIdResult
    | AddPartitionsResult
    | EndTxnResult
    | DescribeTransactionResult
    | ListTransactionsResult
)
"""What the transaction coordinator answers."""

TransactionEffect: TypeAlias = SendMarkers | Notice
"""What the transaction coordinator wants done outside."""

TransactionDecision: TypeAlias = Decision[TransactionEvent, TransactionResult, TransactionEffect]
"""What each decision function of this room returns."""
