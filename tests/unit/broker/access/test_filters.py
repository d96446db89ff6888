"""What a response shows of what its client may not describe: nothing, not even a name."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.broker.apis.metadata import (
    CLUSTER_OPERATIONS,
    OPERATIONS_NOT_ASKED,
    TOPIC_OPERATIONS,
)
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import consumer_group_describe as groups
from oncelog.protocol.messages import create_topics as create
from oncelog.protocol.messages import delete_topics as delete
from oncelog.protocol.messages import describe_cluster, describe_groups, metadata
from oncelog.protocol.messages import describe_topic_partitions as pages
from oncelog.protocol.messages import describe_transactions as transactions
from oncelog.protocol.messages import list_groups as listed
from oncelog.protocol.messages import list_transactions as listed_transactions
from oncelog.protocol.messages import offset_fetch as offsets
from tests.unit.broker.access.asking import ID_OF, ask

TOPIC = ErrorCode.topic_authorization_failed


def all_topics(version: int) -> Any:
    topics = tuple(
        metadata.MetadataResponseTopic(
            name=name, topic_id=topic_id, topic_authorized_operations=TOPIC_OPERATIONS
        )
        for name, topic_id in ID_OF.items()
    )
    broker = metadata.MetadataResponseBroker(node_id=1, host="h", port=1)
    return metadata.MetadataResponse(
        brokers=(broker,), topics=topics, cluster_authorized_operations=CLUSTER_OPERATIONS
    )


@pytest.mark.parametrize("version", range(14))
async def test_a_list_of_all_topics_leaves_out_what_may_not_be_described(version: int) -> None:
    asked = metadata.MetadataRequest(topics=() if version == 0 else None)
    served = all_topics(version)
    found = await ask(ApiKey.METADATA, version, asked, "READ TOPIC b", served)
    assert [topic.name for topic in found.response.topics] == ["b"]
    assert len(found.response.brokers) == 1
    if version >= 8:
        # READ implies DESCRIBE (8), by numbers of operations.
        assert found.response.topics[0].topic_authorized_operations == 1 << 3 | 1 << 8
    if 8 <= version <= 10:
        assert found.response.cluster_authorized_operations == 0
        found = await ask(ApiKey.METADATA, version, asked, "ALTER CLUSTER", served)
        assert found.response.cluster_authorized_operations == 1 << 7 | 1 << 8


async def test_who_names_only_topics_that_are_refused_sees_no_others_in_version_0() -> None:
    named = (metadata.MetadataRequestTopic(name="a"),)
    asked = metadata.MetadataRequest(topics=named)
    found = await ask(ApiKey.METADATA, 0, asked, "DESCRIBE TOPIC b", all_topics(0))
    assert [(topic.name, topic.error_code) for topic in found.response.topics] == [("a", TOPIC)]


async def test_a_topic_that_is_named_by_its_id_is_refused_without_its_name() -> None:
    named = (metadata.MetadataRequestTopic(topic_id=ID_OF["a"]),)
    found = await ask(ApiKey.METADATA, 12, metadata.MetadataRequest(topics=named), "")
    topic = found.response.topics[0]
    assert (topic.name, topic.topic_id, topic.error_code) == (None, ID_OF["a"], TOPIC)


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("rights", ["", "DESCRIBE TOPIC a"])
async def test_a_topic_that_is_named_by_its_id_too_early_is_no_valid_request(
    version: int, rights: str
) -> None:
    named = (metadata.MetadataRequestTopic(topic_id=ID_OF["a"]),)
    found = await ask(ApiKey.METADATA, version, metadata.MetadataRequest(topics=named), rights)
    assert found.body.topics[0].topic_id == ID_OF["a"]  # The handler refuses it.


async def test_a_topic_that_is_refused_by_its_name_keeps_its_id() -> None:
    named = tuple(metadata.MetadataRequestTopic(name=name) for name in ("a", "absent"))
    found = await ask(ApiKey.METADATA, 12, metadata.MetadataRequest(topics=named), "")
    first, second = found.response.topics
    assert (first.name, first.topic_id, first.error_code) == ("a", None, TOPIC)
    assert (second.name, second.topic_id, second.error_code) == ("absent", None, TOPIC)
    assert first.topic_authorized_operations == OPERATIONS_NOT_ASKED


async def test_pages_of_topics_are_made_without_hidden_ones() -> None:
    asked = pages.DescribeTopicPartitionsRequest()
    served = pages.DescribeTopicPartitionsResponse(
        topics=(
            pages.DescribeTopicPartitionsResponseTopic(
                name="b", topic_authorized_operations=TOPIC_OPERATIONS
            ),
        )
    )
    api = ApiKey.DESCRIBE_TOPIC_PARTITIONS
    found = await ask(api, 0, asked, "DESCRIBE TOPIC b", served)
    assert found.more == (frozenset({"a", "__consumer_offsets"}),)
    assert [topic.name for topic in found.response.topics] == ["b"]
    assert found.response.topics[0].topic_authorized_operations == 1 << 8


async def test_groups_are_listed_to_who_may_describe_them_or_the_cluster() -> None:
    served = listed.ListGroupsResponse(
        groups=tuple(listed.ListedGroup(group_id=name) for name in ("g", "h"))
    )
    for allowed, shown in (
        ("", []),
        ("READ GROUP h", ["h"]),
        ("DESCRIBE CLUSTER", ["g", "h"]),
    ):
        asked = listed.ListGroupsRequest()
        found = await ask(ApiKey.LIST_GROUPS, 5, asked, allowed, served)
        assert [group.group_id for group in found.response.groups] == shown


async def test_transactional_ids_are_listed_to_who_may_describe_them() -> None:
    states = tuple(
        listed_transactions.TransactionOverview(transactional_id=name) for name in ("t", "u")
    )
    served = listed_transactions.ListTransactionsResponse(transaction_states=states)
    asked = listed_transactions.ListTransactionsRequest()
    allowed = "WRITE TRANSACTIONAL_ID u"
    found = await ask(ApiKey.LIST_TRANSACTIONS, 2, asked, allowed, served)
    assert [state.transactional_id for state in found.response.transaction_states] == ["u"]


async def test_a_transaction_is_described_without_hidden_topics_in_all_that_is_told() -> None:
    topics = tuple(transactions.TopicData(topic=name, partitions=(0,)) for name in ("a", "b"))
    step = transactions.LifeStep(kind="added", topics=topics)
    served = transactions.DescribeTransactionsResponse(
        transaction_states=(
            transactions.DescribedTransaction(
                transactional_id="t", topics=topics, life=(step,), trouble="a-0 has no leader"
            ),
        )
    )
    asked = transactions.DescribeTransactionsRequest(transactional_ids=("t",), include_life=True)
    api, allowed = ApiKey.DESCRIBE_TRANSACTIONS, "DESCRIBE TRANSACTIONAL_ID t, READ TOPIC b"
    state = (await ask(api, 0, asked, allowed, served)).response.transaction_states[0]
    assert [topic.topic for topic in state.topics] == ["b"]
    assert [topic.topic for topic in state.life[0].topics] == ["b"]
    assert state.trouble == ""
    everything = f"{allowed}, DESCRIBE TOPIC a"
    assert (await ask(api, 0, asked, everything, served)).response == served


async def test_a_group_with_a_topic_that_may_not_be_described_is_not_described() -> None:
    def group(name: str, topic: str) -> groups.ConsumerGroupDescribeGroup:
        owned = groups.ConsumerGroupDescribeTopicPartitions(topic_name=topic, partitions=(0,))
        assignment = groups.ConsumerGroupDescribeAssignment(topic_partitions=(owned,))
        member = groups.ConsumerGroupDescribeMember(member_id="m", target_assignment=assignment)
        return groups.ConsumerGroupDescribeGroup(
            group_id=name, members=(member,), authorized_operations=1
        )

    served = groups.ConsumerGroupDescribeResponse(groups=(group("g", "a"), group("h", "b")))
    asked = groups.ConsumerGroupDescribeRequest(
        group_ids=("g", "h"), include_authorized_operations=True
    )
    allowed = "READ GROUP g, READ GROUP h, DESCRIBE TOPIC b"
    found = await ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, asked, allowed, served)
    hidden, shown = found.response.groups
    assert (hidden.error_code, hidden.members) == (TOPIC, ())
    assert (shown.error_code, len(shown.members)) == (ErrorCode.none, 1)
    assert shown.authorized_operations == 1 << 3 | 1 << 8


async def test_all_offsets_of_a_group_are_those_of_topics_that_may_be_described() -> None:
    topics = tuple(
        offsets.OffsetFetchResponseTopics(name=name, partitions=()) for name in ("a", "b")
    )
    group = offsets.OffsetFetchResponseGroup(group_id="g", topics=topics)
    served = offsets.OffsetFetchResponse(groups=(group,))
    asked = offsets.OffsetFetchRequest(
        groups=(offsets.OffsetFetchRequestGroup(group_id="g", topics=None),)
    )
    allowed = "DESCRIBE GROUP g, DESCRIBE TOPIC b"
    found = await ask(ApiKey.OFFSET_FETCH, 9, asked, allowed, served)
    assert [topic.name for topic in found.response.groups[0].topics] == ["b"]


async def test_a_group_that_fails_is_answered_as_the_handler_answers_it() -> None:
    group = offsets.OffsetFetchResponseGroup(group_id="g", error_code=ErrorCode.stale_member_epoch)
    served = offsets.OffsetFetchResponse(groups=(group,))
    topic = offsets.OffsetFetchRequestTopics(name="a", partition_indexes=(0,))
    asked = offsets.OffsetFetchRequest(
        groups=(offsets.OffsetFetchRequestGroup(group_id="g", topics=(topic,)),)
    )
    found = await ask(ApiKey.OFFSET_FETCH, 9, asked, "DESCRIBE GROUP g", served)
    assert found.response == served
    assert found.body.groups[0].topics == ()


async def test_a_new_topic_is_shown_without_configs_to_who_may_not_describe_them() -> None:
    made = create.CreatableTopicResult(
        name="x",
        num_partitions=3,
        replication_factor=1,
        configs=(create.CreatableTopicConfigs(name="retention.ms", value="1"),),
    )
    served = create.CreateTopicsResponse(topics=(made,))
    asked = create.CreateTopicsRequest(topics=(create.CreatableTopic(name="x"),))
    found = await ask(ApiKey.CREATE_TOPICS, 7, asked, "CREATE TOPIC x", served)
    shown = found.response.topics[0]
    assert (shown.error_code, shown.topic_config_error_code) == (ErrorCode.none, TOPIC)
    assert (shown.num_partitions, shown.replication_factor, shown.configs) == (-1, -1, ())
    allowed = "CREATE CLUSTER, ALTER_CONFIGS TOPIC x"
    assert (await ask(ApiKey.CREATE_TOPICS, 7, asked, allowed, served)).response == served


async def test_a_topic_is_deleted_by_id_without_its_name_being_told() -> None:
    asked = delete.DeleteTopicsRequest(topics=(delete.DeleteTopicState(topic_id=ID_OF["a"]),))
    for allowed, name in (("", None), ("DESCRIBE TOPIC a", "a")):
        found = await ask(ApiKey.DELETE_TOPICS, 6, asked, allowed)
        told = found.response.responses[0]
        assert (told.name, told.topic_id, told.error_code) == (name, ID_OF["a"], TOPIC)
        assert found.body is None


async def test_whether_a_topic_exists_is_told_to_who_may_describe_it() -> None:
    named = tuple(delete.DeleteTopicState(name=name) for name in ("a", "absent"))
    asked = delete.DeleteTopicsRequest(topics=named)
    found = await ask(ApiKey.DELETE_TOPICS, 6, asked, "")
    assert found.errors == {"a": 29, "absent": 29}
    found = await ask(ApiKey.DELETE_TOPICS, 6, asked, "DESCRIBE TOPIC a, DESCRIBE TOPIC absent")
    assert [topic.name for topic in found.body.topics] == ["absent"]


async def test_operations_on_the_cluster_are_those_of_this_client() -> None:
    served = describe_cluster.DescribeClusterResponse(
        cluster_authorized_operations=CLUSTER_OPERATIONS
    )
    asked = describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=True)
    for allowed, operations in (
        ("", 0),
        ("CREATE CLUSTER", 0),  # Who may not describe it sees none.
        ("DESCRIBE CLUSTER, CREATE CLUSTER", 1 << 5 | 1 << 8),
    ):
        found = await ask(ApiKey.DESCRIBE_CLUSTER, 2, asked, allowed, served)
        assert found.response.cluster_authorized_operations == operations


async def test_operations_on_a_group_are_those_of_this_client() -> None:
    served = describe_groups.DescribeGroupsResponse(
        groups=(describe_groups.DescribedGroup(group_id="g", authorized_operations=1),)
    )
    asked = describe_groups.DescribeGroupsRequest(groups=("g",))
    found = await ask(ApiKey.DESCRIBE_GROUPS, 6, asked, "DELETE GROUP g", served)
    assert found.response.groups[0].authorized_operations == 1 << 6 | 1 << 8


async def test_internal_topics_are_never_added_to_a_transaction() -> None:
    from oncelog.protocol.messages import add_partitions_to_txn as add

    topics = tuple(
        add.AddPartitionsToTxnTopic(name=name, partitions=(0,))
        for name in ("a", "__consumer_offsets")
    )
    wanted = add.AddPartitionsToTxnTransaction(transactional_id="t", topics=topics)
    asked = add.AddPartitionsToTxnRequest(transactions=(wanted,))
    allowed = "WRITE TRANSACTIONAL_ID t, WRITE TOPIC a, WRITE TOPIC __consumer_offsets"
    found = await ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, asked, allowed)
    assert found.errors == {"/a/0": 55, "/__consumer_offsets/0": 29}
