"""Which of the oldest segments may go: by age, by size, or because the log's start passed them.

It changes nothing. Only whole segments below the high watermark go, oldest first, so that what
remains is one unbroken stretch.
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
    """How many of the oldest segments to delete.

    All of them means: roll first (an empty log stays as it is).
    """
    by_policy = "delete" in config.cleanup_policy
    excess = sum(segment.size for segment in segments) - config.retention_bytes
    count = 0
    for segment in segments:
        is_active = count == len(segments) - 1
        if segment.end_offset > high_watermark or (is_active and segment.size == 0):
            break
        passed = not is_active and segment.end_offset <= log_start_offset
        aged = (
            by_policy
            and config.retention_ms >= 0
            and segment.newest_ms() < now_ms - config.retention_ms
        )
        oversized = (
            by_policy and not is_active and config.retention_bytes >= 0 and excess >= segment.size
        )
        if not (passed or aged or oversized):
            break
        excess -= segment.size
        count += 1
    return count
