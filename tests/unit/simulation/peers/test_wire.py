"""Connections of scripted clients: late requests, and brokers that break the protocol."""

from __future__ import annotations

import asyncio

import pytest

from oncelog.client import requests
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.simulation.peers.flavors import FLAVORS
from oncelog.simulation.peers.wire import GROUP, LostError, PeerWire
from tests.unit.client.scripted_broker import DROP
from tests.unit.simulation.peers.scripted import Stage

METADATA = requests.metadata_request(["t"], create=False)


async def test_a_request_without_an_answer_is_lost_and_a_new_connection_is_opened() -> None:
    stage = Stage()
    wire = PeerWire(stage.context, FLAVORS["java"])
    stage.broker.on(ApiKey.METADATA, DROP)
    assert not await wire.refresh(["t"])
    assert await wire.refresh(["t"])
    assert len(stage.broker.network.transports) == 2
    assert wire.leader(TopicPartition("t", 1)) == ("b", 1)
    assert stage.stuck() == []
    await stage.close()


async def test_what_is_given_up_may_stay_in_a_connection_that_is_left_open() -> None:
    stage = Stage()
    wire = PeerWire(stage.context, FLAVORS["java"])
    kinds = set()
    for _ in range(20):
        connection = await wire.open()
        wire.forsake(connection)
        kinds.add(connection.is_closed)
        assert await wire.open() is not connection
    assert kinds == {True, False}
    assert sum(not transport.closed for transport in stage.broker.network.transports) <= 5
    wire.close()
    assert all(transport.closed for transport in stage.broker.network.transports)
    await stage.close()


@pytest.mark.parametrize("damage", ["correlation", "cut"])
async def test_a_broken_answer_is_written_down(damage: str) -> None:
    stage = Stage()
    wire = PeerWire(stage.context, FLAVORS["java"])
    connection = await wire.open()
    (transport,) = stage.broker.network.transports
    feed = transport.feed

    def break_it(frame: bytes, *, piece_size: int = 1 << 20) -> None:
        feed(b"\x00\x00\x01\x00" + frame[4:] if damage == "correlation" else frame[:9])

    transport.feed = break_it  # type: ignore[method-assign]
    with pytest.raises(LostError):
        await wire.ask(ApiKey.METADATA, METADATA)
    assert len(stage.stuck()) == 1
    assert stage.stuck()[0].startswith("stuck: ")
    connection.close()
    await stage.close()


async def test_a_coordinator_is_remembered_until_it_is_forgotten() -> None:
    stage = Stage()
    wire = PeerWire(stage.context, FLAVORS["librdkafka"])
    for _ in range(3):
        assert await wire.coordinator(GROUP, "g") == ("b", 1)
    wire.forget_coordinator(GROUP, "g")
    assert await wire.coordinator(GROUP, "g") == ("b", 1)
    assert len(stage.broker.requests(ApiKey.FIND_COORDINATOR)) == 2
    assert stage.broker.versions(ApiKey.FIND_COORDINATOR) == {2}
    await stage.close()


async def test_a_request_that_takes_too_long_is_lost() -> None:
    stage = Stage()
    wire = PeerWire(stage.context, FLAVORS["old"])
    await wire.open()
    (transport,) = stage.broker.network.transports

    def keep(frame: bytes, *, piece_size: int = 0) -> None:
        pass

    transport.feed = keep  # type: ignore[method-assign]
    with pytest.raises(LostError, match="no answer in 5 ms"):
        await wire.ask(ApiKey.METADATA, METADATA, timeout_ms=5)
    wire.close()
    await asyncio.sleep(0)
    assert stage.stuck() == []


async def test_a_late_request_arrives_although_its_client_does_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oncelog.simulation.peers.wire.LATE_S_MAX", 0.02)
    stage = Stage(late=1)
    wire = PeerWire(stage.context, FLAVORS["java"])
    with pytest.raises(LostError, match="on its way"):
        await wire.ask(ApiKey.METADATA, METADATA)
    stage.context.parameters["late"] = 0  # type: ignore[index]
    await PeerWire(stage.context, FLAVORS["java"]).refresh(["u"])
    while len(stage.broker.requests(ApiKey.METADATA)) < 2:  # noqa: ASYNC110 - no event tells of it
        await asyncio.sleep(0.001)
    names = [request.topics[0].name for request in stage.broker.requests(ApiKey.METADATA)]
    assert sorted(names) == ["t", "u"]
    await stage.close()
