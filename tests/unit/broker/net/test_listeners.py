"""Several listeners of one broker: each names itself to those who ask it, and has its limit."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.runtime.network import AddressUnavailable
from tests.support.logged import said_by
from tests.unit.broker.context import Client, Running, running
from tests.unit.broker.raw import until

TWO = {
    "listeners": "INTERNAL://127.0.0.1:0,EXTERNAL://127.0.0.1:0",
    "advertised.listeners": "INTERNAL://127.0.0.1:0,EXTERNAL://kafka.example:0",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
}


async def connect(context: Running, number: int) -> Client:
    host, port = context.broker.server.listeners[number].address
    client = Client(*await asyncio.open_connection(host, port))
    context._clients.append(client)
    return client


async def test_each_listener_names_the_address_of_its_own(tmp_path: Path) -> None:
    async with running(tmp_path, TWO) as context:
        internal, external = context.broker.server.listeners
        addresses = {0: internal.address, 1: ("kafka.example", external.address.port)}
        assert context.broker.bootstrap_servers == str(internal.address)
        assert context.broker.server.port == internal.address.port
        for number, address in addresses.items():
            client = await connect(context, number)
            found = await client.ask(ApiKey.METADATA, topics=())
            assert [(each.host, each.port) for each in found.brokers] == [address]
            found = await client.ask(ApiKey.DESCRIBE_CLUSTER)
            assert [(each.host, each.port) for each in found.brokers] == [address]
            found = await client.ask(ApiKey.FIND_COORDINATOR, coordinator_keys=("g",))
            assert [(each.host, each.port) for each in found.coordinators] == [address]


async def test_a_listener_that_is_not_advertised_names_no_broker(tmp_path: Path) -> None:
    told = {
        **TWO,
        "listeners": "EXTERNAL://127.0.0.1:0,INTERNAL://127.0.0.1:0",
        "advertised.listeners": "INTERNAL://127.0.0.1:0",
    }
    async with running(tmp_path, told) as context:
        _, internal = context.broker.server.listeners
        assert context.broker.bootstrap_servers == str(internal.address)
        client = await connect(context, 0)
        found = await client.ask(ApiKey.METADATA, topics=())
        assert (found.brokers, found.controller_id) == ((), -1)
        found = await client.ask(ApiKey.FIND_COORDINATOR, coordinator_keys=("g",))
        (coordinator,) = found.coordinators
        assert coordinator.error_code is ErrorCode.coordinator_not_available


async def test_one_listener_has_a_limit_of_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = {**TWO, "listener.name.external.max.connections": 1}
    async with running(tmp_path, given) as context:
        first = await connect(context, 1)
        assert await first.ask(ApiKey.METADATA, topics=())
        with caplog.at_level(logging.WARNING):
            assert await (await connect(context, 1)).receive() is None
        (record,) = said_by(caplog)
        assert record.getMessage().endswith("listener.name.external.max.connections=1")
        assert await (await connect(context, 0)).ask(ApiKey.METADATA, topics=())
        first.writer.close()
        await first.writer.wait_closed()
        external = context.broker.server.listeners[1]
        await until(lambda: external.connections_count == 0)
        assert await (await connect(context, 1)).ask(ApiKey.METADATA, topics=())


async def test_a_broker_takes_the_place_of_the_client_that_was_idle_for_longest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, {**TWO, "max.connections": 2}) as context:
        idle, busy = await connect(context, 1), await connect(context, 1)
        for client in (idle, busy):
            assert await client.ask(ApiKey.METADATA, topics=())
        with caplog.at_level(logging.WARNING):
            broker = await connect(context, 0)
            assert await broker.ask(ApiKey.METADATA, topics=())
            assert await idle.receive() is None
            assert await (await connect(context, 1)).receive() is None
        assert await busy.ask(ApiKey.METADATA, topics=())
        made_room, refused = [record.getMessage() for record in said_by(caplog)]
        assert "for one of a broker: max.connections=2" in made_room
        assert refused.startswith("refusing connection")


async def test_the_clients_of_an_only_listener_give_way_to_none(tmp_path: Path) -> None:
    async with running(tmp_path, {"max.connections": 1}) as context:
        first = await context.connect()
        assert await first.ask(ApiKey.METADATA, topics=())
        assert await (await context.connect()).receive() is None
        assert await first.ask(ApiKey.METADATA, topics=())


async def test_a_second_listener_whose_address_is_taken_stops_the_start(tmp_path: Path) -> None:
    async with running(tmp_path / "first") as context:
        taken = context.broker.bootstrap_servers
        given = {**TWO, "listeners": f"INTERNAL://127.0.0.1:0,EXTERNAL://{taken}"}
        with pytest.raises(AddressUnavailable, match="in use by another process"):
            async with running(tmp_path / "second", given):
                raise AssertionError("it has started")
