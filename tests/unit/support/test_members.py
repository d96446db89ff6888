"""The brokers of `members` share a store, and each can be killed, cut off and started again."""

from __future__ import annotations

import pytest

from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.metadata.store import StoreFailure
from tests.support.members import members


async def test_members_share_a_store_and_are_named_by_id() -> None:
    async with members(2) as cluster:
        await cluster.agreed()
        for member in cluster:
            assert set(member.broker.image.brokers) == {1, 2}


async def test_a_killed_member_starts_again_at_its_address() -> None:
    async with members(1) as cluster:
        (made,) = await cluster[1].broker.controller.create_topics([TopicToCreate("t")])
        assert made.error is ErrorCode.none
        address = cluster[1].broker.bootstrap_servers
        await cluster.kill(1)
        assert not list(cluster)
        assert (await cluster.restart(1)).bootstrap_servers == address
        assert cluster.leader_of("t", 0) == 1


async def test_a_member_is_cut_from_the_store_alone() -> None:
    async with members(2) as cluster:
        cluster[1].link.cut()
        with pytest.raises(StoreFailure):
            await cluster[1].broker.store.get("/cluster/id")
        assert await cluster[2].broker.store.get("/cluster/id") is not None
