"""Injects planned faults: chooses each target, and ends a fault after its duration.

There is one method per kind, named after it. Each fault is counted and is an event of the history.
The checkers decide what may happen under a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from oncelog.simulation.client import ClientNode
from oncelog.simulation.cluster import SimulatedCluster
from oncelog.simulation.disk import FaultKind
from oncelog.simulation.history import Event, Fault, Polled
from oncelog.simulation.injector_cluster import ClusterFaults
from oncelog.simulation.node import POWER, BrokerNode
from oncelog.simulation.plan import PlannedFault
from oncelog.simulation.process import Process, ProcessDied
from oncelog.simulation.world import World

__all__ = ["Injector"]

Parameters = Mapping[str, Any]

STORE: Final = "store"
AT_ONCE_S: Final = 0.0015
"""A shorter delay has no effect."""


class Injector(ClusterFaults):
    """Injects faults into one world."""

    def __init__(
        self, world: World, cluster: SimulatedCluster, clients: Sequence[ClientNode]
    ) -> None:
        self._world = world
        self._cluster = cluster
        self._clients = {client.id: client for client in clients}
        self._rng = world.plan.rng("injector")
        self._healed = False

    def strike(self, fault: PlannedFault) -> None:
        """Inject one fault, unless all faults have been healed already."""
        if self._healed:
            return
        method = getattr(self, "_" + fault.kind.replace("-", "_"))
        target = method(fault.parameters)
        if target is not None:
            self._note(fault.kind, target, fault.parameters)

    def heal(self) -> None:
        """End all active faults, start everything that is down, and have an operator look on."""
        self._healed = True
        world = self._world
        world.network.heal()
        world.store.heal()
        for node in world.nodes:
            node.disk.faults.heal()
            if node.living is not None:
                node.disk.disarm_kill(node.living)
        for process in self._processes():
            process.thaw()
            process.disarm()
        for node in world.nodes:
            if not node.is_gone:
                node.start()
        self._give_up_lost_disks()
        if world.access is not None:
            world.access.restore()

    def restart(self, kind: str, broker: int) -> None:
        """Restart a broker at the end of a run, by a "stop", "kill" or "power"."""
        self._note({"power": "power-loss"}.get(kind, kind), self._world.nodes[broker].name, {})
        self._cluster.restart(broker, kind)

    def _note(self, kind: str, target: str, parameters: Parameters) -> None:
        now_s = self._world.now_s
        detail = ", ".join(f"{key}={value}" for key, value in parameters.items())
        until_s = now_s + float(parameters.get("for_s", 0.0))
        self._world.record(Fault(now_s, "", kind, target, detail, until_s))

    def _processes(self) -> list[Process]:
        brokers = [node.process for node in self._world.nodes]
        found = [*brokers, *(client.process for client in self._clients.values())]
        return [process for process in found if process is not None]

    def _client(self, parameters: Parameters) -> ClientNode | None:
        client = self._clients.get(str(parameters.get("client")))
        return client if client is not None and client.process is not None else None

    def _index(self, parameters: Parameters) -> int:
        """Return the broker that a fault meets. Plans of one broker name none."""
        return int(parameters.get("broker", 0))

    def _node(self, parameters: Parameters) -> BrokerNode:
        return self._world.nodes[self._index(parameters)]

    # --- the network

    def _delay(self, parameters: Parameters) -> str | None:
        if (client := self._client(parameters)) is None:
            return None
        until_s = self._world.now_s + float(parameters["for_s"])
        self._world.network.delay(
            client.host,
            self._node(parameters).host,
            extra_s=float(parameters["extra_s"]),
            jitter_s=float(parameters["jitter_s"]),
            until_s=until_s,
        )
        return client.id

    def _throttle(self, parameters: Parameters) -> str | None:
        if (client := self._client(parameters)) is None:
            return None
        self._world.network.throttle(
            client.host,
            self._node(parameters).host,
            bytes_per_s=float(parameters["bytes_per_s"]),
            until_s=self._world.now_s + float(parameters["for_s"]),
        )
        return client.id

    def _partition(self, parameters: Parameters) -> str | None:
        return self._part(parameters, both=True)

    def _one_way_partition(self, parameters: Parameters) -> str | None:
        return self._part(parameters, both=False)

    def _part(self, parameters: Parameters, *, both: bool) -> str | None:
        if (client := self._client(parameters)) is None:
            return None
        ends = [client.host, self._node(parameters).host]
        self._rng.shuffle(ends)
        self._cluster.cut(ends[0], ends[1], float(parameters["for_s"]), both=both)
        return client.id

    def _drop(self, parameters: Parameters) -> str | None:
        if (client := self._client(parameters)) is None:
            return None
        network = self._world.network
        dropped = network.drop_connection(
            self._rng, network.between(client.host, self._node(parameters).host)
        )
        return None if dropped is None else client.id

    def _drop_at_byte(self, parameters: Parameters) -> str | None:
        return self._drop_later(parameters, half_open=False)

    def _half_open(self, parameters: Parameters) -> str | None:
        return self._drop_later(parameters, half_open=True)

    def _drop_later(self, parameters: Parameters, *, half_open: bool) -> str | None:
        if (client := self._client(parameters)) is None:
            return None
        network = self._world.network
        network.arm_drop(
            network.between(client.host, self._node(parameters).host),
            int(parameters["bytes"]),
            "to server" if parameters["to_broker"] else "to client",
            half_open,
        )
        return client.id

    # --- processes

    def _kill(self, parameters: Parameters) -> str | None:
        node = self._node(parameters)
        if node.living is None:
            return None
        node.kill()
        return node.name

    def _stop(self, parameters: Parameters) -> str | None:
        node = self._node(parameters)
        if not node.is_serving:
            return None
        node.request_stop()
        return node.name

    def _kill_at_await(self, parameters: Parameters) -> str | None:
        node = self._node(parameters)
        if node.living is None:
            return None
        node.living.kill_after_steps(int(parameters["steps"]), "kill")
        return node.name

    def _kill_while_starting(self, parameters: Parameters) -> str | None:
        """Kill the broker now, and again during its next start."""
        node = self._node(parameters)
        steps = int(parameters["steps"])

        def arm(process: Process) -> None:
            node.before_start.remove(arm)
            if not self._healed:
                process.kill_after_steps(steps // 4, "kill")

        node.before_start.append(arm)
        node.kill()
        return node.name

    def _kill_at_operation(self, parameters: Parameters) -> str | None:
        return self._die_at_operation(parameters, "kill")

    def _power_loss_at_operation(self, parameters: Parameters) -> str | None:
        """Lose power at a file operation of the process."""
        return self._die_at_operation(parameters, POWER)

    def _die_at_operation(self, parameters: Parameters, cause: str) -> str | None:
        node = self._node(parameters)
        if node.living is None:
            return None
        node.disk.arm_kill(
            node.living,
            after_operations=int(parameters["operations"]),
            moment=parameters["when"],
            rng=self._rng,
            cause=cause,
            aim=str(parameters.get("aim", "")),
        )
        return node.name

    def _kill_at_event(self, parameters: Parameters) -> str | None:
        """Kill the broker shortly after the next time that a client records the named event."""
        node, delay_s = self._node(parameters), float(parameters["delay_s"])

        def strike(_: Process, __: Event) -> None:
            if delay_s < AT_ONCE_S:
                # Before the client's next action, which may be in the same callback.
                self._kill_unless_healed(node)
            else:
                self._world.scheduler.call_after(delay_s, None, self._kill_unless_healed, node)

        self._world.watch(str(parameters["event"]), strike)
        return node.name

    def _kill_unless_healed(self, node: BrokerNode) -> None:
        if not self._healed:
            node.kill()

    def _power_loss(self, parameters: Parameters) -> str | None:
        node = self._node(parameters)
        node.lose_power()
        return node.name

    def _power_loss_at_read(self, parameters: Parameters) -> str | None:
        """Lose power when a reader has been handed records that are not synced.

        The reader freezes meanwhile, so that others may write at the offsets behind which it is.
        """
        node, for_s = self._node(parameters), float(parameters["for_s"])

        def strike(process: Process, event: Event) -> None:
            if self._healed:
                return
            if not isinstance(event, Polled) or not node.has_unsynced_below(
                event.topic_partition, event.position
            ):
                self._world.watch("Polled", strike)
                return
            self._note("power-loss-at-read", node.name, parameters)
            node.lose_power()
            if not process.frozen:
                self._freeze_for(process, for_s)

        self._world.watch("Polled", strike)
        return None

    def _freeze(self, parameters: Parameters) -> str | None:
        node = self._node(parameters)
        if node.living is None or node.living.frozen:
            return None
        self._cluster.pause(self._index(parameters), float(parameters["for_s"]))
        return node.name

    def _zombie_client(self, parameters: Parameters) -> str | None:
        if (client := self._client(parameters)) is None or client.process is None:
            return None
        if not client.process.alive or client.process.frozen:
            return None
        self._freeze_for(client.process, 2.0 * float(parameters["for_s"]))
        return client.id

    def _freeze_for(self, process: Process, for_s: float) -> None:
        process.freeze()
        self._world.scheduler.call_after(for_s, None, process.thaw)

    def _kill_client(self, parameters: Parameters) -> str | None:
        if (client := self._client(parameters)) is None:
            return None
        client.kill()
        return client.id

    def _kill_client_at_event(self, parameters: Parameters) -> str | None:
        """Kill the client that records the named event next, in the same callback."""

        def strike(process: Process, _: Event) -> None:
            client = self._clients.get(process.name.partition(".")[0])
            if self._healed or client is None or process is not client.process:
                return
            self._note("kill-client-at-event", client.id, parameters)
            client.kill()
            raise ProcessDied(f"{process.name} died")

        self._world.watch(str(parameters["event"]), strike)
        return None

    # --- the store

    def _store_away(self, parameters: Parameters) -> str:
        store = self._world.store
        store.go_away()
        self._later(parameters, setattr, store, "is_away", False)
        return STORE

    def _store_slow(self, parameters: Parameters) -> str:
        store = self._world.store
        store.extra_s = float(parameters["extra_s"])
        self._later(parameters, setattr, store, "extra_s", 0.0)
        return STORE

    def _store_answer_lost(self, parameters: Parameters) -> str:
        self._world.store.answers_lost_count += int(parameters["count"])
        return STORE

    def _later(self, parameters: Parameters, call: Callable[..., None], *values: object) -> None:
        self._world.scheduler.call_after(float(parameters["for_s"]), None, call, *values)

    # --- rights

    def _take_right(self, parameters: Parameters) -> str | None:
        """Take a right of a client away and give it back later: now, or behind an event of it."""
        event = str(parameters.get("event", ""))
        if not event:
            return self._take_right_now(parameters)

        def strike(process: Process, _: Event) -> None:
            if self._healed:
                return
            if process.name.partition(".")[0] != parameters["client"]:
                self._world.watch(event, strike)
                return
            target = self._take_right_now(parameters)
            if target is not None:
                self._note("take-right", target, parameters)

        self._world.watch(event, strike)
        return None

    def _take_right_now(self, parameters: Parameters) -> str | None:
        access, client = self._world.access, self._clients.get(str(parameters["client"]))
        if access is None or client is None:
            return None
        self._give_later(parameters, lambda given: access.take_right(given, client.host))
        return access.take_right(parameters, client.host)

    def _take_password(self, parameters: Parameters) -> str | None:
        """Give a user another password than its client has, or none, and later the client's."""
        access = self._world.access
        if access is None:
            return None
        self._give_later(parameters, access.take_password)
        return access.take_password(parameters)

    def _give_later(self, parameters: Parameters, give: Callable[[Parameters], object]) -> None:
        def back() -> None:
            if not self._healed:
                give({**parameters, "gives": True})

        self._later(parameters, back)

    # --- clocks

    def _wall_jump_forward(self, parameters: Parameters) -> str | None:
        return self._jump(parameters, 1.0)

    def _wall_jump_back(self, parameters: Parameters) -> str | None:
        return self._jump(parameters, -1.0)

    def _jump(self, parameters: Parameters, sign: float) -> str:
        node = self._node(parameters)
        node.jump_wall_clock(sign * float(parameters["ms"]))
        return node.name

    def _client_wall_jump(self, parameters: Parameters) -> str | None:
        if (client := self._client(parameters)) is None:
            return None
        sign = self._rng.choice((-1.0, 1.0))
        client.jump_wall_clock(sign * float(parameters["ms"]))
        return client.id

    # --- the disk

    def _failed_read(self, parameters: Parameters) -> str | None:
        return self._fail(FaultKind.READ, parameters)

    def _failed_write(self, parameters: Parameters) -> str | None:
        return self._fail(FaultKind.WRITE, parameters)

    def _failed_fsync(self, parameters: Parameters) -> str | None:
        return self._fail(FaultKind.FSYNC, parameters)

    def _fail(self, kind: FaultKind, parameters: Parameters) -> str | None:
        node = self._node(parameters)
        node.disk.faults.fail(
            kind, self._rng, count=int(parameters["count"]), after=int(parameters["after"])
        )
        return node.name

    def _disk_full(self, parameters: Parameters) -> str | None:
        node = self._node(parameters)
        node.disk.faults.fill(self._rng)
        self._later(parameters, node.disk.faults.drain)
        return node.name

    def _slow_disk(self, parameters: Parameters) -> str | None:
        node = self._node(parameters)
        node.disk.faults.slow = True
        self._later(parameters, setattr, node.disk.faults, "slow", False)
        return node.name

    def _flip_bit(self, parameters: Parameters) -> str | None:
        """Flip a bit of a file while the broker is down, then start the broker."""
        node = self._node(parameters)
        node.kill()
        flipped = node.disk.flip_bit(self._rng)
        return None if flipped is None else f"{node.name} {flipped}"
