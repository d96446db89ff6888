"""Looks at a cluster at intervals, and once more at everything in the end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from oncelog.simulation.context import ClientContext

__all__ = ["Look", "look_until_told"]

Look = Callable[[], Awaitable[bool]]
"""Looks at one thing; returns whether it was answered."""


async def look_until_told(context: ClientContext, looks: Sequence[Look], pace_ms: float) -> None:
    """Look at one random thing at intervals until told to stop, then at all until all answer.

    The parameter `pace_ms` of the role is the mean interval, by default the one given here.
    """
    while not context.stopping():
        await context.pause(0, 2 * float(context.get("pace_ms", pace_ms)))
        await context.rng.choice(looks)()
    attempt = 0
    while not all([await look() for look in looks]):
        await context.back_off(attempt)
        attempt += 1
