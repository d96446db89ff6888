"""`ControlledCluster`: an embedded cluster whose brokers a test kills, pauses and cuts apart.

Brokers are named by their ids, from 1. The methods may be called from any thread, and from a
coroutine: they wait for the threads of the brokers. Every fault has its opposite; what lasts is a
context manager.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from oncelog.broker.broker import Broker
from oncelog.broker.embedded import EmbeddedBroker
from oncelog.broker.embedded_cluster import EmbeddedCluster
from oncelog.controller.image import MetadataImage, PartitionImage
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from oncelog.metadata.memory import MemoryConnection, MemoryStore
from oncelog.protocol.hashing import coordinator_partition
from oncelog.testing.broker import ControlledBroker
from oncelog.testing.network import Cables, ControlledNetwork

if TYPE_CHECKING:
    from oncelog.broker.embedded_security import EmbeddedSecurity

__all__ = ["ControlledCluster"]

T = TypeVar("T")

LOOK_AGAIN_S: Final = 0.002
WAIT_S_MAX: Final = 30.0
PARTITIONS_SHOWN_COUNT_MAX: Final = 50


class ControlledMember(ControlledBroker):
    """One broker of a cluster, in all of its lives."""

    def __init__(
        self,
        store: MemoryStore,
        cables: Cables,
        config: Mapping[str, object],
        security: EmbeddedSecurity | None,
    ) -> None:
        super().__init__(config=config)
        self._security = security
        self.broker_id = int(str(config["node.id"]))
        self.network = self._network = ControlledNetwork(self.broker_id, cables)
        self._store = store
        self.link: MemoryConnection | None = None
        """The present life's way to the store."""

    def follow_cuts(self, broker: Broker) -> None:
        """Read from the other brokers, or not, as the cuts are now."""
        self.network.changed()

    def _open_store(self) -> MemoryConnection:
        self.link = self._store.connection()
        return self.link


class ControlledCluster(EmbeddedCluster):
    """An `EmbeddedCluster` with faults on demand."""

    def __init__(
        self,
        brokers: int = 3,
        *,
        config: Mapping[str, object] | None = None,
        secure: bool = False,
    ) -> None:
        super().__init__(brokers, config=config, secure=secure)
        self._cables = Cables()
        self._members: dict[int, ControlledMember] = {}
        self._paused: set[int] = set()

    def broker(self, broker_id: int) -> ControlledBroker:
        """Return one broker: its `faults` are those of a `ControlledBroker`."""
        return self._member(broker_id)

    # ---- what is there ----

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
        *,
        replication_factor: int = -1,
    ) -> None:
        """Create a topic, and wait until each partition is led and all replicas are in sync.

        Raises `ValueError` with the reason, `TimeoutError` if it takes too long.
        """
        first = next(self._answering())
        first.create_topic(name, partitions, config, replication_factor=replication_factor)
        self.wait_until(lambda: all(map(_is_whole, self._partitions(name))))

    def leader_of(self, topic: str, partition: int = 0) -> int | None:
        """Return the broker that runs and leads a partition as it knows itself, or None."""
        for member in self._answering():
            if member.call(lambda broker: _leads(broker, topic, partition)):
                return member.broker_id
        return None

    def coordinator_of(
        self, group_id: str | None = None, *, transactional_id: str | None = None
    ) -> int | None:
        """Return the broker that coordinates a group or a transactional id.

        None before the internal topic is there, and while its partition has no leader. Raises
        `TypeError` unless it is asked for one of them.
        """
        if (group_id is None) is (transactional_id is None):
            raise TypeError("coordinator_of takes a group id, or a transactional_id")
        name = CONSUMER_OFFSETS_TOPIC if transactional_id is None else TRANSACTION_STATE_TOPIC
        for member in self._answering():
            topic = member.call(lambda broker: broker.image.topic(name))
            if topic is not None:
                key = group_id or transactional_id or ""
                return self.leader_of(name, coordinator_partition(key, len(topic.partitions)))
        return None

    def in_sync(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """Return the in-sync replicas of a partition, as its leader knows them."""
        leader = self.leader_of(topic, partition)
        if leader is None:
            return ()
        isr = self._member(leader).call(lambda broker: _isr(broker, topic, partition))
        return tuple(sorted(isr))

    def controller(self) -> int | None:
        """Return the broker that is the controller, as most of those that run know."""
        known = [m.call(lambda broker: broker.image.controller_id) for m in self._answering()]
        held = max(set(known), key=known.count, default=-1)
        return None if held < 0 else held

    def wait_until(self, condition: Callable[[], T], timeout_s: float = WAIT_S_MAX) -> T:
        """Return the condition's value once that is true. Raises `TimeoutError` with a report."""
        deadline_s = time.monotonic() + timeout_s
        while not (value := condition()):
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"it was not so within {timeout_s:g} s\n{self.report()}")
            time.sleep(LOOK_AGAIN_S)
        return value

    def report(self) -> str:
        """Return a table: who leads each partition, its epochs and in-sync replicas."""
        lines = []
        for member in self._members.values():
            is_paused = member.broker_id in self._paused
            text = "is paused" if is_paused else "runs" if member.is_running else "is down"
            lines.append(f"broker {member.broker_id} {text}")
        newest = max(
            (member.call(lambda broker: broker.image) for member in self._answering()),
            key=lambda image: image.revision,
            default=None,
        )
        if newest is None:
            return "\n".join(lines)
        lines.append(f"controller {newest.controller_id}, epoch {newest.controller_epoch}")
        lines.append(f"{'partition':40} {'leader':>6} {'epoch':>6}  in sync of replicas")
        shown = list(_lines(newest))
        lines += shown[:PARTITIONS_SHOWN_COUNT_MAX]
        if left := len(shown) - PARTITIONS_SHOWN_COUNT_MAX:
            lines += [f"and {left} more"] if left > 0 else []
        return "\n".join(lines)

    # ---- what happens to brokers ----

    def kill(self, broker_id: int) -> None:
        """Kill a broker as SIGKILL does, and end its session; it stays down until `restart`."""
        self._member(broker_id).faults.kill(restart=False)

    def stop(self, broker_id: int) -> None:
        """Stop a broker in order: others lead what it led. It stays down until `restart`."""
        self._member(broker_id).shut_down()

    def restart(self, broker_id: int) -> None:
        """Start a broker again that is down; one that runs is stopped in order before."""
        member = self._member(broker_id)
        if member.is_running:
            member.shut_down()
        member.revive()

    @contextmanager
    def pause(self, broker_id: int) -> Iterator[None]:
        """Stop a broker's thread, as SIGSTOP does a process; its sockets stay open."""
        paused, goes_on = threading.Event(), threading.Event()

        def hold(_: Broker) -> None:
            paused.set()
            goes_on.wait()

        member = self._member(broker_id)
        holder = threading.Thread(target=member.call, args=(hold,), daemon=True)
        holder.start()
        paused.wait()
        self._paused.add(broker_id)
        try:
            yield
        finally:
            self._paused.discard(broker_id)
            goes_on.set()
            holder.join()
            self._tell_networks()

    @contextmanager
    def cut(self, source: int, target: int, *, both: bool = True) -> Iterator[None]:
        """Let nothing from one broker arrive at another one, by default in either direction."""
        pairs = {(source, target), (target, source)} if both else {(source, target)}
        with self._cut(pairs):
            yield

    @contextmanager
    def isolate(self, broker_id: int) -> Iterator[None]:
        """Cut a broker from all others and from the metadata; clients still reach it.

        Its session ends, as after its timeout.
        """
        others = [each for each in self._members if each != broker_id]
        pairs = {pair for each in others for pair in ((broker_id, each), (each, broker_id))}
        with self._cut(pairs), self.cut_from_store(broker_id):
            yield

    @contextmanager
    def _cut(self, pairs: set[tuple[int, int]]) -> Iterator[None]:
        for pair in pairs:
            self._member(pair[0])
        new = pairs - self._cables.cuts
        self._cables.cuts |= new
        self._tell_networks()
        try:
            yield
        finally:
            self._cables.cuts -= new
            self._tell_networks()

    @contextmanager
    def cut_from_store(self, broker_id: int, *, ends_session: bool = True) -> Iterator[None]:
        """Have each call of a broker to the metadata store fail."""
        link = self._member(broker_id).link
        assert link is not None
        link.cut(ends_sessions=ends_session)
        try:
            yield
        finally:
            link.heal()

    def expire_session(self, broker_id: int) -> None:
        """End a broker's session while it lives, as if it had been silent for too long."""
        # Not asked in its own thread, which may be paused.
        session_id = self._member(broker_id).broker.membership.session_id
        if self._store is not None and session_id is not None:
            self._store.expire(session_id)

    def heal(self) -> None:
        """End all cuts, and start again each broker that is down."""
        self._cables.cuts.clear()
        self._tell_networks()
        for member in self._members.values():
            if member.link is not None:
                member.link.heal()
            if not member.is_running:
                member.revive()

    # ---- inside ----

    def _make_broker(self, store: MemoryStore, config: Mapping[str, object]) -> EmbeddedBroker:
        member = ControlledMember(store, self._cables, config, self._security)
        self._members[member.broker_id] = member
        return member

    def _member(self, broker_id: int) -> ControlledMember:
        if broker_id not in self._members:
            known = ", ".join(map(str, self._members)) or "none, as it does not run"
            raise ValueError(f"there is no broker {broker_id} in this cluster: it has {known}")
        return self._members[broker_id]

    def _answering(self) -> Iterator[ControlledMember]:
        return (
            member
            for member in self._members.values()
            if member.is_running and member.broker_id not in self._paused
        )

    def _partitions(self, name: str) -> list[PartitionImage]:
        """What each broker that runs knows of a topic's partitions; empty entries if nothing."""
        found: list[PartitionImage] = []
        for member in self._answering():
            topic = member.call(lambda broker: broker.image.topic(name))
            found += topic.partitions if topic is not None else (_NOTHING,)
        return found

    def _tell_networks(self) -> None:
        for member in self._answering():
            member.call(member.follow_cuts)


_NOTHING: Final = PartitionImage(leader=-1, leader_epoch=-1, isr=(), replicas=())


def _is_whole(partition: PartitionImage) -> bool:
    return partition.leader >= 0 and set(partition.isr) == set(partition.replicas)


def _leads(broker: Broker, topic: str, partition: int) -> bool:
    held = broker.partitions.get(topic, partition)
    return held is not None and held.state.is_leader


def _isr(broker: Broker, topic: str, partition: int) -> frozenset[int]:
    held = broker.partitions.get(topic, partition)
    return frozenset() if held is None else held.state.isr


def _lines(image: MetadataImage) -> Iterator[str]:
    for name in sorted(image.topics):
        topic = image.topics[name]
        for number, each in enumerate(topic.partitions):
            isr = ",".join(map(str, each.isr))
            replicas = ",".join(map(str, each.replicas))
            label = f"{topic.label(number)}"
            yield f"{label:40} {each.leader:6} {each.leader_epoch:6}  {isr} of {replicas}"
