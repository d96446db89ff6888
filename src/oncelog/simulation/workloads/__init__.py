"""Clients built on our own Producer, Consumer, Admin and TransactionDriver, run in simulation.

Each workload is ``async def run(context)``: it works until `context.stopping()`, settles, and
records what it did as events of `oncelog.simulation.history`. It handles every error of brokers and
the network; undocumented behaviour of the client library is recorded as ``Progress("stuck: ...")``.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from oncelog.simulation.context import ClientContext
from oncelog.simulation.workloads import (
    administering,
    consuming,
    copying,
    distributed,
    exact,
    grouped,
    idempotent,
    transactional,
)

__all__ = ["WORKLOADS", "ClientContext", "Workload"]

Workload = Callable[[ClientContext], Coroutine[Any, Any, None]]

WORKLOADS: Final[Mapping[str, Workload]] = {
    "idempotent": idempotent.run,
    "transactional": transactional.run,
    "copy": copying.run,
    "consume": consuming.run,
    "exact": exact.run,
    "member": grouped.run,
    "member-copy": grouped.run_copy,
    "admin": administering.run,
    "attached": distributed.run,
    "driver": distributed.run_alone,
}
"""Every workload by its name. Its module's docstring names its parameters."""
