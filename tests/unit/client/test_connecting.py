"""A broker that is away: how long a client goes on trying, and what it says meanwhile."""

import asyncio
import logging
from typing import Any

import pytest

from oncelog.client import (
    Admin,
    ConnectionLostError,
    Consumer,
    Producer,
    TransactionDriver,
    connecting,
)
from oncelog.peer.connection import Connection
from oncelog.runtime.network import ProtocolFactory
from tests.support.logged import said_by
from tests.unit.client.scripted_broker import ScriptedBroker
from tests.unit.runtime.memory_network import MemoryNetwork

FAST = {"reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 2}


class LateNetwork(MemoryNetwork):
    """Refuses the first attempts to connect."""

    def __init__(self, broker: ScriptedBroker, refusals: int) -> None:
        super().__init__(broker.network.on_frame)
        self.refusals = refusals
        self.attempts = 0
        self.tried = asyncio.Event()

    async def connect(self, host: str, port: int, protocol_factory: ProtocolFactory) -> None:
        self.attempts += 1
        self.tried.set()
        self.refused = self.attempts <= self.refusals
        await super().connect(host, port, protocol_factory)


class SilentNetwork(MemoryNetwork):
    """Never answers, as an address behind a firewall."""

    def __init__(self) -> None:
        super().__init__(lambda transport, frame: None)

    async def connect(self, host: str, port: int, protocol_factory: ProtocolFactory) -> None:
        await asyncio.Event().wait()


def clients(options: dict[str, Any]) -> list[Any]:
    return [
        Producer("b:1", **options),
        Producer.attach("b:1", "t", 7, 0, **options),
        Consumer("b:1", **options),
        Admin("b:1", **options),
    ]


async def test_every_client_waits_for_a_broker_that_comes_later() -> None:
    for index in range(4):
        broker = ScriptedBroker()
        network = LateNetwork(broker, refusals=5)
        client = clients({**broker.options(), **FAST, "network": network})[index]
        await client.start()
        assert network.attempts == 6
        await client.close()


async def test_a_transaction_driver_waits_too() -> None:
    broker = ScriptedBroker()
    network = LateNetwork(broker, refusals=5)
    async with TransactionDriver(
        "b:1", "t", **{**broker.options(), **FAST, "network": network}
    ) as driver:
        assert await driver.open() == (7, 1)


async def test_a_client_gives_up_after_its_timeout_and_names_the_address() -> None:
    broker = ScriptedBroker()
    options = {**broker.options(), **FAST, "network": LateNetwork(broker, refusals=1_000_000)}
    soon = {**options, "first_contact_ms": 60}
    for client in (
        Producer("b:1", delivery_timeout_ms=30, **soon),
        Consumer("b:1", retry_timeout_ms=30, **soon),
        Admin("b:1", timeout_ms=30, **soon),
        Admin("b:1", first_contact_ms=0, **options),
    ):
        with pytest.raises(ConnectionLostError, match="no broker answers: b:1"):
            await client.start()


async def test_a_wrong_address_is_said_at_once_and_only_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = ScriptedBroker()
    network = LateNetwork(broker, refusals=50)
    admin = Admin("wrong:1", **{**broker.options(), **FAST, "network": network})
    await admin.start()
    (record,) = [r for r in said_by(caplog) if r.levelno == logging.WARNING]
    assert record.getMessage() == ("no broker answers: wrong:1: wrong:1 refused; trying again")
    await admin.close()


async def test_an_address_that_never_answers_is_said_before_the_attempt_ends(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "WARN_AFTER_MS", 1)
    admin = Admin("silent:1", network=SilentNetwork())
    said = asyncio.Event()

    def note(record: logging.LogRecord) -> bool:
        said.set()
        return True

    caplog.handler.addFilter(note)
    starting = asyncio.ensure_future(admin.start())
    await said.wait()
    assert "silent:1: no answer yet; trying again" in caplog.text
    await admin.close()
    with pytest.raises(ConnectionLostError, match="the client is closed"):
        await starting


async def test_close_ends_a_client_that_waits_between_attempts() -> None:
    broker = ScriptedBroker()
    network = LateNetwork(broker, refusals=1_000_000)
    slow = {"reconnect_backoff_ms": 1e9, "reconnect_backoff_max_ms": 1e9}
    admin = Admin("b:1", **{**broker.options(), **slow, "network": network, "timeout_ms": 1e12})
    starting = asyncio.ensure_future(admin.start())
    await network.tried.wait()
    closings = []
    for _ in range(4):  # Once is enough; each further one comes a turn later.
        closings.append(asyncio.ensure_future(admin.close()))
        await asyncio.sleep(0)
    await asyncio.gather(*closings)
    with pytest.raises(ConnectionLostError):
        await starting


async def test_an_attempt_that_is_cancelled_is_no_failure_of_the_address() -> None:
    broker = ScriptedBroker()
    admin = Admin("b:1", network=SilentNetwork())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await admin.start()
    assert admin._cluster._connector.failure_count(("b", 1)) == 0
    assert not admin._cluster._connector._attempts
    assert not broker.seen
    await admin.close()


@pytest.mark.parametrize("turns_count", range(12))
@pytest.mark.parametrize("ends_by", ["cancellation", "close"])
async def test_no_connection_outlives_an_attempt_that_ends_in_any_turn(
    ends_by: str, turns_count: int
) -> None:
    """Not one that is opened in the very turn, either: its result is for nobody."""
    broker = ScriptedBroker()
    admin = Admin("b:1", **broker.options())
    asking = asyncio.ensure_future(admin._cluster.any_connection())
    for _ in range(turns_count):
        await asyncio.sleep(0)
    if ends_by == "close":
        await admin.close()
    else:
        asking.cancel()
    (outcome,) = await asyncio.gather(asking, return_exceptions=True)
    is_kept = isinstance(outcome, Connection) and ends_by == "cancellation"
    await asyncio.sleep(0)
    assert is_kept or all(transport.closed for transport in broker.network.transports)
    await admin.close()
    assert all(transport.closed for transport in broker.network.transports)
