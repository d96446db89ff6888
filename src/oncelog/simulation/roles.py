"""Lists the roles of a run's clients, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.simulation.client import RoleRun
from oncelog.simulation.peers.roles import ROLES as SCRIPTED
from oncelog.simulation.workloads import WORKLOADS

__all__ = ["ROLES"]

ROLES: Final[Mapping[str, RoleRun]] = {
    **WORKLOADS,
    **{f"peer-{name}": run for name, run in SCRIPTED.items()},
}
"""The roles of Oncelog's own clients, and of scripted ones ("peer-...")."""
