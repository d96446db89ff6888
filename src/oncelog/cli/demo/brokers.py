"""The brokers of the demo: one, or a cluster in which one is killed for what it does."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

from oncelog.cli.demo.plan import KillTarget
from oncelog.cli.demo.processes import DemoBroker
from oncelog.client.admin import Admin
from oncelog.client.cluster import TRANSACTION, Cluster
from oncelog.client.errors import RetriableError
from oncelog.controller.cluster_config import replicated_defaults
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition

__all__ = ["DemoBrokers", "all_in_sync", "holder_of"]

LOOK_TIMEOUT_MS: Final = 30_000.0

T = TypeVar("T")


class DemoBrokers:
    """Starts the brokers, kills one of them at a time, and starts it again.

    `output` is the partition whose leader is killed, `transactional_id` the id whose coordinator
    is.
    """

    def __init__(
        self, folder: Path, count: int, output: TopicPartition, transactional_id: str
    ) -> None:
        self._output = output
        self._transactional_id = transactional_id
        if count == 1:
            self._brokers = {1: DemoBroker(folder / "broker")}
        else:
            shared = {
                "oncelog.metadata.file": folder / "metadata.sqlite",
                **replicated_defaults(count),
            }
            self._brokers = {
                number: DemoBroker(folder / f"broker-{number}", {"node.id": number, **shared})
                for number in range(1, count + 1)
            }
        self.down: int | None = None
        """The broker that was killed, until it is started again."""

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._brokers)

    @property
    def bootstrap_servers(self) -> str:
        """The address of each."""
        return ",".join(broker.bootstrap_servers for broker in self._brokers.values())

    def start(self) -> None:
        """Start all at once, and wait until each listens. Raises `DemoFailed`."""
        for broker in self._brokers.values():
            broker.start()
        for broker in self._brokers.values():
            broker.wait_ready()

    def stop(self) -> None:
        """Stop them one after the other, so that each hands over what it leads."""
        for broker in self._brokers.values():
            broker.stop()

    def kill(self, target: KillTarget) -> int:
        """SIGKILL the broker that is the target now; returns its id."""
        self.down = 1
        if target is not KillTarget.BROKER:
            asked = holder_of(self.bootstrap_servers, target, self._output, self._transactional_id)
            self.down = asyncio.run(asked)
        self._brokers[self.down].kill()
        return self.down

    def restart(self) -> None:
        """Start the one that was killed, and wait until it listens. Raises `DemoFailed`."""
        if self.down is not None:
            self._brokers[self.down].start()
            self._brokers[self.down].wait_ready()
            self.down = None

    def is_whole(self) -> bool:
        """Whether all replicas of all partitions are in sync, so that one more may be killed."""
        return self.count == 1 or asyncio.run(all_in_sync(self.bootstrap_servers))


async def holder_of(
    bootstrap_servers: str, target: KillTarget, output: TopicPartition, transactional_id: str
) -> int:
    """Return the id of the broker that has a role now.

    Raises `ClientError` if none has it for `LOOK_TIMEOUT_MS`.
    """
    cluster = Cluster(bootstrap_servers)

    async def coordinator() -> int:
        await cluster.coordinator(TRANSACTION, transactional_id)
        return cluster.coordinator_id(TRANSACTION, transactional_id)

    async def leader() -> int:
        return await cluster.leader(output)

    async def controller() -> int:
        await cluster.refresh([])
        if cluster.metadata.controller_id < 0:
            raise RetriableError(ErrorCode.not_controller, "no broker is the controller")
        return cluster.metadata.controller_id

    asks: dict[KillTarget, Callable[[], Awaitable[int]]] = {
        KillTarget.COORDINATOR: coordinator,
        KillTarget.LEADER: leader,
        KillTarget.CONTROLLER: controller,
    }
    try:
        return await cluster.retrying(asks[target], LOOK_TIMEOUT_MS)
    finally:
        await cluster.close()


async def all_in_sync(bootstrap_servers: str) -> bool:
    """Whether no partition has a replica outside its ISR. Raises `ClientError`."""
    async with Admin(bootstrap_servers) as admin:
        topics = await admin.list_topics()
    partitions = [partition for topic in topics.values() for partition in topic.partitions]
    return all(set(each.isr) == set(each.replicas) for each in partitions)
