"""Plans a run from its seed before it begins: configs, topics, clients, faults.

Every part has an id ("c3", "f7") and randomness of its own, drawn from the seed and the id. So a
part can be left out without changing what the others draw, which is how a finding is made smaller.
"""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

__all__ = [
    "Plan",
    "PlannedClient",
    "PlannedFault",
    "PlannedTopic",
    "from_json",
    "part_rng",
    "to_json",
]

Settings = Mapping[str, str]


def part_rng(seed: int, part: str) -> random.Random:
    """The randomness of one part of a run."""
    return random.Random(f"{seed}:{part}")


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """A topic that is created at the start, and how many replicas each of its partitions has."""

    name: str
    partitions: int
    configs: Settings = field(default_factory=dict)
    replicas: int = 1


@dataclass(frozen=True, slots=True)
class PlannedClient:
    """A client that starts at `start_s`. `role` names it in `oncelog.simulation.roles`."""

    id: str
    role: str
    start_s: float
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """A fault that strikes at `at_s`. `kind` names it in `oncelog.simulation.faults`."""

    id: str
    kind: str
    at_s: float
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a run. `duration_s` is the time with faults, without the settling afterwards."""

    seed: int
    profile: str
    duration_s: float
    broker: Settings
    topics: tuple[PlannedTopic, ...]
    clients: tuple[PlannedClient, ...]
    faults: tuple[PlannedFault, ...]
    final_restarts: tuple[str, ...] = ()
    """How brokers are restarted before the last look: "stop", "kill" or "power"."""
    components: tuple[str, ...] = ()
    """What is simulated by itself as well: names of `oncelog.simulation.components`."""
    brokers: int = 1
    """How many brokers there are, of one metadata store."""
    racks: tuple[str, ...] = ()
    """The rack of each broker, if they have one."""
    late: tuple[int, ...] = ()
    """Brokers that are not started with the others: a fault "add-broker" starts them, if any."""
    security: Mapping[str, Any] = field(default_factory=dict)
    """Whose rights change, and how long sessions last (`draw_access`); empty: all may do all."""

    @property
    def flush_every_message(self) -> bool:
        """Whether every record is synced before it is acknowledged."""
        return self.broker.get("log.flush.interval.messages") == "1"

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the ids of all parts that can be left out."""
        restarts = tuple(f"r{index}" for index in range(len(self.final_restarts)))
        clients, faults = (c.id for c in self.clients), (f.id for f in self.faults)
        return (*clients, *faults, *restarts, *self.components)

    def without(self, left_out: Collection[str]) -> Plan:
        """Return the plan without some of its parts."""
        return replace(
            self,
            clients=tuple(c for c in self.clients if c.id not in left_out),
            faults=tuple(f for f in self.faults if f.id not in left_out),
            final_restarts=tuple(
                kind
                for index, kind in enumerate(self.final_restarts)
                if f"r{index}" not in left_out
            ),
            components=tuple(name for name in self.components if name not in left_out),
        )

    def rng(self, part: str) -> random.Random:
        """Return the randomness of one part."""
        return part_rng(self.seed, part)


def to_json(plan: Plan) -> str:
    """Return the plan as JSON: a line for each topic, client and fault, so that it can be read.

    A seed alone gives another run once `draw` has changed.
    """
    lines = []
    for name, value in asdict(plan).items():
        if isinstance(value, (list, tuple)) and value:
            parts = ",\n  ".join(json.dumps(each) for each in value)
            lines.append(f"{json.dumps(name)}: [\n  {parts}\n ]")
        else:
            lines.append(f"{json.dumps(name)}: {json.dumps(value)}")
    return "{\n " + ",\n ".join(lines) + "\n}"


def from_json(text: str) -> Plan:
    """Read what `to_json` returned."""
    table = json.loads(text)
    return Plan(
        **{
            **table,
            "topics": tuple(PlannedTopic(**topic) for topic in table["topics"]),
            "clients": tuple(PlannedClient(**client) for client in table["clients"]),
            "faults": tuple(PlannedFault(**fault) for fault in table["faults"]),
            "final_restarts": tuple(table["final_restarts"]),
            "components": tuple(table.get("components", ())),
            "racks": tuple(table.get("racks", ())),
            "late": tuple(table.get("late", ())),
        }
    )
