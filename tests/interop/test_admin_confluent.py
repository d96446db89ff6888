"""librdkafka's admin client: groups, offsets, partitions, settings, records, security."""

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    ElectionType,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.interop.confluent import (
    WAIT_S,
    committed,
    consumer,
    create_topic,
    fresh,
    given,
    producer,
    read_all,
    send,
    wait_until,
)

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def admin(bootstrap_servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_servers})


def refused(future: Future[Any]) -> int:
    """The error code of a call that has to fail."""
    with pytest.raises(KafkaException) as failure:
        future.result(WAIT_S)
    return int(failure.value.args[0].code())


def set_config(
    admin: AdminClient, topic: str, name: str, value: str | None, operation: str
) -> Future[Any]:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType[operation])
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    (future,) = admin.incremental_alter_configs([resource]).values()
    return future


def config_of(admin: AdminClient, topic: str, name: str) -> ConfigEntry:
    (future,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    found: ConfigEntry = future.result(WAIT_S)[name]
    return found


def wait_for_config(admin: AdminClient, topic: str, name: str, value: str) -> None:
    """Apache Kafka's brokers follow their controller a little later; Oncelog is there at once."""
    wait_until(lambda: config_of(admin, topic, name).value == value, f"{name}={value}")


def test_groups_are_listed_described_and_deleted(
    admin: AdminClient, bootstrap_servers: str
) -> None:
    topic, group = create_topic(bootstrap_servers), fresh("group")
    member = consumer(bootstrap_servers, group)
    member.subscribe([topic])

    def described() -> Any:
        (future,) = admin.describe_consumer_groups([group]).values()
        return future.result(WAIT_S)

    def is_stable() -> bool:
        member.poll(0.1)
        # Apache Kafka makes `__consumer_offsets` first, and names a coordinator before it serves.
        return bool(member.assignment()) and described().state is ConsumerGroupState.STABLE

    wait_until(is_stable, "the group to be stable")
    (only,) = described().members
    assert only.assignment.topic_partitions == [TopicPartition(topic, 0)]
    assert only.client_id == "rdkafka"
    listed = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(WAIT_S)
    (found,) = [entry for entry in listed.valid if entry.group_id == group]
    assert (found.state, found.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CLASSIC)
    empty = admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(WAIT_S)
    assert group not in {entry.group_id for entry in empty.valid}
    (deletion,) = admin.delete_consumer_groups([group]).values()
    assert refused(deletion) == KafkaError.NON_EMPTY_GROUP
    member.close()
    wait_until(lambda: described().state is ConsumerGroupState.EMPTY, "the group to be empty")
    (deletion,) = admin.delete_consumer_groups([group]).values()
    assert deletion.result(WAIT_S) is None
    (deletion,) = admin.delete_consumer_groups([group]).values()
    assert refused(deletion) == KafkaError.GROUP_ID_NOT_FOUND


def test_a_groups_offsets_are_set_and_read_by_an_administrator(
    admin: AdminClient, bootstrap_servers: str
) -> None:
    topic, group = create_topic(bootstrap_servers), fresh("group")
    send(producer(bootstrap_servers), topic, [b"0", b"1", b"2"])
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 2)])

    def is_set() -> bool:
        # The first use of Apache Kafka's coordinator may meet it while it loads.
        (future,) = admin.alter_consumer_group_offsets([wanted]).values()
        return future.result(WAIT_S).topic_partitions[0].error is None

    wait_until(is_set, "the offset to be set")
    assert committed(bootstrap_servers, group, topic) == 2
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    assert future.result(WAIT_S).topic_partitions == [TopicPartition(topic, 0, 2)]


def test_partitions_are_added_and_used(admin: AdminClient, bootstrap_servers: str) -> None:
    topic = create_topic(bootstrap_servers)
    (future,) = admin.create_partitions([NewPartitions(topic, 3)]).values()
    assert future.result(WAIT_S) is None
    (future,) = admin.describe_topics(TopicCollection([topic])).values()
    assert [partition.id for partition in future.result(WAIT_S).partitions] == [0, 1, 2]
    send(producer(bootstrap_servers), topic, [b"far"], partition=2)
    assert read_all(bootstrap_servers, topic, 3) == [b"far"]
    for count in (3, 2):
        (future,) = admin.create_partitions([NewPartitions(topic, count)]).values()
        assert refused(future) == KafkaError.INVALID_PARTITIONS
    (future,) = admin.create_partitions([NewPartitions(fresh("none"), 2)]).values()
    assert refused(future) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topics_setting_is_in_effect_at_once(admin: AdminClient, bootstrap_servers: str) -> None:
    topic = create_topic(bootstrap_servers)
    client = producer(bootstrap_servers)
    send(client, topic, [bytes(4000)])
    set_config(admin, topic, "max.message.bytes", "2000", "SET").result(WAIT_S)
    wait_for_config(admin, topic, "max.message.bytes", "2000")
    errors: list[KafkaError] = []
    client.produce(topic, bytes(4000), on_delivery=lambda error, _: errors.append(given(error)))
    client.flush(WAIT_S)
    assert [error.code() for error in errors] == [KafkaError.MSG_SIZE_TOO_LARGE]
    set_config(admin, topic, "max.message.bytes", None, "DELETE").result(WAIT_S)
    assert config_of(admin, topic, "max.message.bytes").is_default
    send(client, topic, [bytes(4000)])


def test_a_list_is_appended_to_and_subtracted_from(
    admin: AdminClient, bootstrap_servers: str
) -> None:
    topic = create_topic(bootstrap_servers)
    set_config(admin, topic, "cleanup.policy", "compact", "APPEND").result(WAIT_S)
    wait_for_config(admin, topic, "cleanup.policy", "delete,compact")
    set_config(admin, topic, "cleanup.policy", "delete", "SUBTRACT").result(WAIT_S)
    wait_for_config(admin, topic, "cleanup.policy", "compact")
    future = set_config(admin, topic, "retention.ms", "1", "APPEND")
    assert refused(future) == KafkaError.INVALID_CONFIG


def test_settings_that_cannot_be_are_refused(admin: AdminClient, bootstrap_servers: str) -> None:
    topic = create_topic(bootstrap_servers)
    assert refused(set_config(admin, topic, "no.such", "1", "SET")) == KafkaError.INVALID_CONFIG
    assert (
        refused(set_config(admin, topic, "retention.ms", "x", "SET")) == KafkaError.INVALID_CONFIG
    )
    absent = set_config(admin, fresh("none"), "retention.ms", "1", "SET")
    assert refused(absent) == KafkaError.UNKNOWN_TOPIC_OR_PART
    entry = ConfigEntry("log.dirs", "x", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    (future,) = admin.incremental_alter_configs([resource]).values()
    assert refused(future) == KafkaError.INVALID_REQUEST


def test_all_settings_of_a_topic_are_replaced(admin: AdminClient, bootstrap_servers: str) -> None:
    topic = create_topic(bootstrap_servers, 1, **{"retention.ms": "100000"})
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, {"segment.bytes": "2000000"})
    with pytest.warns(DeprecationWarning, match="alter_configs"):
        (future,) = admin.alter_configs([resource]).values()
    assert future.result(WAIT_S) is None
    wait_for_config(admin, topic, "segment.bytes", "2000000")
    assert config_of(admin, topic, "retention.ms").is_default


def test_records_are_deleted_up_to_an_offset(admin: AdminClient, bootstrap_servers: str) -> None:
    topic = create_topic(bootstrap_servers)
    place = TopicPartition(topic, 0)
    send(producer(bootstrap_servers), topic, [b"%d" % n for n in range(5)])

    def delete(offset: int) -> Future[Any]:
        (future,) = admin.delete_records([TopicPartition(topic, 0, offset)]).values()
        return future

    assert delete(2).result(WAIT_S).low_watermark == 2
    assert delete(1).result(WAIT_S).low_watermark == 2
    earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
    (future,) = admin.list_offsets({place: earliest}).values()
    assert future.result(WAIT_S).offset == 2
    assert refused(delete(6)) == KafkaError.OFFSET_OUT_OF_RANGE
    assert delete(-1).result(WAIT_S).low_watermark == 5
    assert read_all(bootstrap_servers, topic) == []


def test_no_election_is_needed_where_the_preferred_replica_leads(
    admin: AdminClient, bootstrap_servers: str
) -> None:
    topic = create_topic(bootstrap_servers)
    asked = [TopicPartition(topic, 0), TopicPartition(topic, 9)]
    outcomes = admin.elect_leaders(ElectionType.PREFERRED, asked).result(WAIT_S)
    codes = {place.partition: error.code() for place, error in outcomes.items()}
    assert codes == {0: KafkaError.ELECTION_NOT_NEEDED, 9: KafkaError.UNKNOWN_TOPIC_OR_PART}


def test_access_rules_need_an_authorizer(admin: AdminClient) -> None:
    rule = (ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:a", "*", AclOperation.READ)
    binding = AclBinding(*rule, AclPermissionType.ALLOW)
    pattern = AclBindingFilter(*rule, AclPermissionType.ALLOW)
    (creation,) = admin.create_acls([binding]).values()
    (deletion,) = admin.delete_acls([pattern]).values()
    # librdkafka keeps the error of a description to itself.
    for future in (creation, deletion):
        assert refused(future) == KafkaError.SECURITY_DISABLED


def test_users_get_credentials_show_and_lose_them(admin: AdminClient) -> None:
    user, info = fresh("user"), ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
    setting = UserScramCredentialUpsertion(user, info, b"geheim")
    deleting = UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256)
    (done,) = admin.alter_user_scram_credentials([setting]).values()
    assert done.result(WAIT_S) is None
    # Of all users one future, of named ones a future each.
    everyone: Any = admin.describe_user_scram_credentials()
    assert user in everyone.result(WAIT_S)
    named: Any = admin.describe_user_scram_credentials([user, "nobody"])
    (shown,) = named[user].result(WAIT_S).scram_credential_infos
    assert (shown.mechanism, shown.iterations) == (ScramMechanism.SCRAM_SHA_256, 8192)
    assert refused(named["nobody"]) == KafkaError.RESOURCE_NOT_FOUND
    (done,) = admin.alter_user_scram_credentials([deleting]).values()
    assert done.result(WAIT_S) is None
    (gone,) = admin.alter_user_scram_credentials([deleting]).values()
    assert refused(gone) == KafkaError.RESOURCE_NOT_FOUND


def test_a_credential_that_is_too_weak_or_changed_twice_is_refused(admin: AdminClient) -> None:
    user = fresh("user")

    def setting(iterations: int) -> UserScramCredentialUpsertion:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, iterations)
        return UserScramCredentialUpsertion(user, info, b"geheim")

    for iterations in (4095, 16385):
        (future,) = admin.alter_user_scram_credentials([setting(iterations)]).values()
        assert refused(future) == KafkaError.UNACCEPTABLE_CREDENTIAL
    (future,) = admin.alter_user_scram_credentials([setting(4096), setting(8192)]).values()
    assert refused(future) == KafkaError.DUPLICATE_RESOURCE
