"""What `oncelog doctor` says of the address that other commands use."""

from __future__ import annotations

import asyncio
import os

import pytest

from oncelog.cli.doctor import at_default_address
from oncelog.cli.listening import Kind, kind_of_broker
from oncelog.cli.tool import run


async def said_of(greeting: bytes) -> tuple[str, str]:
    """State and text for a server that says `greeting` and closes."""

    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        line = await at_default_address(f"127.0.0.1:{port}")
    assert f"`oncelog serve --listen 127.0.0.1:{port + 1}`" in line.detail
    return line.state, line.detail


def test_a_broker_is_named_with_the_command_that_tries_it(bootstrap_server: str) -> None:
    line = run(lambda: at_default_address(bootstrap_server), bootstrap_server)
    is_other = "ONCELOG_TEST_BOOTSTRAP_SERVERS" in os.environ
    assert line.check == bootstrap_server
    assert line.state == ("note" if is_other else "ok")
    assert line.detail.startswith("Apache Kafka, 1 broker" if is_other else "Oncelog, 1 broker")
    assert f"`oncelog doctor --bootstrap-server {bootstrap_server}` tries it out" in line.detail


async def test_an_address_where_nothing_listens_brings_serve() -> None:
    line = await at_default_address("127.0.0.1:1")
    assert line.state == "note"
    assert line.detail == "nothing listens there: `oncelog serve` starts a broker"


async def test_a_server_of_another_protocol_is_no_broker() -> None:
    state, text = await said_of(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert state == "note"
    assert "it does not speak Kafka's protocol: it began with 'HTTP'" in text


async def test_a_server_that_closes_is_no_broker_or_a_closed_one() -> None:
    state, text = await said_of(b"")
    assert state == "note"
    assert text.startswith("something that is no broker, or a closed one (")


@pytest.mark.parametrize(
    ("features", "configs", "kind"),
    [
        (["group.version"], ["log.dirs", "oncelog.metrics.address"], Kind.ONCELOG),
        (["metadata.version", "kraft.version"], ["log.dirs"], Kind.APACHE_KAFKA),
        ([], ["log.dirs"], Kind.OTHER_BROKER),
        ([], [], Kind.OTHER_BROKER),
    ],
)
def test_features_and_settings_tell_whose_a_broker_is(
    features: list[str], configs: list[str], kind: Kind
) -> None:
    assert kind_of_broker(features, configs) is kind
