"""Draws which brokers come late to a cluster, and which one an operator takes away for good.

No client asks these first. An operator gives partitions to a late one, and drains the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from oncelog.simulation.plan import Plan, PlannedFault, part_rng

__all__ = ["MemberChanges", "drawn_changes", "with_changes"]

LATE_CHANCE: Final = 0.15
GONE_CHANCE: Final = 0.15
"""The share of runs of three brokers or more in which one comes late, or one is taken away."""
_MAKE_TOPICS: Final = frozenset({"admin"})
"""The operator would not know of their topics, which a broker that it drains may have."""


@dataclass(frozen=True, slots=True)
class MemberChanges:
    """The brokers of a run, and who of them is not there from the beginning to the end."""

    brokers: int
    late: int | None = None
    gone: int | None = None

    @property
    def any(self) -> bool:
        """Return whether there is anyone."""
        return (self.late, self.gone) != (None, None)

    @property
    def homes(self) -> list[int]:
        """Return the brokers that are always there."""
        return [each for each in range(self.brokers) if each not in (self.late, self.gone)]


def drawn_changes(seed: int, count: int) -> MemberChanges:
    """Draw who comes and goes among so many brokers. The first one stays."""
    rng = part_rng(seed, "members")
    is_late, is_gone = rng.random() < LATE_CHANCE, rng.random() < GONE_CHANCE
    if count <= 2:
        return MemberChanges(count)
    late = count - 1 if is_late else None
    gone = rng.randrange(1, count - 1 if is_late else count) if is_gone else None
    return MemberChanges(count, late, gone)


def with_changes(plan: Plan, changes: MemberChanges) -> Plan:
    """Return the plan with them."""
    rng = part_rng(plan.seed, "changes of members")
    faults, late, clients = [*plan.faults], plan.late, plan.clients
    if changes.late is not None:
        late = (changes.late,)
        faults.append(PlannedFault("a0", "add-broker", rng.uniform(0.3, 2.0)))
    if changes.gone is not None:
        faults.append(PlannedFault("a1", "retire-broker", 0.0, {"broker": changes.gone}))
        clients = tuple(each for each in clients if each.role not in _MAKE_TOPICS)
    return replace(plan, faults=tuple(faults), late=late, clients=clients)
