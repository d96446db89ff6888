"""Defines the keys of the group coordinator's timers."""

from enum import Enum, auto
from typing import NamedTuple


class TimerKind(Enum):
    """The purpose of a deadline."""

    SESSION = auto()
    JOIN = auto()
    SYNC = auto()
    SWEEP = auto()
    REVOCATION = auto()
    MEMBER_JOIN = auto()
    MEMBER_SYNC = auto()

    # A kind is a singleton; Enum would hash its name by a Python function.
    __hash__ = object.__hash__


class TimerKey(NamedTuple):
    """Identifies one deadline; only the sweep has no `group_id`, only a member's a `member_id`."""

    kind: TimerKind
    group_id: str = ""
    member_id: str = ""
