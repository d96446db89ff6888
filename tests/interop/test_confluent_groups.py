"""confluent-kafka's consumer groups, of both protocols, against a real `oncelog serve`."""

from pathlib import Path

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.confluent import (
    WAIT_S,
    committed,
    consumer,
    create_topic,
    fresh,
    given,
    producer,
    send,
    wait_until,
)
from tests.support.broker import BrokerProcess

pytestmark = pytest.mark.interop


class Member:
    """A consumer that notes what it read and what it was given."""

    def __init__(self, bootstrap_servers: str, group: str, topic: str, **settings: object) -> None:
        self.reader: Consumer = consumer(bootstrap_servers, group, **settings)
        self.values: list[bytes] = []
        self.reader.subscribe([topic])

    def poll(self) -> None:
        message = self.reader.poll(0.05)
        if message is None:
            return
        error = message.error()
        if error is None:
            self.values.append(given(message.value()))
        elif error.code() != KafkaError._PARTITION_EOF:
            raise AssertionError(error)

    @property
    def partitions(self) -> list[int]:
        return sorted(part.partition for part in self.reader.assignment())


def poll_until(members: list[Member], condition: object, what: str) -> None:
    def step() -> bool:
        for member in members:
            member.poll()
        return condition()  # type: ignore[operator, no-any-return]

    wait_until(step, what)


def share(servers: str, topic: str, group: str, settings: dict[str, object]) -> list[Member]:
    """Two members with two of the topic's four partitions each; they have read a record of each."""
    first = Member(servers, group, topic, **settings)
    poll_until([first], lambda: first.partitions == [0, 1, 2, 3], "the first member's partitions")
    second = Member(servers, group, topic, **settings)
    both = [first, second]

    def shared() -> bool:
        taken = sorted(first.partitions + second.partitions)
        return len(first.partitions) == 2 and taken == [0, 1, 2, 3]

    poll_until(both, shared, "the rebalance after the second joined")
    sender = producer(servers)
    for partition in range(4):
        send(sender, topic, [b"%d" % partition], partition)
    poll_until(both, lambda: len(first.values + second.values) == 4, "the records")
    assert sorted(first.values + second.values) == [b"0", b"1", b"2", b"3"]
    return both


def leave_one_after_the_other(first: Member, second: Member) -> None:
    second.reader.close()
    poll_until([first], lambda: first.partitions == [0, 1, 2, 3], "the rebalance after it left")
    first.reader.close()


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_share_the_partitions_and_rebalance(bootstrap_servers: str, strategy: str) -> None:
    topic, group = create_topic(bootstrap_servers, 4), fresh("group")
    settings = {"partition.assignment.strategy": strategy, "heartbeat.interval.ms": 100}
    leave_one_after_the_other(*share(bootstrap_servers, topic, group, settings))


def test_a_group_goes_on_where_it_committed(bootstrap_servers: str) -> None:
    topic, group = create_topic(bootstrap_servers), fresh("group")
    send(producer(bootstrap_servers), topic, [b"%d" % number for number in range(10)])
    first = Member(bootstrap_servers, group, topic)
    poll_until([first], lambda: len(first.values) == 10, "ten records")
    first.reader.commit(offsets=[TopicPartition(topic, 0, 6)], asynchronous=False)
    first.reader.close()
    assert committed(bootstrap_servers, group, topic) == 6
    second = Member(bootstrap_servers, group, topic)
    poll_until([second], lambda: len(second.values) == 4, "the rest")
    second.reader.close()
    assert second.values == [b"6", b"7", b"8", b"9"]


def test_a_member_that_dies_is_replaced_after_its_session(bootstrap_servers: str) -> None:
    topic, group = create_topic(bootstrap_servers, 2), fresh("group")
    settings = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
    dead = Member(bootstrap_servers, group, topic, **{**settings, "max.poll.interval.ms": 6000})
    poll_until([dead], lambda: dead.partitions == [0, 1], "the partitions")
    heir = Member(bootstrap_servers, group, topic, **settings)
    poll_until([heir], lambda: heir.partitions == [0, 1], "the partitions of a silent member")
    # While the heir is there, or the silent member might join again in its close, and be given
    # partitions: librdkafka 2.16 then waits for its own main thread, which is gone.
    dead.reader.close()
    heir.reader.close()


def test_a_commit_of_an_older_generation_is_refused(bootstrap_servers: str) -> None:
    """INV-8, with a plain consumer that claims a group which has members."""
    topic, group = create_topic(bootstrap_servers), fresh("group")
    member = Member(bootstrap_servers, group, topic)
    poll_until([member], lambda: member.partitions == [0], "the partition")
    stranger = consumer(bootstrap_servers, group)
    stranger.assign([TopicPartition(topic, 0, 0)])
    with pytest.raises(KafkaException) as caught:
        stranger.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    assert caught.value.args[0].code() in (
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
    )
    stranger.close()
    member.reader.close()
    assert committed(bootstrap_servers, group, topic) == -1001


def test_committed_offsets_survive_sigkill_of_the_broker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", {"offsets.topic.num.partitions": "2"}) as broker:
        topic = create_topic(broker.bootstrap_servers)
        reader = consumer(broker.bootstrap_servers, "survivor")
        send(producer(broker.bootstrap_servers), topic, [b"1", b"2", b"3"])
        reader.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
        broker.kill()
        broker.start()
        (found,) = reader.committed([TopicPartition(topic, 0)], timeout=WAIT_S)
        reader.close()
    assert found.offset == 2


# The new protocol (KIP-848).

NEW: dict[str, object] = {"group.protocol": "consumer"}


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_of_the_new_protocol_share_the_partitions(
    bootstrap_servers: str, assignor: str
) -> None:
    topic, group = create_topic(bootstrap_servers, 4), fresh("group")
    first, second = share(
        bootstrap_servers, topic, group, {**NEW, "group.remote.assignor": assignor}
    )
    first.reader.commit(asynchronous=False)
    second.reader.commit(asynchronous=False)
    leave_one_after_the_other(first, second)
    parts = [TopicPartition(topic, number) for number in range(4)]
    assert [
        part.offset for part in consumer(bootstrap_servers, group).committed(parts, WAIT_S)
    ] == [1] * 4


def test_a_static_member_of_the_new_protocol_comes_back_to_its_partitions(
    bootstrap_servers: str,
) -> None:
    topic, group = create_topic(bootstrap_servers, 2), fresh("group")
    ids = [{**NEW, "group.instance.id": name} for name in ("one", "two")]
    first, second = (Member(bootstrap_servers, group, topic, **settings) for settings in ids)
    poll_until(
        [first, second],
        lambda: len(first.partitions) == len(second.partitions) == 1,
        "a partition each",
    )
    had = first.partitions
    first.reader.close()
    again = Member(bootstrap_servers, group, topic, **ids[0])
    poll_until([again, second], lambda: again.partitions == had, "the partition that it had")
    assert second.partitions != had
    for member in (again, second):
        member.reader.close()


def test_a_pattern_finds_topics_that_come_later(bootstrap_servers: str) -> None:
    group, prefix = fresh("group"), fresh("pattern")
    reader = Member(bootstrap_servers, group, f"^{prefix}.*", **NEW)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(f"{prefix}-a", 2, 1)])[f"{prefix}-a"].result(WAIT_S)
    poll_until([reader], lambda: reader.partitions == [0, 1], "the topic that matches")
    described = admin.describe_consumer_groups([group])[group].result(WAIT_S)
    assert described.state is ConsumerGroupState.STABLE
    assert len(described.members[0].assignment.topic_partitions) == 2
    reader.reader.close()
    admin.delete_consumer_groups([group])[group].result(WAIT_S)


def test_a_group_moves_to_the_new_protocol_and_back_while_it_reads(bootstrap_servers: str) -> None:
    # Not cooperative-sticky: librdkafka puts data of its own into those assignments, and then
    # Kafka does not convert the group.
    topic, group = create_topic(bootstrap_servers, 4), fresh("group")
    settings = {
        "partition.assignment.strategy": "range",
        "heartbeat.interval.ms": 100,
    }
    classic = [Member(bootstrap_servers, group, topic, **settings) for _ in range(2)]

    def shared(members: list[Member]) -> bool:
        owned = [number for member in members for number in member.partitions]
        return sorted(owned) == [0, 1, 2, 3] and all(member.partitions for member in members)

    poll_until(classic, lambda: shared(classic), "the classic group")
    new = Member(bootstrap_servers, group, topic, **NEW)
    everybody = [*classic, new]
    poll_until(everybody, lambda: shared(everybody), "the consumer group")
    sender = producer(bootstrap_servers)
    for partition in range(4):
        send(sender, topic, [b"%d" % partition], partition)
    poll_until(everybody, lambda: sum(len(each.values) for each in everybody) == 4, "the records")
    for member in everybody:
        member.reader.commit(asynchronous=False)
    new.reader.close()
    poll_until(classic, lambda: shared(classic), "the classic group again")
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    listed = {each.group_id: each.type for each in admin.list_consumer_groups().result().valid}
    assert listed[group] is ConsumerGroupType.CLASSIC
    for member in classic:
        member.reader.close()
