"""A plugin of pytest that holds up each test process at random: `-p tests.support.stalls`.

A slow machine that others share does this now and then: all threads stand still for a moment, and
go on with more than one event each. So things meet in one turn of a loop that never do on an idle
machine: a connection is opened as its client gives up, a listener closes between two peers. What
fails then is a race, of the code or of its test. A test that measures memory counts the plugin's.

The interpreter's lock is held by one long multiplication, which releases it no more than a slow
call into C would. `--stalls=SHORTEST,LONGEST,APART` are seconds; the length is drawn so that each
order of magnitude is as frequent, and `APART` is the mean time between two.
"""

import random
import threading
import time
from typing import NamedTuple, Self

import pytest

__all__ = ["NAME", "Stalls"]

NAME = "stalls"
STALLS = "0.002,0.08,0.15"
"""An eighth of the time. Sessions of a second live through it."""
_MEASURED_S = 0.0015
_EXPONENT = 0.63
"""Karatsuba's method takes n**1.585 steps for n bits: this is one by the other."""


class Stalls(NamedTuple):
    """How long the process is held up, and how often. In seconds."""

    shortest_s: float
    longest_s: float
    apart_s: float

    @classmethod
    def of(cls, text: str) -> Self:
        """Read "SHORTEST,LONGEST,APART". Raises `ValueError` for anything else."""
        shortest_s, longest_s, apart_s = map(float, text.split(","))
        if not 0 < shortest_s <= longest_s or apart_s <= 0:
            raise ValueError(f"--stalls={text}: the shortest is above 0 and not above the longest")
        return cls(shortest_s, longest_s, apart_s)

    def draw_s(self, rng: random.Random) -> float:
        """Return how long the next one takes."""
        return float(self.shortest_s * (self.longest_s / self.shortest_s) ** rng.random())

    def run(self) -> None:
        """Hold the process up again and again. Never returns."""
        rng = random.Random()
        bits_count, took_s = 20_000, 0.0
        while took_s < _MEASURED_S:
            bits_count = bits_count * 3 // 2
            took_s = _multiply(bits_count)
        while True:
            time.sleep(rng.expovariate(1 / self.apart_s))
            _multiply(int(bits_count * (self.draw_s(rng) / took_s) ** _EXPONENT))


def _multiply(bits_count: int) -> float:
    """Multiply numbers of so many bits; return how many seconds that took."""
    number = (1 << bits_count) - 1
    begun_s = time.perf_counter()
    number * number
    return time.perf_counter() - begun_s


def pytest_addoption(parser: pytest.Parser) -> None:
    """Called by pytest."""
    parser.addoption("--stalls", default=STALLS, type=Stalls.of, help="seconds")


def pytest_configure(config: pytest.Config) -> None:
    """Called by pytest in each of its processes."""
    stalls = config.getoption("stalls")
    threading.Thread(target=stalls.run, name=NAME, daemon=True).start()
