"""The plain batch computation of what the streaming job should have written, and the comparison.

Pure: values in, values out. It shares no code with the job.
"""

from collections import Counter
from dataclasses import dataclass, field

from oncelog.cli.demo.flights import Flight

DELAYED_MINUTES = 60
FINDINGS_SHOWN_MAX = 10


@dataclass(frozen=True, slots=True)
class Daily:
    """The aggregate of one carrier's day."""

    flights: int
    delayed: int
    cancelled: int
    delay_minutes: int


@dataclass(frozen=True, slots=True)
class Expected:
    """What must be in the two output topics."""

    delayed_ids: frozenset[int]
    daily: dict[tuple[str, str], Daily]


@dataclass
class Comparison:
    """The result of a comparison. `findings` is empty only if the output is exact."""

    delayed_expected_count: int = 0
    delayed_seen_count: int = 0
    daily_expected_count: int = 0
    daily_right_count: int = 0
    daily_updates_count: int = 0
    findings: list[str] = field(default_factory=list)

    @property
    def exact(self) -> bool:
        """Whether nothing at all was wrong."""
        return not self.findings


def compute(flights: list[Flight]) -> Expected:
    """One pass over all flights."""
    days: dict[tuple[str, str], list[int]] = {}
    for flight in flights:
        sums = days.setdefault((flight.carrier, flight.date), [0, 0, 0, 0])
        sums[0] += 1
        sums[1] += is_delayed(flight)
        sums[2] += flight.dep_delay is None
        sums[3] += flight.dep_delay or 0
    return Expected(
        frozenset(flight.id for flight in flights if is_delayed(flight)),
        {key: Daily(*sums) for key, sums in days.items()},
    )


def is_delayed(flight: Flight) -> bool:
    """Whether a flight left more than an hour late."""
    return flight.dep_delay is not None and flight.dep_delay > DELAYED_MINUTES


def compare(
    expected: Expected,
    delayed_ids: list[int],
    updates: list[tuple[tuple[str, str], Daily]],
) -> Comparison:
    """`delayed_ids` and `updates` are what a read_committed consumer saw, in its order.

    Every delayed flight stands there exactly once; the last update of each carrier's day is right;
    and each update counts more flights than the one before it, so that no batch was written twice.
    """
    verdict = Comparison(len(expected.delayed_ids), len(delayed_ids), len(expected.daily))
    counts = Counter(delayed_ids)
    report(verdict, "missing flight", sorted(expected.delayed_ids - counts.keys()))
    report(verdict, "unexpected flight", sorted(counts.keys() - expected.delayed_ids))
    report(verdict, "repeated flight", sorted(k for k, count in counts.items() if count > 1))
    last: dict[tuple[str, str], Daily] = {}
    stale = []
    for key, daily in updates:
        if key in last and daily.flights <= last[key].flights:
            stale.append(key)
        last[key] = daily
    verdict.daily_updates_count = len(updates)
    report(verdict, "repeated update of", stale)
    wrong = [key for key in expected.daily if last.get(key) != expected.daily[key]]
    verdict.daily_right_count = len(expected.daily) - len(wrong)
    report(verdict, "wrong or missing day", wrong)
    report(verdict, "unexpected day", sorted(last.keys() - expected.daily.keys()))
    return verdict


def report(verdict: Comparison, what: str, found: list[int] | list[tuple[str, str]]) -> None:
    """Add the first few of what was found, and how many there are."""
    for item in found[:FINDINGS_SHOWN_MAX]:
        verdict.findings.append(f"{what} {item}")
    if len(found) > FINDINGS_SHOWN_MAX:
        verdict.findings.append(f"... {what}: {len(found):,} in all")
