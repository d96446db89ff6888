"""What members of a consumer group are waited for with."""

from enum import Enum, auto
from typing import NamedTuple


class MemberTimer(Enum):
    """What a member of a consumer group is waited for with."""

    SESSION = auto()
    """For its next heartbeat."""
    REVOCATION = auto()
    """For it to give partitions up."""
    JOIN = auto()
    """For one of the classic protocol to join again."""
    SYNC = auto()
    """For one of the classic protocol to fetch its assignment."""


class TimerChange(NamedTuple):
    """Start a member's timer anew, or (None) stop it."""

    timer: MemberTimer
    member_id: str
    delay_ms: int | None
    if_absent: bool = False
    """Leave it if it is running."""
