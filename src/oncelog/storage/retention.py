"""Selects the oldest segments to delete: by age, by size, or below the log start offset.

It changes nothing. Only whole segments below the high watermark are selected, oldest first, so that
the log stays without gaps.
"""

from collections.abc import Sequence

from oncelog.storage.config import LogConfig
from oncelog.storage.segment import Segment

__all__ = ["expired_segments_count"]


def expired_segments_count(
    segments: Sequence[Segment],
    config: LogConfig,
    now_ms: int,
    high_watermark: int,
    log_start_offset: int,
) -> int:
    """Return how many of the oldest segments to delete.

    If that is all of them, roll first (an empty log does not change).
    """
    by_policy = "delete" in config.cleanup_policy
    excess = sum(segment.size for segment in segments) - config.retention_bytes
    count = 0
    for segment in segments:
        is_active = count == len(segments) - 1
        # A follower may still need what is not below the high watermark, and an empty active
        # segment would be replaced by another empty one at each check.
        if segment.end_offset > high_watermark or (is_active and segment.size == 0):
            break
        # Deleted records go whatever the policy is (KIP-107), compacted topics included.
        passed = not is_active and segment.end_offset <= log_start_offset
        aged = (
            by_policy
            and config.retention_ms >= 0
            and segment.newest_ms() < now_ms - config.retention_ms
        )
        # Only whole segments: at least `retention.bytes` always remain.
        oversized = by_policy and config.retention_bytes >= 0 and excess >= segment.size
        if not (passed or aged or oversized):
            break
        excess -= segment.size
        count += 1
    return count
