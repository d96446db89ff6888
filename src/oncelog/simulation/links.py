"""The links between simulated machines: their delays, and whether bytes arrive.

A link leads from one machine to another; the opposite direction is another link. Faults are stored
apart from links: a link is computed again from all active faults whenever one begins or ends. This
module knows machines by name and no connections.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

__all__ = ["ANYWHERE", "FaultHandle", "Link", "LinkFault", "Links"]

ANYWHERE: Final = "*"
"""Every machine except the other one named; traffic within a machine is not affected."""

LATENCY_S: Final = (0.00005, 0.002)
"""The shortest delay between two machines in seconds, drawn evenly on a logarithmic scale."""

OWN_LATENCY_S: Final = (0.00001, 0.00005)
"""The same on one machine."""

JITTER_SHARE: Final = 2.0
"""The longest delay of a link minus its shortest, as a share of the shortest."""


class Link:
    """The link from one machine to another. `arrival_s` is a hot path."""

    __slots__ = (
        "base_s",
        "blocked",
        "bytes_per_s",
        "free_at_s",
        "jitter_s",
        "latency_s",
        "source",
        "target",
    )

    def __init__(self, source: str, target: str, base_s: float) -> None:
        self.source = source
        self.target = target
        self.base_s = base_s
        self.latency_s = base_s
        self.jitter_s = base_s * JITTER_SHARE
        self.bytes_per_s = 0.0
        """Bytes per second; 0: no limit."""
        self.blocked = False
        self.free_at_s = 0.0
        """The time at which a throttled link has sent all its bytes."""

    def delay_s(self, luck: float) -> float:
        """Return the delay of one packet in seconds; `luck` is drawn from [0, 1)."""
        return self.latency_s + self.jitter_s * luck * luck * luck

    def arrival_s(self, now_s: float, size: int, luck: float) -> float:
        """Return the time at which `size` bytes arrive that are sent now."""
        if self.bytes_per_s:
            self.free_at_s = now_s = max(now_s, self.free_at_s) + size / self.bytes_per_s
        return now_s + self.latency_s + self.jitter_s * luck * luck * luck


@dataclass(slots=True, eq=False)
class LinkFault:
    """Makes the links between `a` and `b` slow or impassable; `both`: in both directions.

    `a` and `b` are addresses or process names, or `ANYWHERE`.
    """

    a: str
    b: str
    both: bool = True
    extra_s: float = 0.0
    jitter_s: float = 0.0
    bytes_per_s: float = 0.0
    blocks: bool = False


@dataclass(slots=True, eq=False)
class FaultHandle:
    """A fault with a duration. `lift` ends it; a second call does nothing."""

    kind: str
    _lift: Callable[[], None]
    active: bool = field(default=True)

    def lift(self) -> None:
        """End the fault."""
        if self.active:
            self.active = False
            self._lift()


class Links:
    """All links of a run, created at first use, and the faults on them."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._links: dict[tuple[str, str], Link] = {}
        self._faults: list[LinkFault] = []
        self._host_of: dict[str, str] = {}

    def name(self, process: str, host: str) -> bool:
        """Store the machine of a process, by name; return whether it is new."""
        if self._host_of.get(process) == host:
            return False
        self._host_of[process] = host
        self.compute()
        return True

    def host_of(self, name: str) -> str:
        """Return the address of a process; any other text is returned as it is."""
        return self._host_of.get(name, name)

    def between(self, source: str, target: str) -> Link:
        """The link from one address to another."""
        link = self._links.get((source, target))
        if link is None:
            low_s, high_s = OWN_LATENCY_S if source == target else LATENCY_S
            base_s = math.exp(self._rng.uniform(math.log(low_s), math.log(high_s)))
            link = self._links[source, target] = Link(source, target, base_s)
            self._apply_faults(link)
        return link

    def add(self, fault: LinkFault) -> None:
        """Begin a fault."""
        self._faults.append(fault)
        self.compute()

    def remove(self, fault: LinkFault) -> None:
        """End it."""
        self._faults.remove(fault)
        self.compute()

    def compute(self) -> None:
        """Compute all links again."""
        for link in self._links.values():
            self._apply_faults(link)

    def _apply_faults(self, link: Link) -> None:
        link.latency_s = link.base_s
        link.jitter_s = link.base_s * JITTER_SHARE
        link.bytes_per_s = 0.0
        link.blocked = False
        for fault in self._faults:
            if not self._touches(fault, link):
                continue
            link.latency_s += fault.extra_s
            link.jitter_s += fault.jitter_s
            link.blocked |= fault.blocks
            if fault.bytes_per_s:
                link.bytes_per_s = min(link.bytes_per_s or fault.bytes_per_s, fault.bytes_per_s)

    def _touches(self, fault: LinkFault, link: Link) -> bool:
        return self._leads(fault.a, fault.b, link) or (
            fault.both and self._leads(fault.b, fault.a, link)
        )

    def _leads(self, a: str, b: str, link: Link) -> bool:
        if ANYWHERE in (a, b) and link.source == link.target:
            return False
        return (a == ANYWHERE or self.host_of(a) == link.source) and (
            b == ANYWHERE or self.host_of(b) == link.target
        )
