"""kafka-python's admin client: transactions and producers, folders, offsets, resources."""

from collections.abc import Iterator

import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType, ResourcePattern
from kafka.admin import ResourceType as AclResourceType
from kafka.errors import SecurityDisabledError

from tests.interop.confluent import (
    committed,
    consumer,
    create_topic,
    fresh,
    producer,
    send,
    transactional,
    wait_until,
)

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def admin(bootstrap_servers: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    yield client
    client.close()


def test_an_open_transaction_is_seen_at_the_coordinator_and_in_the_partition(
    admin: KafkaAdminClient, bootstrap_servers: str
) -> None:
    topic, id_ = create_topic(bootstrap_servers), fresh("tx")
    place = TopicPartition(topic, 0)
    client = transactional(bootstrap_servers, id_)
    client.begin_transaction()
    send(client, topic, [b"1"])
    listed = [
        entry.transactional_id
        for entries in admin.list_transactions(state_filters=["Ongoing"]).values()
        for entry in entries
    ]
    assert id_ in listed
    found = admin.describe_transactions([id_])[id_]
    assert (found.state.value, found.topic_partitions) == ("Ongoing", {place})
    (state,) = admin.describe_producers([place])[place].active_producers
    assert (state.producer_id, state.producer_epoch) == (found.producer_id, found.producer_epoch)
    assert (state.last_sequence, state.current_transaction_start_offset) == (0, 0)
    client.abort_transaction()

    def is_over() -> bool:
        return str(admin.describe_transactions([id_])[id_].state.value) == "CompleteAbort"

    wait_until(is_over, "the transaction to be over")
    (state,) = admin.describe_producers([place])[place].active_producers
    assert state.current_transaction_start_offset == -1


def test_the_folder_and_its_logs_are_described(
    admin: KafkaAdminClient, bootstrap_servers: str
) -> None:
    topic = create_topic(bootstrap_servers, 2)
    send(producer(bootstrap_servers), topic, [bytes(1000)], partition=1)
    (answer,) = admin.describe_log_dirs()
    (folder,) = answer["log_dirs"]
    (logs,) = [entry for entry in folder["topics"] if entry["name"] == topic]
    sizes = {p["partition_index"]: p["partition_size"] for p in logs["partitions"]}
    assert sizes[0] == 0
    assert sizes[1] > 1000
    assert folder["total_bytes"] > folder["usable_bytes"] > 0


def test_a_groups_offsets_are_forgotten(admin: KafkaAdminClient, bootstrap_servers: str) -> None:
    topic, group = create_topic(bootstrap_servers), fresh("group")
    send(producer(bootstrap_servers), topic, [b"1"])
    reader = consumer(bootstrap_servers, group)
    reader.subscribe([topic])
    wait_until(
        lambda: (message := reader.poll(0.1)) is not None and not message.error(), "a record"
    )
    reader.commit(asynchronous=False)
    place = TopicPartition(topic, 0)
    error = admin.delete_group_offsets(group, [place])[place]
    assert error.errno == 86  # GROUP_SUBSCRIBED_TO_TOPIC
    reader.close()
    error = admin.delete_group_offsets(group, [place])[place]
    assert error.errno == 0
    assert committed(bootstrap_servers, group, topic) == -1001


def test_topics_brokers_and_features_are_described(
    admin: KafkaAdminClient, bootstrap_servers: str
) -> None:
    topic = create_topic(bootstrap_servers, 3)
    resources = admin.list_config_resources()
    assert topic in resources["topic"]
    assert resources["broker"] == resources["broker_logger"] == ["1"]
    assert admin.list_partition_reassignments() == {}
    assert admin.describe_features()["transaction.version"]["finalized"] == (2, 2)
    (described,) = admin.describe_topic_partitions([topic])["topics"]
    assert [p["partition_index"] for p in described["partitions"]] == [0, 1, 2]


def test_access_rules_need_an_authorizer(admin: KafkaAdminClient) -> None:
    pattern = ResourcePattern(AclResourceType.TOPIC, "t")
    rule = ("User:a", "*", ACLOperation.READ, ACLPermissionType.ALLOW)
    with pytest.raises(SecurityDisabledError):
        admin.describe_acls(ACLFilter(*rule, pattern))
    outcome = admin.create_acls([ACL(*rule, pattern)])
    assert outcome["failed"] == [SecurityDisabledError]
