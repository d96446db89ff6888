"""What a user may do by ACLs that were set at another broker."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from oncelog.client import AclFilter, Admin, AdminConfig, FatalError
from oncelog.core.errors import ErrorCode
from tests.support.access import CONFIG, USER, right
from tests.support.members import Cluster, Member, members
from tests.unit.broker.controller.test_in_force_everywhere import asked_count

LOGIN: AdminConfig = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": USER,
    "sasl.password": f"{USER}-geheim",
}
RIGHT = right("DESCRIBE_CONFIGS CLUSTER")


def client_of(member: Member) -> Admin:
    """The user, at this broker."""
    return Admin(str(member.broker.server.listeners[1].address), LOGIN)


async def may(app: Admin, broker_id: int) -> bool:
    """Whether the user may do at a broker what needs the right."""
    try:
        await app.describe_configs([str(broker_id)], "broker")
    except FatalError as refused:
        return refused.code is not ErrorCode.cluster_authorization_failed
    return True


async def change(
    cluster: Cluster, app: Admin, work: Coroutine[Any, Any, object], after: bool
) -> None:
    """Have a right given or taken at broker 1, while broker 2 reads nothing for a while."""
    late = cluster[2].link.is_open
    assert await may(app, 2) is not after
    late.clear()
    before = asked_count(cluster[2])
    answer = asyncio.create_task(work)
    await cluster.until(lambda: answer.done() or asked_count(cluster[2]) > before)
    assert await may(app, 2) is not after
    assert not answer.done()
    late.set()
    await answer
    assert await may(app, 2) is after


@pytest.mark.slow
async def test_a_broker_obeys_what_another_one_has_answered() -> None:
    async with (
        members(2, CONFIG) as cluster,
        Admin(cluster[1].broker.bootstrap_servers) as admin,
        client_of(cluster[2]) as app,
    ):
        await change(cluster, app, admin.create_acls([RIGHT]), after=True)
        await change(cluster, app, admin.delete_acls([AclFilter(*RIGHT)]), after=False)
