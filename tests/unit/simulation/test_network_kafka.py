"""The broker and the client's connection, unchanged, over the simulated network."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from oncelog.broker.broker import Broker
from oncelog.core.config import BrokerConfig
from oncelog.core.limits import CONNECTION_WRITE_BUFFER_BYTES_HIGH
from oncelog.metadata.memory import MemoryStore
from oncelog.peer.connection import Connection
from oncelog.protocol.api import ApiKey
from oncelog.protocol.codec import encode_request, request_class
from oncelog.protocol.messages.metadata import MetadataRequestTopic
from oncelog.runtime.framed import DisconnectedError
from oncelog.simulation.disk import SimulatedDisk
from oncelog.simulation.network_faults import Direction
from tests.unit.simulation.network_context import PORT, World

T = TypeVar("T")

HOST = "10.0.0.1"


class Cluster:
    """A broker that serves, and a process for clients."""

    def __init__(self, seed: int = 0) -> None:
        self.world = World(seed)
        self.server = self.world.process("broker", HOST)
        self.client = self.world.process("client", "10.0.0.2")
        disk = SimulatedDisk(random.Random(seed), self.world.trace)
        config = {"listeners": f"PLAINTEXT://{HOST}:{PORT}", "log.dirs": "/data"}

        async def start() -> Broker:
            broker = Broker(
                BrokerConfig(config),
                clock=self.server.clock,
                disk=disk.of(self.server),
                network=self.world.networks["broker"],
                store=MemoryStore(),
                rng=self.server.rng,
            )
            await broker.start()
            return broker

        self.broker = self.world.ask(self.server, start)

    def ask(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Open a connection in the client's process, do the work, close it."""

        async def run() -> T:
            connection = await Connection.open(
                self.world.networks["client"],
                HOST,
                PORT,
                client_id="test",
                request_timeout_ms=30_000,
                connect_timeout_ms=10_000,
            )
            try:
                return await work(connection)
            finally:
                connection.close()

        async def keep() -> T | DisconnectedError:
            try:
                return await run()
            except DisconnectedError as error:
                return error

        result = self.world.ask(self.client, keep)
        if isinstance(result, DisconnectedError):
            raise result
        return result


async def metadata(connection: Connection) -> int:
    """Ask for the metadata; the port of the broker in it."""
    request = request_class(ApiKey.METADATA)(topics=None)
    answer = await connection.request(ApiKey.METADATA, request)
    port: int = answer.brokers[0].port
    return port


@pytest.mark.parametrize("seed", range(5))
def test_a_client_and_a_broker_agree_on_versions_and_talk(seed: int) -> None:
    cluster = Cluster(seed)

    async def talk(connection: Connection) -> list[int]:
        assert connection.supports(ApiKey.PRODUCE, 9)
        return [await metadata(connection) for _ in range(20)]

    assert cluster.ask(talk) == [PORT] * 20
    cluster.world.run(1)
    assert not cluster.broker.server.connections
    assert not cluster.world.network.connections
    assert cluster.world.failures == []


async def several(connection: Connection) -> None:
    """Ask several times: more than 100 bytes each way."""
    for _ in range(5):
        await metadata(connection)


@pytest.mark.parametrize("direction", ["to server", "to client"])
@pytest.mark.parametrize("half_open", [False, True])
def test_a_connection_that_breaks_at_any_byte_is_lost_on_both_sides(
    direction: Direction, half_open: bool
) -> None:
    cluster = Cluster()
    network = cluster.world.network
    for count in range(0, 100, 9):
        network.arm_drop(lambda connection: True, count, direction, half_open)
        with pytest.raises(DisconnectedError):
            cluster.ask(several)
    cluster.world.run(30)
    # Whoever has nothing to send hears nothing of a half-open connection.
    assert half_open or not cluster.broker.server.connections
    assert len(cluster.broker.server.connections) == len(network.connections)
    assert cluster.ask(metadata) == PORT
    assert cluster.world.failures == []


def test_a_broker_takes_no_more_requests_of_a_client_that_does_not_read() -> None:
    cluster = Cluster()
    world = cluster.world
    client = world.connect(cluster.client, cluster.server)
    world.call(cluster.client, client.transport.pause_reading)
    # Each reply names all of them again.
    names = [f"{number:0200d}" for number in range(250)]
    topics = tuple(MetadataRequestTopic(name=name, topic_id=None) for name in names)
    body = request_class(ApiKey.METADATA)(topics=topics, allow_auto_topic_creation=False)
    written = 0
    while client.writable:
        frame = encode_request(ApiKey.METADATA, 4, written, "test", body)
        world.call(cluster.client, client.transport.write, framed(frame))
        written += 1
        world.run(0.01)
    assert 0 < cluster.broker.server.unread_bytes <= 2 * CONNECTION_WRITE_BUFFER_BYTES_HIGH
    world.call(cluster.client, client.transport.resume_reading)
    world.run(5)
    assert replies(bytes(client.data)) == list(range(written))
    assert cluster.broker.server.unread_bytes == 0


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def replies(data: bytes) -> list[int]:
    """The correlation ids of the replies in a stream."""
    found = []
    while data:
        size = int.from_bytes(data[:4], "big")
        assert len(data) >= 4 + size
        found.append(int.from_bytes(data[4:8], "big"))
        data = data[4 + size :]
    return found
