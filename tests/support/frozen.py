"""The two ways in which tests replace the time of their process."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime

import freezegun
import time_machine

__all__ = ["FREEZERS", "PAST", "Freezer"]

PAST = datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)
"""A billion seconds after 1970."""

Freezer = Callable[[datetime], AbstractContextManager[object]]


def _travel(when: datetime) -> AbstractContextManager[object]:
    return time_machine.travel(when, tick=False)


FREEZERS: dict[str, Freezer] = {"freezegun": freezegun.freeze_time, "time-machine": _travel}
