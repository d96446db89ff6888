"""What a leader knows of one follower, by its fetches.

A fetch at an offset says that the follower has every record below it. It is *caught up* at a time
when it had reached the leader's end of that time: at its fetch if this one asks for what follows
the leader's end, else at the fetch before if it has since reached the end of that time (Kafka's
`Replica.updateFetchStateOrThrow`). So a follower that fetches all the time from a leader that
appends all the time is caught up.
"""

from __future__ import annotations

__all__ = ["FollowerProgress"]


class FollowerProgress:
    """One follower, in one leader epoch. `end_offset` is 0 until it fetches."""

    __slots__ = (
        "_due_offset",
        "_fetched_ms",
        "broker_epoch",
        "caught_up_ms",
        "confirmed_round",
        "end_offset",
        "has_lost_records",
        "log_start_offset",
        "told_high_watermark",
    )

    def __init__(self, now_ms: float) -> None:
        self.end_offset = 0
        self.caught_up_ms = now_ms
        """When it was caught up last; the begin of the leadership counts as such a time."""
        self.broker_epoch = -1
        """The life of the broker that fetched last (KIP-903); -1 until it fetches."""
        self.log_start_offset = -1
        """Where its log started at its last fetch; -1 until it fetches."""
        self.confirmed_round = 0
        """The last round of confirmations that it has confirmed; see `leader`."""
        self.has_lost_records = False
        """Whether it lost records while it counted; set and reset by the leader's state."""
        self.told_high_watermark = -1
        """The high watermark that it was told last, where it is told at once."""
        self._fetched_ms = now_ms
        self._due_offset: int | None = None
        """The leader's end at its last fetch; None before the first one."""

    def fetched(
        self,
        offset: int,
        leader_end_offset: int,
        now_ms: float,
        broker_epoch: int = -1,
        log_start_offset: int = -1,
    ) -> bool:
        """Record a fetch at `offset`. Returns whether it has lost records.

        That is where it had fetched more before, in the same life of its broker.
        """
        has_lost = offset < self.end_offset and broker_epoch == self.broker_epoch
        if offset >= leader_end_offset:
            self.caught_up_ms = now_ms
        elif self._due_offset is not None and offset >= self._due_offset:
            self.caught_up_ms = max(self.caught_up_ms, self._fetched_ms)
        self.end_offset = offset
        self.broker_epoch = broker_epoch
        self.log_start_offset = log_start_offset
        self._fetched_ms = now_ms
        self._due_offset = leader_end_offset
        return has_lost

    def seen_at_end(self, now_ms: float) -> None:
        """Record one more fetch at the leader's end, which is where it was at the last one."""
        self.caught_up_ms = self._fetched_ms = now_ms

    def diverged(self) -> None:
        """Record that it was told to truncate its log: it has less than before, and lost nothing.

        What it still has, its next fetch says.
        """
        self.end_offset = 0
        self._due_offset = None
