"""Tracks a reader's position, and whether the log before it is still the same (KIP-320).

A log that lost its tail assigns the same offsets again, under a new leader epoch. So a position
contains the epoch of the batch before it. Whenever the leader or its epoch changes, the leader is
asked where that epoch ends (OffsetForLeaderEpoch): an end below the position means that records
which the reader read are lost, and that other records have their offsets. This module sends
nothing.

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

    `epoch` is the leader epoch of the batch before it, -1 when unknown: then the position cannot be
    validated. `validated` is the leadership under which it was last validated.
    """

    offset: int
    epoch: int = NO_EPOCH
    validated: Leadership | None = None


class Diverged(NamedTuple):
    """From `end_offset` on, where `epoch` ends, the log differs from what the reader read.

    Both are -1 when the leader knows no epoch up to the reader's.
    """

    end_offset: int
    epoch: int


def under(position: Position, now: Leadership) -> Position | None:
    """Return the position under the present leader; None if it has to be validated first.

    A topic that was created again under its name is another log: the epochs of the former one do
    not apply.
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
    """Decide by the leader's answer that `epoch` ends at `end_offset`.

    `epoch` is the leader's largest up to the position's; -1 if it has none.
    """
    if epoch == NO_EPOCH or end_offset < 0:
        return Diverged(-1, NO_EPOCH)
    if end_offset < position.offset:
        return Diverged(end_offset, epoch)
    return Position(position.offset, epoch, now)
