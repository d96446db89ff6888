"""Simulates the world of one run: its brokers and clients, their network, and one store.

`cluster` kills, pauses, cuts and restarts brokers; the plan decides when, and the checkers judge
the result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from oncelog.controller.image import MetadataImage
from oncelog.simulation.access.world import WorldAccess
from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import Acked, Event, Logged, Sent
from oncelog.simulation.machines import Machines
from oncelog.simulation.name_user import NameUser
from oncelog.simulation.node import BrokerNode
from oncelog.simulation.plan import Plan
from oncelog.simulation.process import Process
from oncelog.simulation.replica_audit import ReplicaAudit
from oncelog.simulation.replica_folders import FolderAudit

__all__ = ["HistoryLog", "World"]

PROBE_S: Final = 0.25
"""Pause between two readings of a broker's watermarks."""
AUDIT_S: Final = 0.05
"""Pause between two comparisons of a broker with its disk while faults strike."""


class World(Machines):
    """The state of one run, without its clients."""

    def __init__(self, plan: Plan, *, keep_trace: bool = False) -> None:
        super().__init__(plan, keep_trace=keep_trace)
        self.replicas = ReplicaAudit(self.store.replica_of)
        self.folders = FolderAudit(self.store)
        self.nodes = [BrokerNode(self, index, settings) for index, settings in _settings(plan)]
        for node in self.nodes:
            node.named_by = partial(self._images_besides, node)
        self.access = WorldAccess(self, self.nodes) if plan.security else None
        if self.access is not None:
            for node in self.nodes:
                node.watch_access = partial(self.access.watch_of, node)
        self.store.read_log = lambda label, broker: self.nodes[broker].log_on_disk(label)

    def use_names(self) -> None:
        """Have a client ask each coordinator as soon as another broker names it."""
        user = NameUser(self.new_process("user of names", "10.0.2.1"), self._address_of)
        for node in self.nodes:
            node.on_applied = partial(user.applied, node.index)

    def _address_of(self, index: int) -> tuple[str, int] | None:
        """Return the address of a broker that serves."""
        node = self.nodes[index] if 0 <= index < len(self.nodes) else None
        return node.address if node is not None and node.is_serving else None

    def _images_besides(self, node: BrokerNode) -> list[MetadataImage]:
        """Return the metadata from which others answer; none while the broker cannot read it."""
        if node.living is None or not self.store.of(node.living).is_whole:
            return []
        others = [each for each in self.nodes if each is not node and each.is_serving]
        return [each.broker.image for each in others if each.broker is not None]

    @property
    def broker(self) -> BrokerNode:
        """The first broker: the only one of most plans."""
        return self.nodes[0]

    @property
    def members(self) -> list[BrokerNode]:
        """The brokers that the cluster has: not those that come late or are gone for good."""
        return [node for node in self.nodes if node.is_member]

    def context(
        self,
        process: Process,
        *,
        stopping: Callable[[], bool] = lambda: False,
        parameters: Mapping[str, Any] | None = None,
    ) -> ClientContext:
        """Return the context of a client in this process.

        Its parameter `home` is the index of the broker that it asks first.
        """
        parameters = parameters or {}
        return ClientContext(
            name=process.name,
            bootstrap=self.nodes[parameters.get("home", 0)].address,
            network=process.network,
            clock=process.clock,
            rng=process.rng,
            history=self.history_of(process),
            now_s=lambda: self.now_s,
            stopping=stopping,
            parameters=parameters,
            settings=self.broker.settings,
            login=None if self.access is None else self.access.login_of(process),
        )

    def _happened(self, event: Event) -> None:
        super()._happened(event)
        if isinstance(event, Acked):
            self.replicas.acknowledged(event)
        elif isinstance(event, Sent):
            self.replicas.sent(event)

    def look_at_replicas(self) -> None:
        """Compare the logs of all replicas with what is committed."""
        if len(self.nodes) > 1:
            for differs in self.replicas.look(self.nodes, self.now_s):
                self.record(differs)
            for node, text in self.folders.look(self.nodes):
                node.find_fault("a folder", [text])

    def start_probing(self) -> None:
        """Record the watermarks of all partitions at intervals."""
        if self.is_over:
            return
        for node in self.nodes:
            node.probe()
            node.audit_all()
        self.look_at_replicas()
        self.scheduler.call_after(PROBE_S, None, self.start_probing)

    def start_auditing(self, until_s: float) -> None:
        """Compare the brokers with their disks at short intervals."""
        for node in self.nodes:
            node.audit_all()
        self.look_at_replicas()
        if self.now_s < until_s:
            self.scheduler.call_after(AUDIT_S, None, self.start_auditing, until_s)


def _settings(plan: Plan) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield the settings of each broker; the only one of a plan keeps the default of its id."""
    for index in range(plan.brokers):
        own = {"node.id": str(index)} if plan.brokers > 1 else {}
        if plan.racks:
            own["broker.rack"] = plan.racks[index]
        yield index, {**plan.broker, **own}


class HistoryLog(logging.Handler):
    """Adds brokers' log lines from WARNING on to the history."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        """Add a log line. `logging` calls it."""
        world = self._world
        process = world.scheduler.current
        if process is not None and process.alive:
            text = f"{record.name}: {record.getMessage()}"
            error = record.exc_info[1] if record.exc_info else None
            if error is not None:
                text += f" ({type(error).__name__}: {error})"
            world.record(Logged(world.now_s, process.name, record.levelname, text))
