"""A change of users, ACLs and quotas is answered once all brokers go by it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from oncelog.broker.controller import forwarding
from oncelog.controller.decision import ControllerEvent
from oncelog.controller.events import (
    AclOutcome,
    AlterClientQuotas,
    AlterScramCredentials,
    CreateAcls,
    DeleteAcls,
    QuotaAlteration,
    QuotaChange,
    ScramUpsertion,
)
from oncelog.core.acl import (
    ANY_ACL,
    Acl,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from oncelog.core.errors import ErrorCode
from oncelog.core.secret import Secret
from oncelog.protocol.api import ApiKey
from tests.support.members import Cluster, Member, members
from tests.unit.broker.test_several_brokers import asked

ACL = Acl(
    ResourceType.TOPIC,
    "t",
    PatternType.LITERAL,
    "User:a",
    "*",
    AclOperation.READ,
    AclPermission.DENY,
)


KEY = Secret("aw==")
EVENTS: tuple[ControllerEvent[Any], ...] = (
    CreateAcls((ACL,)),
    AlterScramCredentials((), (ScramUpsertion("u", 1, 4096, KEY, KEY, KEY),), Secret("fresh")),
    AlterClientQuotas(
        (QuotaAlteration((("user", "a"),), (QuotaChange("request_percentage", "1"),)),)
    ),
)


def known(member: Member) -> set[Acl]:
    return set(member.broker.image.acls.values())


def asked_count(member: Member) -> int:
    meter = member.broker.dispatcher.meters.get((ApiKey.APPLIED_REVISION, 0))
    return 0 if meter is None else meter.count


@pytest.mark.slow
async def test_an_acl_is_obeyed_everywhere_once_it_is_answered() -> None:
    async with members(3) as cluster:
        for number, member in enumerate(cluster):
            acl = ACL._replace(name=f"t{number}")
            assert await member.broker.controller.submit(CreateAcls((acl,))) == (AclOutcome(),)
            assert all(acl in known(each) for each in cluster)
        (deletion,) = await cluster[2].broker.controller.submit(DeleteAcls((ANY_ACL,)))
        assert len(deletion.acls) == 3
        assert not any(known(each) for each in cluster)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
async def test_the_answer_waits_for_a_broker_that_has_not_read_the_change(
    event: ControllerEvent[Any],
) -> None:
    async with members(2) as cluster:
        late = cluster[2]
        late.link.is_open.clear()
        change = asyncio.create_task(cluster[1].broker.controller.submit(event))
        await cluster.until(lambda: change.done() or asked_count(late) > 0)
        assert not change.done()
        assert late.broker.image.revision < cluster[1].broker.image.revision
        late.link.is_open.set()
        (outcome,) = await change
        assert outcome.error is ErrorCode.none
        assert late.broker.image.revision == cluster[1].broker.image.revision


async def is_answered_with(
    cluster: Cluster, warning: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert await cluster[1].broker.controller.submit(CreateAcls((ACL,))) == (AclOutcome(),)
    lines = [one.message for one in caplog.records if "users, ACLs and quotas" in one.message]
    assert [line.partition(" have")[0] for line in lines] == ([warning] if warning else [])


async def test_a_broker_that_does_not_answer_is_named_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(forwarding, "APPLIED_WAIT_MS_MAX", 50)
    async with members(3) as cluster:
        await cluster.kill(2)
        await is_answered_with(cluster, "brokers [2]", caplog)
        assert known(cluster[3]) == {ACL}


async def test_a_broker_whose_registration_has_ended_is_not_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with members(2) as cluster:
        await cluster.kill(2)
        change = asyncio.create_task(is_answered_with(cluster, "", caplog))
        await cluster.until(lambda: change.done() or known(cluster[1]) == {ACL})
        assert not change.done()
        cluster.expire(2)
        await change


async def test_a_lone_broker_asks_no_other() -> None:
    async with members(1) as cluster:
        controller = cluster[1].broker.controller
        assert await controller.submit(CreateAcls((ACL,))) == (AclOutcome(),)
        assert controller._forwarding is None


async def test_a_stranger_who_claims_a_later_revision_is_answered_at_once() -> None:
    async with members(1) as cluster, asked(cluster, 1) as client:
        answer = await client.ask(ApiKey.APPLIED_REVISION, 0, revision=1 << 60)
        assert answer.revision == cluster[1].broker.image.revision
