"""A follower of a partition, or a replica that waits for a leader.

It decides what to ask its leader next, and what an answer means: records to append, a truncation,
a new beginning, or a pause. Its phases:

- FETCHING: it asks at the end of its log, once all of that counts as appended;
- TRUNCATING: its log is being cut, and it asks nothing; roles that are given meanwhile wait too;
- ERRED: its answer was an error. It asks again after a backoff, or by a newer state.

A leader counts on what a fetch says, so what it says is not given up afterwards. Whether the log
lacks deletions is decided before the first fetch of a leader epoch. Where it does, a fetch says
where it starts instead of where it ends, and its records are dropped when the leader has answered:
if that one is gone, they may be all that is left. Another answer has the log cut only where the
leader did not count the fetch: it diverges, or is outside of the leader's log.

An answer to what it would not ask any more (another leader epoch, or another end of the log) says
nothing. The log is cut where it disagrees with the leader's (`divergence`), never by a high
watermark, which may be behind what is committed (KIP-101).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from oncelog.core.cluster_limits import NEWS_RETRY_MS_MIN
from oncelog.core.errors import ErrorCode
from oncelog.core.values import value
from oncelog.replication.divergence import truncation_offset
from oncelog.replication.replica import Assignment, Replica, ReplicaState

__all__ = [
    "Absence",
    "FetchAnswer",
    "FetchPosition",
    "FollowerState",
    "HeldLog",
    "Pause",
    "Phase",
    "RestartAt",
    "TakeRecords",
    "Truncate",
]


class Phase(Enum):
    """What a follower is doing."""

    FETCHING = "fetching"
    TRUNCATING = "truncating"
    ERRED = "erred"


@value
class HeldLog:
    """The follower's log: its bounds, and where each of its leader epochs began, rising."""

    start_offset: int
    end_offset: int
    epochs: Sequence[tuple[int, int]] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it has no record."""
        return self.start_offset == self.end_offset


@value
class FetchPosition:
    """What a follower asks of its leader."""

    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    """The epoch of its last record; -1 where it has none."""
    log_start_offset: int
    high_watermark: int


@value
class FetchAnswer:
    """What the leader answers, but for the records."""

    error: ErrorCode = ErrorCode.none
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging: tuple[int, int] | None = None
    """(epoch, end offset): its own largest epoch not above the follower's last."""


@value
class Absence:
    """How long the follower of a compacted partition may have missed what was deleted.

    `away_ms` is the time since it last had all that its leader could have compacted, None where
    nothing tells. A leader forgets deletions `delete_retention_ms` after it has compacted them.
    """

    away_ms: int | None
    delete_retention_ms: int


@value
class TakeRecords:
    """TakeRecords the records, if there are some, and take over high watermark and log start."""


@value
class Truncate:
    """Cut the log at `offset`, then ask again."""

    offset: int


@value
class RestartAt:
    """Drop all records and begin with an empty log at `offset`."""

    offset: int
    reason: str


@value
class Pause:
    """Ask nothing until the backoff has passed."""

    error: ErrorCode
    reason: str


_LED = (ErrorCode.none, ErrorCode.offset_out_of_range)
"""What only a leader of the epoch that was asked answers."""

_UNHEARD = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.unknown_topic_id,
        ErrorCode.unknown_topic_or_partition,
    }
)
"""What a leader answers that the news has not reached. A fenced epoch ends with the next state."""

_DOUBLINGS_COUNT_MAX = 16
"""After so many a pause is as long as any backoff."""


class FollowerState(ReplicaState):
    """Follows the leader of one leader epoch."""

    __slots__ = (
        "begins_anew",
        "has_all_compacted",
        "pauses_count",
        "phase",
        "retry_ms",
        "told_high_watermark",
    )

    def __init__(self, before: ReplicaState | Replica, given: Assignment) -> None:
        super().__init__(before, given)
        self.phase = Phase.FETCHING
        self.retry_ms = 0.0
        """When one that has erred asks again, on the monotonic clock."""
        self.pauses_count = 0
        """Since its leader last gave it what it asked for, in this leader epoch."""
        self.has_all_compacted = self.broker_id in given.isr or self.broker_id in given.eligible
        """Whether it has all below the high watermark, above which no leader compacts."""
        self.told_high_watermark = -1
        self.begins_anew = False
        """Whether it lacks deletions, and drops its records once the leader has answered."""
        if isinstance(before, FollowerState) and before.leader_epoch == given.leader_epoch:
            self.begins_anew = before.begins_anew
            self.told_high_watermark = before.told_high_watermark
            if before.partition_epoch == given.partition_epoch:
                self.phase, self.retry_ms = before.phase, before.retry_ms
                self.pauses_count = before.pauses_count

    # ---- what to ask ----

    def position(self, held: HeldLog, now_ms: float) -> FetchPosition | None:
        """Return what to ask next; None while there is nothing to ask.

        A fetch at an offset says that all below it is here: where every message is synced first, it
        waits for that.
        """
        if self.leader < 0 or self.phase is Phase.TRUNCATING:
            return None
        if self.phase is Phase.ERRED:
            if now_ms < self.retry_ms:
                return None
            self.phase = Phase.FETCHING
        if self.log_end_offset < held.end_offset:
            return None
        # One that led may have begun an epoch at its end, and appended nothing in it.
        begun = [epoch for epoch, start in held.epochs if start < held.end_offset]
        has_records = begun and not held.is_empty and not self.begins_anew
        return FetchPosition(
            self.leader_epoch,
            held.start_offset if self.begins_anew else held.end_offset,
            begun[-1] if has_records else -1,
            held.start_offset,
            self.high_watermark,
        )

    def has_told(self, broker_epoch: int) -> bool:
        """Whether a leader may count on the end of its log, in this life of its broker.

        The ISR is not widened by the fetches of an earlier life (KIP-903).
        """
        return self.told_in == (self.leader_epoch, broker_epoch)

    def tells(self, broker_epoch: int) -> None:
        """Record that a fetch is sent which says the end of its log."""
        self.told_in = self.leader_epoch, broker_epoch

    def judge_absence(self, held: HeldLog, absence: Absence | None) -> None:
        """Decide whether deletions may have passed its records by, so that it begins again.

        Call it when there is something to ask, before that is told. `absence` is there for a
        compacted partition.
        """
        if absence is None or held.is_empty or self.has_all_compacted:
            self.begins_anew = False
        else:
            away_ms = absence.away_ms
            self.begins_anew = away_ms is None or away_ms > absence.delete_retention_ms

    # ---- what an answer means ----

    def answered(
        self,
        asked_epoch: int,
        asked_offset: int,
        answer: FetchAnswer,
        held: HeldLog,
    ) -> TakeRecords | Truncate | RestartAt | Pause | None:
        """Return what to do next; None for an answer to what is not asked any more.

        It was asked in the leader epoch `asked_epoch` at `asked_offset`.
        The caller does what is returned, and tells how it went: `truncated`, `paused`.
        """
        told = held.start_offset if self.begins_anew else held.end_offset
        is_late = asked_epoch != self.leader_epoch or asked_offset != told
        if is_late or self.phase is not Phase.FETCHING:
            return None
        if self.begins_anew and answer.error in _LED:
            self.begins_anew = False
            self.phase = Phase.TRUNCATING
            why = "it was away for longer than its leader keeps deletions"
            return RestartAt(max(held.start_offset, answer.log_start_offset), why)
        if answer.error is ErrorCode.offset_out_of_range:
            return self._out_of_range(answer, held)
        if answer.error is not ErrorCode.none:
            return Pause(answer.error, "its leader answers so")
        if answer.diverging is None:
            self.pauses_count = 0
            return TakeRecords()
        offset = truncation_offset(*answer.diverging, held.epochs, held.end_offset)
        if offset >= held.end_offset:
            return Pause(answer.error, f"its leader diverges at {answer.diverging}, not below")
        self.phase = Phase.TRUNCATING
        if offset < held.start_offset:
            # A deletion of records that was acknowledged is not taken back.
            return RestartAt(held.start_offset, "it has no record in common with its leader")
        return Truncate(offset)

    def _out_of_range(self, answer: FetchAnswer, held: HeldLog) -> RestartAt | Pause:
        """Decide for a log that ends outside of the leader's, which has no epoch in common."""
        start = answer.log_start_offset
        if held.end_offset < start:
            self.phase = Phase.TRUNCATING
            return RestartAt(start, "its leader's log starts above its end")
        if held.is_empty and 0 <= start < held.end_offset:
            self.phase = Phase.TRUNCATING
            return RestartAt(start, "it is empty, and begins above its leader's end")
        return Pause(answer.error, "its log has an epoch that its leader never saw")

    is_follower = True

    def local_end_moved(self, log_end_offset: int) -> bool:
        """Record what counts as appended. The leader does not tell its high watermark again."""
        self.log_end_offset = log_end_offset
        return self.leader_high_watermark(self.told_high_watermark)

    def leader_high_watermark(self, high_watermark: int) -> bool:
        """Apply the leader's high watermark. Returns whether its own moved."""
        self.told_high_watermark = high_watermark
        reached = min(high_watermark, self.log_end_offset)
        if reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

    # ---- how it went ----

    def cut_begins(self, offset: int) -> None:
        """Record that the log is being cut at `offset`: no record above it is known any more."""
        self.high_watermark = min(self.high_watermark, offset)

    def paused(self, error: ErrorCode, now_ms: float, backoff_ms: float) -> None:
        """Ask nothing until the backoff has passed.

        A leader that does not know yet that it leads is asked again soon: the ISR waits for this
        replica, and so does each producer with acks=all.
        """
        soon_ms = NEWS_RETRY_MS_MIN << min(self.pauses_count, _DOUBLINGS_COUNT_MAX)
        self.phase = Phase.ERRED
        self.retry_ms = now_ms + (min(soon_ms, backoff_ms) if error in _UNHEARD else backoff_ms)
        self.pauses_count += 1

    def truncated(self, log_end_offset: int, log_start_offset: int = 0) -> None:
        """Record that the log was truncated to agree with the leader's, and where it ends now.

        That may be below the offset asked for, because a batch is removed whole: the follower
        fetches on from the end that its log has. The high watermark falls only if it is above it,
        and is not below the start of a log that began again.
        """
        self.phase = Phase.FETCHING
        self.log_end_offset = log_end_offset
        self.high_watermark = max(min(self.high_watermark, log_end_offset), log_start_offset)
