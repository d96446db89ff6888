"""What the administrator's client refuses before it asks a broker, and what it tells."""

import pytest

from oncelog.client import Admin, FatalError
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import delete_groups, metadata
from tests.unit.client.scripted_broker import ScriptedBroker


async def test_a_name_in_place_of_names_deletes_no_topic() -> None:
    broker = ScriptedBroker()
    async with Admin("b:1", **broker.options()) as admin:
        before = len(broker.seen)
        with pytest.raises(TypeError, match="not the str 'orders'"):
            await admin.delete_topics("orders")
        assert len(broker.seen) == before


async def test_brokers_without_describe_cluster_tell_the_clusters_id_by_metadata() -> None:
    """Apache Kafka before 2.8."""
    broker = ScriptedBroker()
    broker.newest[ApiKey.DESCRIBE_CLUSTER] = -1
    answer = metadata.MetadataResponse(cluster_id="c", controller_id=1)
    async with Admin("b:1", **broker.options()) as admin:
        broker.on(ApiKey.METADATA, answer)
        described = await admin.describe_cluster()
    assert (described.cluster_id, described.controller_id) == ("c", 1)


@pytest.mark.parametrize(
    ("message", "text"), [("plugin is down", "g: plugin is down"), (None, "g")]
)
async def test_a_group_that_is_not_deleted_is_told_with_the_brokers_words(
    message: str | None, text: str
) -> None:
    """DeleteGroups v3 (KIP-1331)."""
    broker = ScriptedBroker()
    failed = delete_groups.DeletableGroupResult(
        group_id="g", error_code=ErrorCode.group_deletion_failed, error_message=message
    )
    broker.on(ApiKey.DELETE_GROUPS, delete_groups.DeleteGroupsResponse(results=(failed,)))
    async with Admin("b:1", **broker.options()) as admin:
        with pytest.raises(FatalError) as raised:
            await admin.delete_group("g")
    assert raised.value.code is ErrorCode.group_deletion_failed
    assert str(raised.value).endswith(text)
