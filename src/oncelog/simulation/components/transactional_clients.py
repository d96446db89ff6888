"""Simulates the state machine of a transactional producer alone, against tables.

Calls and their outcomes come in any order, allowed or not, under both protocols (KIP-890). After
each step all that the machine tells is compared with what the tables and a few sets imply: which
requests are due before a produce, a commit of offsets and an end, and what each error code does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from oncelog.client.errors import (
    AbortableError,
    ClientError,
    FatalError,
    FencedError,
    IllegalStateError,
    Operation,
    RetriableError,
    classify,
)
from oncelog.client.machines.transaction import TransactionMachine
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition

__all__ = ["transactional_clients"]

LIVES_COUNT: Final = 6
STEPS_COUNT: Final = 50
_PLACES: Final = tuple(TopicPartition(name, index) for name in "ab" for index in range(2))
_GROUPS: Final = ("g", "h")

_UNUSED, _READY, _IN, _FAILED = "uninitialized", "ready", "in transaction", "abortable"
_COMMITTING, _ABORTING, _DEAD = "committing", "aborting", "fatal"

_INITIALIZED: Final = {_UNUSED, _READY}
_COMMITTED: Final = {_IN, _COMMITTING}
"""In these states a commit may be asked for, or again."""
_ABORTED: Final = {_IN, _FAILED, _ABORTING}
_LOST_BY_ERRORS: Final = {_IN, _COMMITTING}
"""In these an error that is not fatal costs the transaction."""

_FENCE: Final = {"producer_fenced", "invalid_producer_epoch", "transaction_coordinator_fenced"}
_COST_A_CALL: Final = {
    "transaction_abortable",
    "unknown_producer_id",
    "group_authorization_failed",
    "topic_authorization_failed",
    "operation_not_attempted",
    "fenced_instance_id",
    "illegal_generation",
    "unknown_member_id",
    "stale_member_epoch",
    "group_id_not_found",
    "offset_metadata_too_large",
}
_END_A_PRODUCER: Final = {
    "invalid_producer_id_mapping",
    "cluster_authorization_failed",
    "transactional_id_authorization_failed",
    "unsupported_version",
}
"""Answers to a batch; every other one that is not retried costs the transaction."""


def transactional_clients(
    rng: random.Random, make: type[TransactionMachine] = TransactionMachine
) -> Iterator[str]:
    """Simulate some producers; yield what is wrong with the first that is."""
    for life in range(LIVES_COUNT):
        for text in _TransactionalLife(rng, make).live():
            yield f"life {life}: {text}"
            return


@dataclass(slots=True)
class _KnownTransaction:
    """What is known of a producer from the calls that were made."""

    state: str = _UNUSED
    version: int = 1
    identity: tuple[int, int] = (-1, -1)
    error: ClientError | None = None
    is_attached: bool = False
    is_in_doubt: bool = False
    is_touched: bool = False
    """Whether the coordinator may know of the transaction."""

    added: set[TopicPartition] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)


class _TransactionalLife:
    """One producer's machine, and what is known of it."""

    def __init__(self, rng: random.Random, make: type[TransactionMachine]) -> None:
        self._rng = rng
        self._real = make()
        self._known = _KnownTransaction()
        self._epoch = 0

    def live(self) -> Iterator[str]:
        calls: tuple[Callable[[], Iterator[str]], ...] = (
            *(self._initialize, self._begin, self._begin, self._send, self._send, self._add),
            *(self._add, self._touch, self._fail, self._end, self._end, self._ended, self._ended),
        )
        if self._rng.random() < 0.2:
            calls = (*calls, self._attach)
        for step in range(STEPS_COUNT):
            texts = [*self._rng.choice(calls)(), *self._judge()]
            if texts:
                yield from (f"step {step}: {text}" for text in texts)
                return

    # --- calls

    def _identity(self) -> tuple[int, int]:
        self._epoch += 1
        return 5 + self._rng.randrange(3), self._epoch

    def _initialize(self) -> Iterator[str]:
        known = self._known
        if known.state in (_COMMITTING, _ABORTING):
            return
        identity, version = self._identity(), self._rng.choice((1, 2))
        is_due = known.state in _INITIALIZED
        yield from self._try(
            lambda: self._real.initialized(*identity, version), None if is_due else "cannot become"
        )
        if is_due:
            known.state, known.version = _READY, version
            known.identity, known.is_in_doubt = identity, False

    def _attach(self) -> Iterator[str]:
        known, identity, version = self._known, self._identity(), self._rng.choice((1, 2))
        is_due = known.state in _INITIALIZED
        yield from self._try(
            lambda: self._real.attach(*identity, version), None if is_due else "cannot become"
        )
        if is_due:
            known.state, known.version, known.is_attached = _IN, version, True
            known.identity, known.is_in_doubt = identity, False

    def _begin(self) -> Iterator[str]:
        is_due = self._known.state == _READY
        yield from self._try(self._real.begin, None if is_due else "begin a transaction")
        if is_due:
            self._known.state = _IN

    def _send(self) -> Iterator[str]:
        is_due = self._known.state == _IN
        yield from self._try(self._real.check_may_send, None if is_due else "send")

    def _add(self) -> Iterator[str]:
        """Partitions or a group are added to the transaction."""
        known, rng = self._known, self._rng
        wanted = rng.sample(_PLACES, 2)
        due = sorted(at for at in wanted if at not in known.added) if known.version == 1 else []
        found = self._real.partitions_to_add([*wanted, wanted[0]])
        if found != due:
            yield f"{found} are to be added of {wanted}, not {due}"
        if known.state not in (_IN, _COMMITTING):
            return
        known.is_touched = True
        if rng.random() < 0.7:
            self._real.partitions_added(found)
            known.added |= set(due)
        else:
            group_id = rng.choice(_GROUPS)
            self._real.group_added(group_id)
            known.groups.add(group_id)

    def _touch(self) -> Iterator[str]:
        """A request is about to be sent, and its answer may be lost."""
        if self._known.state in (_IN, _COMMITTING):
            self._real.call_begins()
            self._known.is_touched = True
            if self._rng.random() < 0.3:
                self._real.request_lost()
                self._known.is_in_doubt = True
        yield from ()

    def _fail(self) -> Iterator[str]:
        """A request is answered with an error."""
        if self._rng.random() < 0.6:
            return
        known = self._known
        code = self._rng.choice([each for each in ErrorCode if each is not ErrorCode.none])
        operation = self._rng.choice((Operation.TRANSACTION, Operation.TRANSACTIONAL_PRODUCE))
        error, kind = classify(code, operation, "it fails"), _kind(code, operation)
        if (type(error) is FencedError, isinstance(error, kind), error.code) != (
            kind is FencedError,
            True,
            code,
        ):
            yield f"{code.name} after {operation.value} is {error!r}, not {kind.__name__}"
        self._real.failed(error)
        if known.state == _DEAD:
            return
        if issubclass(kind, FatalError):
            known.state, known.error = _DEAD, error
        elif known.state in _LOST_BY_ERRORS:
            known.state, known.error = _FAILED, error

    def _end(self) -> Iterator[str]:
        known, commit = self._known, self._rng.random() < 0.6
        what = "commit" if commit else "abort"
        is_due = known.state in (_COMMITTED if commit else _ABORTED) and not known.is_attached
        yield from self._try(lambda: self._real.ending(commit), None if is_due else what)
        if is_due:
            known.state = _COMMITTING if commit else _ABORTING

    def _ended(self) -> Iterator[str]:
        known = self._known
        if known.state in (_UNUSED, _READY):
            return
        is_due = known.state in (_COMMITTING, _ABORTING)
        identity = self._identity() if self._rng.random() < 0.7 else (-1, -1)
        told: list[bool] = []
        yield from self._try(
            lambda: told.append(self._real.ended(*identity)), None if is_due else "cannot become"
        )
        if not is_due:
            return
        known.state, known.error, known.is_touched = _READY, None, False
        known.added, known.groups = set(), set()
        is_next = known.version == 2 and identity != (-1, -1)
        if is_next:
            known.identity, known.is_in_doubt = identity, False
        if told != [is_next]:
            yield f"the end of a transaction restarts sequences: {told}, not {is_next}"

    # --- outcomes

    def _try(self, call: Callable[[], object], refused: str | None) -> Iterator[str]:
        """Make a call. `refused` is None, or a part of what the refusal says."""
        try:
            call()
        except ClientError as error:
            if refused is None:
                yield f"a producer that is {self._known.state} refuses: {error!r}"
            else:
                yield from self._judge_refusal(error, refused)
        else:
            if refused is not None:
                yield f"a producer that is {self._known.state} lets pass: {refused}"

    def _judge_refusal(self, error: ClientError, what: str) -> Iterator[str]:
        known, cause = self._known, self._known.error
        is_move = what == "cannot become"
        is_ended = known.is_attached and what in ("commit", "abort")
        if cause is None or is_move or is_ended:
            is_right = isinstance(error, IllegalStateError) and what in str(error)
            is_right &= is_ended or known.state in str(error)
        elif isinstance(cause, RetriableError):
            is_right = type(error) is AbortableError and error.code is cause.code
            is_right &= f"cannot {what}:" in error.message and str(cause) in error.message
        else:
            is_right = error is cause
        if not is_right:
            yield f"a producer that is {known.state} after {cause!r} refuses {what} by {error!r}"

    def _judge(self) -> Iterator[str]:
        known, real = self._known, self._real
        is_old = known.version == 1
        found = (
            *(real.state.value, real.version, (real.producer_id, real.producer_epoch)),
            *(real.attached, real.stragglers_possible, real.end_must_be_sent),
            [at for at in _PLACES if real.is_added(at)],
            [each for each in _GROUPS if real.group_to_add(each)],
        )
        due = (
            *(known.state, known.version, known.identity),
            *(known.is_attached, known.is_in_doubt, known.is_touched),
            [at for at in _PLACES if not is_old or at in known.added],
            [each for each in _GROUPS if is_old and each not in known.groups],
        )
        if found != due or real.error is not known.error:
            yield f"the machine is {found}, {real.error!r}, not {due}, {known.error!r}"


def _kind(code: ErrorCode, operation: Operation) -> type[ClientError]:
    """What an answer means for a producer, by tables (KIP-588, KIP-890, KIP-1050)."""
    if code.retriable:
        return RetriableError
    if operation is Operation.TRANSACTION:
        if code.name in _FENCE:
            return FencedError
        return AbortableError if code.name in _COST_A_CALL else FatalError
    if code.name == "producer_fenced":
        return FencedError
    return FatalError if code.name in _END_A_PRODUCER else AbortableError
