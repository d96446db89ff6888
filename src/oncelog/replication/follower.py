"""A follower of a partition, or a replica that waits for a leader."""

from __future__ import annotations

from oncelog.replication.replica import ReplicaState

__all__ = ["FollowerState"]


class FollowerState(ReplicaState):
    """Follows the leader of one leader epoch."""

    __slots__ = ()

    is_follower = True

    def leader_high_watermark(self, high_watermark: int) -> bool:
        """Apply the leader's high watermark. Returns whether its own moved."""
        reached = min(high_watermark, self.log_end_offset)
        if reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

    def truncated(self, log_end_offset: int) -> None:
        """Record that the log was truncated to agree with the leader's, and where it ends now.

        That may be below the offset asked for, because a batch is removed whole: the follower
        fetches on from the end that its log has. The high watermark falls only if it is above it.
        """
        self.log_end_offset = log_end_offset
        self.high_watermark = min(self.high_watermark, log_end_offset)
