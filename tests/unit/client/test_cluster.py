"""Addresses, and what a cluster does when nobody answers."""

import pytest

from oncelog.client.cluster import Cluster
from oncelog.client.errors import ConnectionLostError, RetriableError
from oncelog.client.settings import parse_bootstrap_servers
from oncelog.core.errors import ErrorCode
from tests.unit.client.scripted_broker import ScriptedBroker


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1", [("a", 1)]),
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        ("a", [("a", 9092)]),
        ("[::1]:5", [("::1", 5)]),
        (["a:1", "b:2"], [("a", 1), ("b", 2)]),
    ],
)
def test_bootstrap_servers_are_read(
    text: str | list[str], addresses: list[tuple[str, int]]
) -> None:
    assert parse_bootstrap_servers(text) == addresses


@pytest.mark.parametrize("text", ["", ",", "a:b", ":1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="bootstrap"):
        parse_bootstrap_servers(text)


async def test_a_cluster_without_an_answer_is_refused_with_its_addresses() -> None:
    broker = ScriptedBroker()
    broker.network.refused = True
    cluster = Cluster("a:1,b:2", **broker.options())
    with pytest.raises(ConnectionLostError, match=r"a:1.*b:2"):
        await cluster.any_connection()


async def test_a_lost_connection_is_opened_again() -> None:
    broker = ScriptedBroker()
    cluster = Cluster("b:1", **broker.options())
    first = await cluster.any_connection()
    broker.network.transports[0].cut()
    await first.wait_closed()
    second = await cluster.any_connection()
    assert second is not first
    assert not second.is_closed
    await cluster.close()


async def test_retrying_ends_with_the_last_error() -> None:
    cluster = Cluster("b:1", **ScriptedBroker().options())
    calls = 0

    async def call() -> None:
        nonlocal calls
        calls += 1
        raise RetriableError(ErrorCode.leader_not_available)

    with pytest.raises(RetriableError):
        await cluster.retrying(call, timeout_ms=10)
    assert calls > 1


@pytest.mark.parametrize(("finalized", "spoken"), [(0, 1), (1, 1), (2, 2), (3, 2)])
async def test_the_transaction_version_is_what_the_cluster_finalized(
    finalized: int, spoken: int
) -> None:
    cluster = Cluster("b:1", **ScriptedBroker(finalized).options())
    await cluster.any_connection()
    assert cluster.transaction_version == spoken
    await cluster.close()
