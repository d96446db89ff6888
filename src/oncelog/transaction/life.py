"""Records recent steps of transactional ids for `oncelog transactions show`.

The coordinator stores objects that exist anyway: each committed move as its `TransactionMetadata`,
each report about markers, and the cause of an abort or a fencing. `Lives.steps`
describes them only on request, so that a transaction costs one append to a deque per move and per
report.

Volatile (D2): bounded per id and in the number of ids, and lost with the leadership. After a load
it begins with the moves that the log still has. A step that concerns many partitions keeps the
names of a few and counts the others.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import (
    CONSUMER_OFFSETS_TOPIC,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from oncelog.core.limits import (
    LIFE_PARTITIONS_PER_STEP_COUNT_MAX,
    LIFE_STEPS_PER_ID_COUNT_MAX,
    LIVES_REMEMBERED_COUNT_MAX,
)
from oncelog.core.values import value
from oncelog.transaction.states import TransactionMetadata, TransactionState

__all__ = [
    "OWN_ABORT",
    "Cause",
    "Life",
    "Lives",
    "Markers",
    "Outcomes",
    "Step",
    "StepKind",
    "WideMove",
    "is_recorded",
    "wide_move",
]


class StepKind(Enum):
    """The kind of a step; the values appear in DescribeTransactions."""

    PRODUCER = "producer"
    """A producer got the id, or a new epoch of it."""
    PARTITIONS = "partitions added"
    OFFSETS = "offsets sent"
    """Groups' offsets joined the transaction: partitions of `__consumer_offsets`."""
    PREPARE_COMMIT = "prepare commit"
    PREPARE_ABORT = "prepare abort"
    MARKER = "marker"
    """Markers were written, or failed with an error; without partitions no marker is owed."""
    COMPLETE_COMMIT = "complete commit"
    COMPLETE_ABORT = "complete abort"


@value
class Step:
    """One step of an id.

    `cause` is the reason of an abort or a fencing, or a remark about a marker; `more_count`
    partitions are not named in `partitions`.
    """

    at_ms: int
    kind: StepKind
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: tuple[TopicPartition, ...] = ()
    error: ErrorCode = ErrorCode.none
    cause: str = ""
    more_count: int = 0


OWN_ABORT: Final = "EndTxn of its producer"
"""The cause of an abort that the client requested; no producer is fenced by it."""


class Cause(NamedTuple):
    """The reason of the move that follows."""

    text: str


class WideMove(NamedTuple):
    """A move of a transaction with many partitions, in place of its `TransactionMetadata`.

    `partitions` are the first of those that the move added, or of all in a prepared state, and
    `more_count` is how many others there are.
    """

    state: TransactionState
    last_update_timestamp_ms: int
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: tuple[TopicPartition, ...]
    more_count: int


Outcomes = tuple[tuple[TopicPartition, ErrorCode], ...]


class Markers(NamedTuple):
    """The replies of partition leaders; `remark` adds a reason to them.

    `more` has, by error, how many partitions are not named in `outcomes`. `of` makes one.
    """

    at_ms: int
    outcomes: Outcomes
    remark: str = ""
    more: tuple[tuple[ErrorCode, int], ...] = ()

    @staticmethod
    def of(at_ms: int, outcomes: Outcomes, remark: str = "") -> "Markers":
        """Record a report; of many partitions only the first of each error are named."""
        if len(outcomes) <= LIFE_PARTITIONS_PER_STEP_COUNT_MAX:
            return Markers(at_ms, outcomes, remark)
        by_error: dict[ErrorCode, list[TopicPartition]] = {}
        for topic_partition, error in outcomes:
            by_error.setdefault(error, []).append(topic_partition)
        named: list[tuple[TopicPartition, ErrorCode]] = []
        more: list[tuple[ErrorCode, int]] = []
        for error, partitions in by_error.items():
            few = heapq.nsmallest(LIFE_PARTITIONS_PER_STEP_COUNT_MAX, partitions)
            named += [(topic_partition, error) for topic_partition in few]
            if len(few) < len(partitions):
                more.append((error, len(partitions) - len(few)))
        return Markers(at_ms, tuple(named), remark, tuple(more))


Life = deque[TransactionMetadata | WideMove | Markers | Cause]
"""The steps of one id, oldest first."""

_S = TransactionState
_KINDS = {
    _S.PREPARE_COMMIT: StepKind.PREPARE_COMMIT,
    _S.PREPARE_ABORT: StepKind.PREPARE_ABORT,
    _S.COMPLETE_COMMIT: StepKind.COMPLETE_COMMIT,
    _S.COMPLETE_ABORT: StepKind.COMPLETE_ABORT,
}


class Lives:
    """The recent steps of one shard's ids."""

    __slots__ = ("by_id",)

    def __init__(self) -> None:
        self.by_id: dict[str, Life] = {}
        """The steps by id; callers append in place, as this is the hot path."""

    def begin(self, transactional_id: str) -> Life:
        """Start recording an id; this may remove the id recorded first."""
        life = self.by_id[transactional_id] = deque(maxlen=LIFE_STEPS_PER_ID_COUNT_MAX)
        if len(self.by_id) > LIVES_REMEMBERED_COUNT_MAX:
            del self.by_id[next(iter(self.by_id))]
        return life

    def steps(self, transactional_id: str) -> tuple[Step, ...]:
        """Return the steps of an id, oldest first."""
        return tuple(_steps(self.by_id.get(transactional_id, ())))


def is_recorded(life: Life, report: Markers) -> bool:
    """Whether the last reports have one with the same outcome: only the first is recorded.

    Partitions that fail apart from each other are retried and reported by turns.
    """
    for item in reversed(life):
        if type(item) is not Markers:
            return False
        if item[1:] == report[1:]:
            return True
    return False


def wide_move(after: TransactionMetadata, before: TransactionMetadata | None) -> WideMove:
    """Return what is remembered of a move that has many partitions.

    A life with all of them would take a megabyte if it has a thousand.
    """
    told = after.partitions
    if after.state is TransactionState.ONGOING:
        told = told - _known(before)
    named = tuple(heapq.nsmallest(LIFE_PARTITIONS_PER_STEP_COUNT_MAX, told))
    return WideMove(
        after.state,
        after.last_update_timestamp_ms,
        after.producer_id,
        after.producer_epoch,
        named,
        len(told) - len(named),
    )


def _known(before: TransactionMetadata | WideMove | None) -> frozenset[TopicPartition]:
    """Return the partitions that the transaction had before a move."""
    if type(before) is TransactionMetadata and before.state is TransactionState.ONGOING:
        return before.partitions
    return frozenset()


def _steps(life: Iterable[TransactionMetadata | WideMove | Markers | Cause]) -> Iterator[Step]:
    cause = ""
    before: TransactionMetadata | WideMove | None = None
    for item in life:
        match item:
            case Cause():
                cause = item.text
            case Markers():
                if before is not None:
                    yield from _marker_steps(item, before)
            case TransactionMetadata() | WideMove():
                yield from _move_steps(item, before, cause)
                cause, before = "", item


def _move_steps(
    after: TransactionMetadata | WideMove, before: TransactionMetadata | WideMove | None, cause: str
) -> Iterator[Step]:
    more_count = after.more_count if type(after) is WideMove else 0
    at_ms = after.last_update_timestamp_ms
    ids = (after.producer_id, after.producer_epoch)
    kind = _KINDS.get(after.state)
    if kind is not None:
        yield Step(
            at_ms, kind, *ids, tuple(sorted(after.partitions)), cause=cause, more_count=more_count
        )
        return
    if after.state is TransactionState.EMPTY:
        yield Step(at_ms, StepKind.PRODUCER, *ids, cause=cause)
        return
    added = sorted(set(after.partitions) - _known(before))
    offsets = tuple(one for one in added if one.topic == CONSUMER_OFFSETS_TOPIC)
    others = tuple(one for one in added if one.topic != CONSUMER_OFFSETS_TOPIC)
    if others and more_count:
        # Those without a name are of either kind.
        others, offsets = others + offsets, ()
    if others:
        yield Step(at_ms, StepKind.PARTITIONS, *ids, others, cause=cause, more_count=more_count)
    if offsets:
        yield Step(at_ms, StepKind.OFFSETS, *ids, offsets, cause=cause, more_count=more_count)


def _marker_steps(report: Markers, prepared: TransactionMetadata | WideMove) -> Iterator[Step]:
    """Return one step for all partitions with the same outcome."""
    more = dict(report.more)
    by_error: dict[ErrorCode, list[TopicPartition]] = {}
    for topic_partition, error in report.outcomes:
        by_error.setdefault(error, []).append(topic_partition)
    ids = (prepared.producer_id, prepared.producer_epoch)
    for error, partitions in by_error.items():
        yield Step(
            report.at_ms,
            StepKind.MARKER,
            *ids,
            tuple(sorted(partitions)),
            error,
            report.remark,
            more.get(error, 0),
        )
