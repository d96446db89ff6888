"""Where a reader stands, and whether the log before it is still the one that it read (KIP-320).

A log whose tail was lost gives the same offsets out again, under a new leader epoch. So a position
carries the epoch of the batch before it. Whenever the leader or its epoch changes, the leader is
asked where that epoch ends (OffsetForLeaderEpoch): an end below the position means that what the
reader read there is gone, and that other records have its offsets. This module sends nothing.

Sources: `SubscriptionState`, `OffsetsForLeaderEpochUtils` (Java).
"""

from typing import NamedTuple

from oncelog.core.ids import TopicId

__all__ = ["NO_EPOCH", "Diverged", "Leadership", "Position", "compare", "under"]

NO_EPOCH = -1


class Leadership(NamedTuple):
    """The leader epoch of a partition, and the id of its topic."""

    topic_id: TopicId | None
    leader_epoch: int


class Position(NamedTuple):
    """The next offset to read.

    `epoch` is the leader epoch of the batch before it, -1 when unknown: then there is nothing to
    compare. `validated` is the leadership under which the log before it was last found unchanged.
    """

    offset: int
    epoch: int = NO_EPOCH
    validated: Leadership | None = None


class Diverged(NamedTuple):
    """The log parts from what the reader read at `end_offset`, where `epoch` ends.

    Both are -1 when the leader knows no epoch up to the reader's.
    """

    end_offset: int
    epoch: int


def under(position: Position, now: Leadership) -> Position | None:
    """The position as it stands under the present leader; None if that has to be asked first.

    A topic that was made again under its name is another log: the epochs of the former one say
    nothing about it.
    """
    before = position.validated
    if before == now:
        return position
    if before is not None and before.topic_id != now.topic_id:
        return Position(position.offset, NO_EPOCH, now)
    if NO_EPOCH in (position.epoch, now.leader_epoch):
        return Position(position.offset, position.epoch, now)
    return None


def compare(
    position: Position, epoch: int, end_offset: int, now: Leadership | None
) -> Position | Diverged:
    """What follows from the leader's answer that `epoch` ends at `end_offset`.

    `epoch` is the largest that the leader has up to the position's; -1 if it has none.
    """
    if epoch == NO_EPOCH or end_offset < 0:
        return Diverged(-1, NO_EPOCH)
    if end_offset < position.offset:
        return Diverged(end_offset, epoch)
    return Position(position.offset, epoch, now)
