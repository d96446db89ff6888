"""Where a follower truncates its log when the leader's diverges from it (KIP-101, KIP-279).

A follower's fetch says the epoch of its last record. The leader answers with its own largest epoch
not above that one, and with the end of that epoch, where these differ from what the follower has.
Never the high watermark: it may be behind what is committed.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["truncation_offset"]


def truncation_offset(
    answered_epoch: int,
    answered_end_offset: int,
    epochs: Sequence[tuple[int, int]],
    log_end_offset: int,
) -> int:
    """Return where the follower's log has to end before it asks again.

    That is the smaller of the answered end and the end of its own largest epoch not above the
    answered one: it may have epochs that the leader never saw. They can still disagree below, so it
    asks again until the leader answers with records. `epochs` are the follower's own, with the
    offsets where they begin, rising.
    """
    own_end_offset = log_end_offset
    for epoch, start_offset in reversed(epochs):
        if epoch <= answered_epoch:
            break
        own_end_offset = start_offset
    return min(answered_end_offset, own_end_offset)
