"""Defines the states of a transactional id, the legal moves, and its durable metadata.

Source: Kafka's TransactionState and TransactionMetadata (KIP-98, KIP-890). This module decides
nothing: it only refuses moves that are not in the table. `TransactionMetadata` is exactly the
content of one record of `__transaction_state`, so that a replay ends in the same value;
`oncelog.transaction.store` holds volatile state.
"""

from enum import Enum

from oncelog.core.errors import InvariantViolation
from oncelog.core.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from oncelog.core.limits import INT32_MAX, PRODUCER_EPOCH_EXHAUSTED
from oncelog.core.values import value

NO_TIMESTAMP_MS = -1

TWO_PHASE_COMMIT_TIMEOUT_MS = INT32_MAX
"""The timeout of a KIP-939 transaction, which never times out."""


class TransactionState(Enum):
    """The state of a transactional id.

    Values are the ids in the log, `label` is the name that tools print.
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """The id expires. Only its tombstone is written, never this state."""
    PREPARE_EPOCH_FENCE = 7
    """About to be fenced and aborted.

    An intermediate step of one decision; never written.
    """

    # Every request reads these, so they are stored with the state.
    status: int
    """The value, which `Enum` finds by two calls of Python functions."""
    is_prepared: bool
    """The outcome is decided and its markers are under way."""
    is_complete: bool
    """The outcome is written to every partition."""
    is_at_rest: bool
    """No transaction is open: a new one may begin, the id may expire."""

    # A state is a singleton; Enum would hash its name by a Python function.
    __hash__ = object.__hash__

    @property
    def label(self) -> str:
        """The name as Kafka's tools print it, for example CompleteCommit."""
        return self.name.title().replace("_", "")


_S = TransactionState
for _state in _S:
    _state.status = _state.value
    _state.is_prepared = _state in (_S.PREPARE_COMMIT, _S.PREPARE_ABORT)
    _state.is_complete = _state in (_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT)
    _state.is_at_rest = _state is _S.EMPTY or _state.is_complete

_AT_REST = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})

LEGAL_PREVIOUS: dict[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: _AT_REST,
    _S.ONGOING: _AT_REST | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: _AT_REST | {_S.ONGOING, _S.PREPARE_EPOCH_FENCE},
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: _AT_REST,
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}
"""The states from which each state may be reached.

PREPARE_ABORT from a completed or empty state is TV2's abort without a transaction (KIP-890).
"""


@value
class TransactionMetadata:
    """The durable metadata of one transactional id in `__transaction_state`.

    Times are wall-clock milliseconds.

    `next_producer_id` is set in a prepared state only: the fresh producer id that follows when the
    current one's epochs are exhausted. `client_transaction_version` is 2 if the last move bumped
    the epoch as TV2 does, otherwise 0.
    """

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_timestamp_ms: int = NO_TIMESTAMP_MS
    last_update_timestamp_ms: int = NO_TIMESTAMP_MS
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    next_producer_id: ProducerId = NO_PRODUCER_ID
    client_transaction_version: int = 0

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether no client may get a higher epoch of this producer id.

        The last epoch is reserved for fencing.
        """
        return self.producer_epoch >= PRODUCER_EPOCH_EXHAUSTED

    @property
    def times_out(self) -> bool:
        """Whether the coordinator may abort it by timeout.

        Not under two-phase commit (KIP-939).
        """
        return self.timeout_ms != TWO_PHASE_COMMIT_TIMEOUT_MS

    def is_overdue(self, now_ms: int) -> bool:
        """Whether an open transaction has exceeded its timeout."""
        return (
            self.state is TransactionState.ONGOING
            and self.times_out
            and self.start_timestamp_ms + self.timeout_ms < now_ms
        )


def moved(
    old: TransactionMetadata,
    state: TransactionState,
    now_ms: int,
    *,
    producer_id: ProducerId | None = None,
    producer_epoch: ProducerEpoch | None = None,
    timeout_ms: int | None = None,
    partitions: frozenset[TopicPartition] | None = None,
    start_timestamp_ms: int | None = None,
    next_producer_id: ProducerId | None = None,
    client_transaction_version: int | None = None,
) -> TransactionMetadata:
    """Return `old` after a legal move; arguments that are None leave their field unchanged.

    Raises InvariantViolation for a move that is not in the table.

    As in Kafka, each move stores the producer id before it as the previous one: this identifies a
    retry across a change of the producer id.
    """
    before = old.state
    if before not in LEGAL_PREVIOUS[state]:
        move = f"from {before.label} to {state.label}"
        raise InvariantViolation(f"INV-4: {old.transactional_id} cannot move {move}")
    version = client_transaction_version
    # Not `dataclasses.replace`, which iterates over the fields: each transaction ends with two
    # moves.
    after = TransactionMetadata(
        transactional_id=old.transactional_id,
        producer_id=old.producer_id if producer_id is None else producer_id,
        producer_epoch=old.producer_epoch if producer_epoch is None else producer_epoch,
        timeout_ms=old.timeout_ms if timeout_ms is None else timeout_ms,
        state=state,
        partitions=old.partitions if partitions is None else partitions,
        start_timestamp_ms=old.start_timestamp_ms
        if start_timestamp_ms is None
        else start_timestamp_ms,
        last_update_timestamp_ms=max(now_ms, old.last_update_timestamp_ms),
        previous_producer_id=old.producer_id,
        next_producer_id=old.next_producer_id if next_producer_id is None else next_producer_id,
        client_transaction_version=old.client_transaction_version if version is None else version,
    )
    if after.producer_id <= NO_PRODUCER_ID or after.producer_epoch <= NO_PRODUCER_EPOCH:
        raise InvariantViolation("INV-11: a move needs a producer id and an epoch")
    return after
