"""ControllerEvent: what strangers and broken peers send changes nothing, and is said in a line."""

from __future__ import annotations

import pytest

from oncelog.controller.event_codec import encode_event
from oncelog.controller.events import CreateTopics
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from tests.support.members import Cluster, members
from tests.unit.broker.test_several_brokers import asked

EVENT = encode_event(CreateTopics((TopicToCreate("t"),)))


async def error_of(cluster: Cluster, broker_id: int, broker_epoch: int, event: bytes) -> ErrorCode:
    async with asked(cluster, 1) as client:
        sender = {"broker_id": broker_id, "broker_epoch": broker_epoch}
        answer = await client.ask(ApiKey.CONTROLLER_EVENT, 0, **sender, event=event)
    found: ErrorCode = answer.error_code
    return found


async def test_an_event_of_a_stranger_changes_nothing_and_is_not_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with members(1) as cluster:
        before = await cluster.store.changes(0)
        for sender in ((1, 2), (1, -1), (2, 1), (-1, -1)):
            for event in (EVENT, b"no event"):
                assert await error_of(cluster, *sender, event) is ErrorCode.stale_broker_epoch
        assert await cluster.store.changes(0) == before
    assert "refused" not in caplog.text


async def test_what_is_no_event_is_refused_with_one_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with members(1) as cluster:
        before = await cluster.store.changes(0)
        assert await error_of(cluster, 1, 1, b"[" * 90_000) is ErrorCode.invalid_request
        assert await cluster.store.changes(0) == before
        assert await error_of(cluster, 1, 1, EVENT) is ErrorCode.none
    (line,) = [one.message for one in caplog.records if "refused" in one.message]
    assert line.startswith("refused an event in the name of broker 1: no JSON")


async def test_a_controller_of_an_older_version_refuses_a_newer_event() -> None:
    async with members(1) as cluster:
        for event in (b'["NewerEvent",{}]', b'["ForgetBroker",{"broker_id":9,"newer":1}]'):
            assert await error_of(cluster, 1, 1, event) is ErrorCode.unsupported_version


async def test_an_event_that_no_request_can_carry_is_refused_by_name() -> None:
    async with members(2, {"socket.request.max.bytes": 4096}) as cluster:
        many = [TopicToCreate(f"{number:0200}") for number in range(20)]
        outcome, *_ = await cluster[2].broker.controller.create_topics(many)
        assert outcome.error is ErrorCode.message_too_large
        assert "(socket.request.max.bytes)" in (outcome.message or "")
