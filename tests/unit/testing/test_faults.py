"""Faults on demand, seen by a client that sends single requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from oncelog.broker import apis
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.testing import ControlledBroker, Moment
from tests.unit.broker.context import Client

TOO_LONG_S = 0.05


@asynccontextmanager
async def connected(broker: ControlledBroker) -> AsyncIterator[Client]:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    client = Client(*await asyncio.open_connection(host, int(port)))
    try:
        yield client
    finally:
        client.writer.close()


async def test_the_nth_request_is_answered_by_an_error_and_nothing_happens() -> None:
    async with ControlledBroker() as broker, connected(broker) as client:
        fault = broker.faults.fail(ApiKey.INIT_PRODUCER_ID, ErrorCode.not_coordinator, nth=2)
        answers = [await client.ask(ApiKey.INIT_PRODUCER_ID) for _ in range(3)]
        errors = [answer.error_code for answer in answers]
        assert errors == [ErrorCode.none, ErrorCode.not_coordinator, ErrorCode.none]
        assert answers[2].producer_id == answers[0].producer_id + 1
        fault.wait()
        assert fault.hits_count == 1


async def test_a_request_of_another_client_or_api_does_not_count() -> None:
    async with ControlledBroker() as broker, connected(broker) as client:
        faults = broker.faults
        other = faults.fail(ApiKey.INIT_PRODUCER_ID, ErrorCode.not_coordinator, client_id="other")
        mine = faults.fail(ApiKey.INIT_PRODUCER_ID, ErrorCode.network_exception, client_id="test")
        await client.ask(ApiKey.DESCRIBE_CLUSTER, endpoint_type=1)
        assert (await client.ask(ApiKey.INIT_PRODUCER_ID)).error_code is ErrorCode.network_exception
        assert (other.hits_count, mine.hits_count) == (0, 1)


async def test_an_api_without_such_an_answer_is_refused_in_one_sentence() -> None:
    async with ControlledBroker() as broker:
        with pytest.raises(ValueError, match="ApiVersions cannot be answered by an error"):
            broker.faults.fail(ApiKey.API_VERSIONS, ErrorCode.unsupported_version)


async def test_a_request_is_throttled_and_the_next_one_waits() -> None:
    async with ControlledBroker() as broker, connected(broker) as client:
        fault = broker.faults.throttle(60_000, client_id="test")
        await client.ask(ApiKey.API_VERSIONS, client_software_name="x", client_software_version="1")
        assert (await client.ask(ApiKey.LIST_GROUPS)).throttle_time_ms == 60_000
        fault.wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(TOO_LONG_S):
                await client.ask(ApiKey.LIST_GROUPS)
        async with connected(broker) as another:
            broker.faults.throttle(5, ApiKey.INIT_PRODUCER_ID)
            assert (await another.ask(ApiKey.LIST_GROUPS)).throttle_time_ms == 0
            assert (await another.ask(ApiKey.INIT_PRODUCER_ID)).throttle_time_ms == 5
            assert (await another.ask(ApiKey.INIT_PRODUCER_ID)).throttle_time_ms == 0


async def test_a_request_waits() -> None:
    async with ControlledBroker() as broker, connected(broker) as client:
        broker.faults.delay(ApiKey.INIT_PRODUCER_ID, 60_000)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(TOO_LONG_S):
                await client.ask(ApiKey.INIT_PRODUCER_ID)
        async with connected(broker) as another:
            broker.faults.delay(ApiKey.INIT_PRODUCER_ID, 1)
            assert (await another.ask(ApiKey.INIT_PRODUCER_ID)).producer_id == 0


@pytest.mark.parametrize("takes_effect", [False, True])
async def test_the_connection_is_lost_before_or_after_a_request_takes_effect(
    takes_effect: bool,
) -> None:
    async with ControlledBroker() as broker:
        lose = broker.faults.lose_reply if takes_effect else broker.faults.lose_request
        fault = lose(ApiKey.INIT_PRODUCER_ID)
        async with connected(broker) as client:
            with pytest.raises(AssertionError, match="closed"):
                await client.ask(ApiKey.INIT_PRODUCER_ID)
            fault.wait()
        async with connected(broker) as client:
            answer = await client.ask(ApiKey.INIT_PRODUCER_ID)
            assert answer.producer_id == (1 if takes_effect else 0)


async def test_a_reply_that_has_to_wait_is_lost_once_it_would_leave() -> None:
    async with ControlledBroker() as broker:
        fault = broker.faults.lose_reply(ApiKey.CREATE_TOPICS)
        async with connected(broker) as client:
            with pytest.raises(AssertionError, match="closed"):
                await client.ask(ApiKey.CREATE_TOPICS, topics=())
            fault.wait()


async def test_without_a_fault_requests_go_straight_to_their_handlers() -> None:
    async with ControlledBroker() as broker, connected(broker) as client:
        await client.ask(ApiKey.INIT_PRODUCER_ID)

        def handlers() -> set[object]:
            return broker.call(lambda inside: {m.api for m in inside.dispatcher.meters.values()})

        direct = {apis.find(ApiKey.INIT_PRODUCER_ID)}
        assert handlers() == direct
        fault = broker.faults.fail(ApiKey.INIT_PRODUCER_ID, ErrorCode.not_coordinator)
        assert handlers() != direct
        fault.cancel()
        assert handlers() == direct
        broker.faults.fail(ApiKey.INIT_PRODUCER_ID, ErrorCode.not_coordinator)
        broker.faults.clear()
        assert handlers() == direct
        broker.faults.fail(ApiKey.INIT_PRODUCER_ID, ErrorCode.not_coordinator)
        await client.ask(ApiKey.INIT_PRODUCER_ID)
        assert handlers() == direct


async def test_a_killed_broker_comes_back_with_its_faults_and_its_port() -> None:
    async with ControlledBroker() as broker:
        address = broker.bootstrap_servers
        broker.faults.fail(ApiKey.INIT_PRODUCER_ID, ErrorCode.not_coordinator)
        async with connected(broker) as client:
            broker.faults.kill()
            assert await client.receive() is None
        assert broker.bootstrap_servers == address
        async with connected(broker) as client:
            answer = await client.ask(ApiKey.INIT_PRODUCER_ID)
            assert answer.error_code is ErrorCode.not_coordinator


async def test_a_killed_broker_may_stay_down_until_it_is_started_again(tmp_path: Path) -> None:
    async with ControlledBroker(tmp_path) as broker:
        broker.faults.kill(restart=False)
        with pytest.raises(OSError, match="Connect call failed"):
            async with connected(broker):
                pass
        broker.faults.restart()
        async with connected(broker) as client:
            await client.ask(ApiKey.INIT_PRODUCER_ID)
        broker.faults.kill(restart=False)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    async with ControlledBroker(tmp_path):
        pass
    assert (tmp_path / ".kafka_cleanshutdown").exists()


async def test_ids_and_groups_that_are_not_there_are_named() -> None:
    async with ControlledBroker() as broker:
        with pytest.raises(ValueError, match="no producer has used the transactional id me"):
            broker.faults.fence("me")
        with pytest.raises(ValueError, match="no producer has used the transactional id me"):
            broker.faults.expire_transaction("me")
        with pytest.raises(ValueError, match="the group g has no members"):
            broker.faults.expire_sessions("g")
        kill = broker.faults.kill(Moment.BEFORE_PREPARE, transactional_id="me")
        assert "before prepare of me" in repr(kill)
        kill.cancel()


def test_a_fault_of_a_broker_that_does_not_run_is_refused() -> None:
    with pytest.raises(RuntimeError, match="not running"):
        ControlledBroker().faults.kill()
