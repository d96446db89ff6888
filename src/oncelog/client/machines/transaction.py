"""The state machine of a transactional producer.

It decides which calls are allowed, which coordinator request must precede them, and what an end
changes.

There are two protocols (KIP-890). Under TV1 a partition is added to the transaction before the
first produce to it, and all transactions have the same epoch. Under TV2 a produce adds its
partition itself, and every end bumps the epoch. The machine knows neither time nor connections; its
shell makes the calls and reports their results.
"""

from collections.abc import Iterable
from enum import Enum

from oncelog.client.errors import (
    AbortableError,
    ClientError,
    FatalError,
    IllegalStateError,
    RetriableError,
)
from oncelog.core.ids import TopicPartition

__all__ = ["State", "TransactionMachine"]


class State(Enum):
    """The state of a transactional producer."""

    UNINITIALIZED = "uninitialized"
    READY = "ready"
    IN_TRANSACTION = "in transaction"
    ABORTABLE = "abortable"
    COMMITTING = "committing"
    ABORTING = "aborting"
    FATAL = "fatal"


_MOVES: dict[State, frozenset[State]] = {
    State.UNINITIALIZED: frozenset({State.READY, State.IN_TRANSACTION, State.FATAL}),
    State.READY: frozenset({State.READY, State.IN_TRANSACTION, State.FATAL}),
    State.IN_TRANSACTION: frozenset(
        {State.COMMITTING, State.ABORTING, State.ABORTABLE, State.FATAL}
    ),
    State.ABORTABLE: frozenset({State.ABORTING, State.FATAL}),
    State.COMMITTING: frozenset({State.COMMITTING, State.READY, State.ABORTABLE, State.FATAL}),
    State.ABORTING: frozenset({State.ABORTING, State.READY, State.FATAL}),
    State.FATAL: frozenset(),
}

_MAY_COMMIT = frozenset({State.IN_TRANSACTION, State.COMMITTING})
_MAY_ABORT = frozenset({State.IN_TRANSACTION, State.ABORTABLE, State.ABORTING})


class TransactionMachine:
    """The state of one transactional producer.

    `version` is 1 or 2; `error` is what made the transaction abortable or the producer unusable.
    """

    def __init__(self) -> None:
        self.state = State.UNINITIALIZED
        self.version = 1
        self.producer_id = -1
        self.producer_epoch = -1
        self.error: ClientError | None = None
        self.attached = False
        self.stragglers_possible = False
        """Whether a request of this epoch got no response.

        Under TV1 the broker may still receive it, during the next transaction.
        """
        self._added: set[TopicPartition] = set()
        self._groups: set[str] = set()
        self._started = False

    def initialized(self, producer_id: int, producer_epoch: int, version: int) -> None:
        """Handle the response of InitProducerId.

        The coordinator has ended an earlier instance's transaction and fenced it (INV-5).
        """
        self._move(State.READY)
        self._identify(producer_id, producer_epoch, version)

    def attach(self, producer_id: int, producer_epoch: int, version: int) -> None:
        """Join a transaction that another process began and will end."""
        self._move(State.IN_TRANSACTION)
        self._identify(producer_id, producer_epoch, version)
        self.attached = True

    def begin(self) -> None:
        """Begin a transaction.

        No request is sent: the first partition registers it with the coordinator.
        """
        if self.state is not State.READY:
            raise self.refusal("begin a transaction")
        self._move(State.IN_TRANSACTION)

    def check_may_send(self) -> None:
        """Raise unless records and offsets may be added now.

        After a failure it raises that error.
        """
        if self.state is not State.IN_TRANSACTION:
            raise self.refusal("send")

    def partitions_to_add(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions, sorted, that AddPartitionsToTxn must add before a produce (TV1).

        Under TV2 there are none.
        """
        if self.version >= 2:
            return []
        return sorted(set(partitions) - self._added)

    def partitions_added(self, partitions: Iterable[TopicPartition]) -> None:
        """Record that the coordinator has added these partitions."""
        self._added.update(partitions)
        self._started = True

    def request_lost(self) -> None:
        """Record that a request of this transaction got no response and may still take effect."""
        self.stragglers_possible = True

    def is_added(self, partition: TopicPartition) -> bool:
        """Whether a batch for `partition` may be sent."""
        return self.version >= 2 or partition in self._added

    def group_to_add(self, group_id: str) -> bool:
        """Whether AddOffsetsToTxn must precede a TxnOffsetCommit for the group.

        TV1, once per transaction.
        """
        return self.version < 2 and group_id not in self._groups

    def group_added(self, group_id: str) -> None:
        """Record that the group's offsets partition is in the transaction, or will be (TV2)."""
        self._groups.add(group_id)
        self._started = True

    def call_begins(self) -> None:
        """Record that a request which may open the transaction is about to be sent.

        From then on EndTxn must be sent too.
        """
        self._started = True

    def failed(self, error: ClientError) -> None:
        """Record a failure that is not retried.

        After retries that ran out of time the transaction must abort; the producer stays usable.
        """
        if isinstance(error, FatalError):
            is_news, state = self.state is not State.FATAL, State.FATAL
        else:
            is_news = self.state in (State.IN_TRANSACTION, State.COMMITTING)
            state = State.ABORTABLE
        if is_news:
            self._move(state)
            self.error = error

    def ending(self, commit: bool) -> None:
        """Start to commit or abort. Raises the error that made a commit impossible.

        The same end may be repeated while its outcome is unknown; the other one may not (INV-4).
        """
        what = "commit" if commit else "abort"
        if self.attached:
            raise IllegalStateError(
                f"cannot {what}: this producer is attached; its driver ends the transaction"
            )
        allowed = _MAY_COMMIT if commit else _MAY_ABORT
        if self.state not in allowed:
            raise self.refusal(what)
        self._move(State.COMMITTING if commit else State.ABORTING)

    @property
    def end_must_be_sent(self) -> bool:
        """Whether the coordinator may know this transaction."""
        return self._started

    def ended(self, producer_id: int = -1, producer_epoch: int = -1) -> bool:
        """Record the end of the transaction.

        Under TV2 this adopts the response's epoch and returns True: sequences restart at 0.
        """
        self._move(State.READY)
        self._added.clear()
        self._groups.clear()
        self._started = False
        self.error = None
        if self.version >= 2 and producer_id >= 0:
            self._identify(producer_id, producer_epoch, self.version)
            return True
        return False

    def _identify(self, producer_id: int, producer_epoch: int, version: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.version = version
        self.stragglers_possible = False

    def _move(self, to: State) -> None:
        if to not in _MOVES[self.state]:
            raise IllegalStateError(
                f"a transactional producer that is {self.state.value} cannot become {to.value}"
            )
        self.state = to

    def refusal(self, what: str) -> ClientError:
        """Return the error for doing `what` now.

        It is the error that made the transaction or the producer unusable, if there was one.
        """
        if self.error is None:
            return IllegalStateError(f"cannot {what}: the producer is {self.state.value}")
        if isinstance(self.error, RetriableError):
            text = f"cannot {what}: the transaction failed earlier with {self.error}"
            return AbortableError(self.error.code, text)
        return self.error
