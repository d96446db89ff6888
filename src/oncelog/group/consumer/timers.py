"""Defines the timers of a consumer group's members."""

from enum import Enum, auto
from typing import NamedTuple


class MemberTimer(Enum):
    """The deadlines of a consumer group's member."""

    SESSION = auto()
    """For its next heartbeat (session timeout)."""
    REVOCATION = auto()
    """To revoke partitions (rebalance timeout)."""
    JOIN = auto()
    """To rejoin, for a classic-protocol member."""
    SYNC = auto()
    """To send SyncGroup, for a classic-protocol member."""


class TimerChange(NamedTuple):
    """Restart a member's timer, or (None) stop it."""

    timer: MemberTimer
    member_id: str
    delay_ms: int | None
    if_absent: bool = False
    """Leave it if it is running."""
