"""Lists the roles of scripted clients, by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

from oncelog.simulation.context import ClientContext
from oncelog.simulation.peers import (
    admin,
    auditor,
    consumer,
    coordinated,
    copier,
    exact,
    exact_admin,
    exact_groups,
    exact_log,
    exact_wire,
    member,
    operator,
    probe,
    producer,
    replicas,
    transactions,
)

__all__ = ["ROLES", "Role"]

Role = Callable[[ClientContext], Awaitable[None]]

ROLES: Final[Mapping[str, Role]] = MappingProxyType(
    {
        "producer": producer.run,
        "transactions": transactions.run,
        "copier": copier.run,
        "consumer": consumer.run,
        "member": member.run,
        "admin": admin.run,
        "probe": probe.run,
        "exact": exact.run,
        "exact-admin": exact_admin.run,
        "exact-groups": exact_groups.run,
        "exact-log": exact_log.run,
        "exact-wire": exact_wire.run,
        "auditor": auditor.run,
        "coordinated": coordinated.run,
        "replicas": replicas.run,
        "operator": operator.run,
    }
)
