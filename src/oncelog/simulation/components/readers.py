"""Simulates what a reader decides alone: what it shows, what it knows, and how long it waits."""

from __future__ import annotations

import random
from collections.abc import Iterator

from oncelog.simulation.components.reader_places import places
from oncelog.simulation.components.reader_records import reads
from oncelog.simulation.components.reader_waits import waits

__all__ = ["readers"]


def readers(rng: random.Random) -> Iterator[str]:
    """Simulate the records that some readers have, where they go on, and their patience."""
    yield from reads(rng)
    yield from places(rng)
    yield from waits(rng)
