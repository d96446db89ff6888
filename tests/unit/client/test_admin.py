"""What the administrator's client refuses before it asks a broker."""

import pytest

from oncelog.client import Admin
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import metadata
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
