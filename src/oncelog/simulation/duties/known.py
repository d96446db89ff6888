"""What is known of one transactional id: its last record, what it owes, and its recent steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.simulation.duties.moves import EMPTY, ONGOING, PREPARED, Before
from oncelog.simulation.oracle.transaction_log import RawTransaction

__all__ = ["OWN_ABORT", "IdState", "Step"]

Step = tuple[int, str, int, int, tuple[TopicPartition, ...], ErrorCode, str, int]
"""Time, kind, producer id and epoch, partitions, error, cause, count of unnamed partitions."""
Outcomes = tuple[tuple[TopicPartition, ErrorCode], ...]

OWN_ABORT: Final = "EndTxn of its producer"
ITEMS_MAX: Final = 24
"""Moves, causes and reports that are remembered of an id."""
_NAMED_MAX: Final = 8
_KINDS: Final = {
    2: "prepare commit",
    3: "prepare abort",
    4: "complete commit",
    5: "complete abort",
}
_OFFSETS: Final = "__consumer_offsets"


@dataclass(slots=True)
class IdState:
    """One id. `owed` are partitions without a marker, `under_way` those whose marker was sent."""

    now: Before
    owed: set[TopicPartition] = field(default_factory=set)
    under_way: set[TopicPartition] = field(default_factory=set)
    refused: dict[TopicPartition, ErrorCode] = field(default_factory=dict)
    sent_as: tuple[int, int, int, int] | None = None
    """Producer id and epoch, coordinator's epoch and ordinal of the markers of this end."""
    cause: str | None = None
    told_after_ms: int = 0
    is_warned: bool = False
    held_up_ms: int = 0
    """When the log was last seen not to have taken an append of it."""
    steps: list[Step] = field(default_factory=list)
    items_count: int = 0
    _reports: list[tuple[Outcomes, str]] = field(default_factory=list)

    def move(self, after: Before, cause: str) -> None:
        """Take the next record."""
        before, self.now = self.now, after
        self._start(after.raw, before.raw, cause)

    def begin(self, cause: str = "") -> None:
        """Take the first record, which is `now`."""
        self._start(self.now.raw, None, cause)

    def _start(self, raw: RawTransaction, before: RawTransaction | None, cause: str) -> None:
        is_prepared = raw.state in PREPARED
        self.owed = set(map(_place, raw.partitions)) if is_prepared else set()
        self.under_way, self.refused, self.sent_as = set(), {}, None
        self.is_warned, self.told_after_ms = False, 0
        self._reports = []
        if cause and cause != OWN_ABORT:
            self.cause = cause
        self.items_count += 2 if cause else 1
        self._tell(raw, before, cause)

    def _tell(self, raw: RawTransaction, before: RawTransaction | None, cause: str) -> None:
        head = self.now.updated_ms
        ids = raw.producer_id, raw.producer_epoch
        none = ErrorCode.none
        if raw.state == EMPTY:
            self.steps.append((head, "producer", *ids, (), none, cause, 0))
            return
        places = sorted(map(_place, raw.partitions))
        is_wide = len(places) > _NAMED_MAX
        if raw.state == ONGOING and before is not None and before.state == ONGOING:
            places = [each for each in places if tuple(each) not in before.partitions]
        named = tuple(places[:_NAMED_MAX]) if is_wide else tuple(places)
        more_count = len(places) - len(named)
        kind = _KINDS.get(raw.state)
        if kind is not None:
            self.steps.append((head, kind, *ids, named, none, cause, more_count))
            return
        offsets = tuple(each for each in named if each.topic == _OFFSETS)
        others = tuple(each for each in named if each.topic != _OFFSETS)
        if offsets and others and more_count:
            others, offsets = others + offsets, ()
        for what, part in (("partitions added", others), ("offsets sent", offsets)):
            if part:
                self.steps.append((head, what, *ids, part, none, cause, more_count))

    def report(self, at_ms: int, outcomes: Outcomes, remark: str = "", *, always: bool) -> None:
        """Take what leaders said of markers; one like an earlier one since the move is not told."""
        named, more = _shortened(outcomes)
        if not always and (named, remark) in self._reports:
            return
        self._reports.append((named, remark))
        self.items_count += 1
        raw = self.now.raw
        by_error: dict[ErrorCode, list[TopicPartition]] = {}
        for place, error in named:
            by_error.setdefault(error, []).append(place)
        for error, places in by_error.items():
            ids = raw.producer_id, raw.producer_epoch
            count = more.get(error, 0)
            self.steps.append((at_ms, "marker", *ids, tuple(sorted(places)), error, remark, count))

    def wrong_steps(self, told: list[Step]) -> str:
        """Compare with what the coordinator tells; "" if it is right.

        It forgets the oldest items. The first that is left may then be told without what came
        before it.
        """
        if self.items_count <= ITEMS_MAX:
            wanted = self.steps
        else:
            told = told[2:]
            if not told:
                return "almost no step is told"
            wanted = self.steps[-len(told) :]
        if told == wanted:
            return ""
        differing = [pair for pair in zip(told, wanted, strict=False) if pair[0] != pair[1]]
        return f"{len(told)} steps instead of {len(wanted)}, differing {differing[:1]}"


def _shortened(outcomes: Outcomes) -> tuple[Outcomes, dict[ErrorCode, int]]:
    """Of many partitions the first ones of each error are named."""
    if len(outcomes) <= _NAMED_MAX:
        return outcomes, {}
    named: list[tuple[TopicPartition, ErrorCode]] = []
    more: dict[ErrorCode, int] = {}
    for error in dict.fromkeys(error for _, error in outcomes):
        places = sorted(place for place, its in outcomes if its is error)
        named += [(place, error) for place in places[:_NAMED_MAX]]
        more[error] = max(0, len(places) - _NAMED_MAX)
    return tuple(named), more


def _place(raw: tuple[str, int]) -> TopicPartition:
    return TopicPartition(*raw)
