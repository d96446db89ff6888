"""Our consumers while their group has no coordinator, under virtual time.

The scenarios `sessions_begin_anew` tell the same of single requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from oncelog.client import Consumer, ConsumerGroupMetadata
from oncelog.client.group_session import GroupProtocol
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC
from oncelog.simulation.cluster import SimulatedCluster
from oncelog.simulation.process import Process
from oncelog.simulation.run import undisturbed
from tests.scenarios.cluster.stage import BOUND_S, BROKERS, TOPIC, Stage

pytestmark = pytest.mark.slow

PROTOCOLS: tuple[GroupProtocol, ...] = ("classic", "consumer")
GROUP = "g"
SESSION_MS = 1_000
SETTINGS = {
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "50",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
}


class Group:
    """Three brokers, and members of one group that poll, each in a process of its own."""

    def __init__(self, stage: Stage, protocol: GroupProtocol) -> None:
        self.world = stage.world
        self.consumers: list[Consumer] = []
        self.processes: list[Process] = []
        self._cluster = SimulatedCluster(stage.world)
        self._protocol = protocol

    def join(self) -> None:
        """Have one more member, and wait until it has partitions."""
        number = len(self.processes)
        process = self.world.new_process(f"member-{number}", f"10.0.1.{number + 1}")
        self.processes.append(process)
        process.spawn(self._poll(process))
        self._until_shared(number + 1)

    async def _poll(self, process: Process) -> None:
        context = self.world.context(process)
        consumer = Consumer(
            [f"{host}:{port}" for host, port in (node.address for node in self.world.nodes)],
            group_id=GROUP,
            group_protocol=self._protocol,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=50,
            # By default they are as long as this session, and a member would miss it.
            retry_backoff_max_ms=200,
            reconnect_backoff_max_ms=200,
            enable_auto_commit=False,
            network=context.network,
            clock=context.clock,
            rng=context.rng,
            first_contact_ms=None,
        )
        consumer.subscribe([TOPIC])
        self.consumers.append(consumer)
        while True:
            await consumer.poll(20)

    def _until_shared(self, count: int) -> None:
        """Wait until so many members have all partitions among them."""

        def is_shared() -> bool:
            owned = [consumer.assignment() for consumer in self.consumers[:count]]
            numbers = sorted(each.partition for own in owned for each in own)
            return len(owned) == count and all(owned) and numbers == [*BROKERS]

        assert self.world.run_until(is_shared, BOUND_S)
        self.world.scheduler.run_until(self.world.now_s + 1)  # Everyone has had heartbeats.

    def members(self) -> list[ConsumerGroupMetadata]:
        """Who each member is, in which generation."""
        return [consumer.group_metadata() for consumer in self.consumers]

    def lose_coordinator(self) -> None:
        """Kill it, and wait for the next one, for longer than a session."""
        begun_s, former = self.world.now_s, self._coordinator()
        assert former is not None
        self.world.nodes[former].kill()
        assert self.world.run_until(lambda: self._coordinator() not in (None, former), BOUND_S)
        assert self.world.now_s - begun_s > SESSION_MS / 1000

    def _coordinator(self) -> int | None:
        return self._cluster.coordinator_of(CONSUMER_OFFSETS_TOPIC, GROUP)

    def until_alone(self) -> None:
        """Wait until the first member has all partitions."""
        self._until_shared(1)


@contextmanager
def group_of_two(protocol: GroupProtocol) -> Iterator[Group]:
    stage = Stage(SETTINGS)
    with undisturbed(stage.world):
        stage.begin()
        group = Group(stage, protocol)
        group.join()
        group.join()
        yield group
    assert stage.world.bugs == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_member_is_expelled_for_the_time_without_a_coordinator(protocol: GroupProtocol) -> None:
    """It lasts longer than a session: that begins anew with the next coordinator."""
    with group_of_two(protocol) as group:
        before = group.members()
        group.lose_coordinator()
        group.world.scheduler.run_until(group.world.now_s + 3 * SESSION_MS / 1000)
        assert group.members() == before


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_is_gone_is_expelled_by_the_next_coordinator(protocol: GroupProtocol) -> None:
    with group_of_two(protocol) as group:
        group.processes[1].kill("kill")
        group.lose_coordinator()
        group.until_alone()
