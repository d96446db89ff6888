"""Our own clients as a user whose rights come and go: each error is of the kind that Kafka's is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from oncelog.client import (
    AbortableError,
    ClientError,
    FatalError,
    NewTopic,
    OffsetAndMetadata,
    TopicPartition,
)
from oncelog.client.batch_reads import IsolationLevel
from oncelog.core.acl import ANY_ACL
from oncelog.core.errors import ErrorCode
from oncelog.sync import Admin, Consumer, Producer
from tests.support.access import RuledBroker, ruled_broker

TOPICS = ("orders", "bills")
ID = "WRITE TRANSACTIONAL_ID t"
TOPIC = ErrorCode.topic_authorization_failed
GROUP = ErrorCode.group_authorization_failed
CLUSTER = ErrorCode.cluster_authorization_failed
TRANSACTIONAL_ID = ErrorCode.transactional_id_authorization_failed


@pytest.fixture(scope="module")
def shared() -> Iterator[RuledBroker]:
    with ruled_broker() as broker:
        for name in TOPICS:
            broker.broker.create_topic(name)
        yield broker


@pytest.fixture
def ruled(shared: RuledBroker) -> Iterator[RuledBroker]:
    yield shared
    shared.admin.delete_acls([ANY_ACL])


def producer(ruled: RuledBroker, **options: Any) -> Producer:
    return Producer(ruled.address, ruled.client(), **options)


def read(ruled: RuledBroker, isolation_level: IsolationLevel = "read_committed") -> list[bytes]:
    """The values in both topics, as a super user reads them, up to a record that it writes."""
    servers = ruled.broker.bootstrap_servers
    last = f"end {next(ruled.numbers)}".encode()
    with Producer(servers) as client:
        for topic in TOPICS:
            client.send(topic, last).result()
    found: list[bytes] = []
    with Consumer(servers, isolation_level=isolation_level) as consumer:
        consumer.assign([TopicPartition(topic, 0) for topic in TOPICS])
        while found.count(last) < len(TOPICS):
            found += [record.value or b"" for record in consumer.poll()]
    return found


def test_a_producer_may_write_from_the_moment_on_that_it_is_allowed_to(ruled: RuledBroker) -> None:
    ruled.allow("WRITE TOPIC orders")
    with producer(ruled) as client:
        client.send("orders", b"1").result()
        with pytest.raises(FatalError) as refused:
            client.send("bills", b"2").result()
        assert refused.value.code is TOPIC
        ruled.allow("WRITE TOPIC bills")
        client.send("bills", b"3").result()
        ruled.revoke("WRITE TOPIC orders")
        with pytest.raises(FatalError) as refused:
            client.send("orders", b"4").result()
        assert refused.value.code is TOPIC


def test_who_may_write_nowhere_gets_no_producer_id(ruled: RuledBroker) -> None:
    ruled.allow("DESCRIBE TOPIC orders")
    with pytest.raises(FatalError) as refused, producer(ruled) as client:
        client.send("orders", b"1").result()
    assert refused.value.code is CLUSTER


def test_a_transactional_id_needs_a_right_of_its_own(ruled: RuledBroker) -> None:
    ruled.allow("WRITE TOPIC orders")
    with producer(ruled, transactional_id="t") as client, pytest.raises(FatalError) as refused:
        client.init_transactions()
    assert refused.value.code is TRANSACTIONAL_ID


def test_a_transaction_without_a_right_to_its_topic_is_aborted_and_the_next_one_commits(
    ruled: RuledBroker,
) -> None:
    ruled.allow(ID, "WRITE TOPIC orders")
    with producer(ruled, transactional_id="t") as client:
        client.init_transactions()
        client.begin_transaction()
        client.send("orders", b"torn").result()
        with pytest.raises(AbortableError) as refused:
            client.send("bills", b"torn").result()
        assert refused.value.code is TOPIC
        client.abort_transaction()
        client.begin_transaction()
        client.send("orders", b"whole").result()
        client.commit_transaction()
    found = read(ruled)
    assert b"torn" not in found
    assert b"whole" in found


def test_offsets_of_a_group_without_a_right_cost_the_transaction_only(ruled: RuledBroker) -> None:
    ruled.allow(ID, "READ TOPIC orders")
    offsets = {TopicPartition("orders", 0): OffsetAndMetadata(1)}
    with producer(ruled, transactional_id="t") as client:
        client.init_transactions()
        client.begin_transaction()
        with pytest.raises(AbortableError) as refused:
            client.send_offsets_to_transaction(offsets, "g")
        assert refused.value.code is GROUP
        client.abort_transaction()


@pytest.mark.parametrize("taken", [ID, "WRITE TOPIC bills"])
def test_a_right_that_is_taken_away_in_a_transaction_never_tears_it(
    ruled: RuledBroker, taken: str
) -> None:
    ruled.allow(ID, "WRITE TOPIC orders", "WRITE TOPIC bills")
    value = f"torn {taken}".encode()
    with producer(ruled, transactional_id="t") as client:
        client.init_transactions()
        client.begin_transaction()
        for topic in ("orders", "bills"):
            client.send(topic, value).result()
        ruled.revoke(taken)
        if taken == ID:
            with pytest.raises(FatalError) as refused:
                client.commit_transaction()
            assert refused.value.code is TRANSACTIONAL_ID
            ruled.broker.faults.expire_transaction("t")
        else:
            # What was written stays so; the next batch is refused, and the whole is aborted.
            with pytest.raises(AbortableError) as abortable:
                client.send("bills", value).result()
            assert abortable.value.code is TOPIC
            with pytest.raises(ClientError):
                client.commit_transaction()
            client.abort_transaction()
    assert read(ruled, "read_uncommitted").count(value) == 2
    assert value not in read(ruled)
    # Its end is in both logs: readers are not held up.
    with producer(ruled) as client:
        client.send("orders", b"after " + value).result()
    assert b"after " + value in read(ruled)


def test_a_consumer_is_told_which_right_it_lacks(ruled: RuledBroker) -> None:
    ruled.allow("READ TOPIC orders")
    with Consumer(ruled.address, ruled.client(), group_id="g") as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(FatalError) as refused:
            consumer.poll(5000)
        assert refused.value.code is GROUP
    ruled.allow("READ GROUP g")
    with Consumer(ruled.address, ruled.client(), group_id="g") as consumer:
        consumer.subscribe(["bills"])
        with pytest.raises(FatalError) as refused:
            consumer.poll(5000)
        assert refused.value.code is TOPIC


def test_an_administrator_needs_the_cluster(ruled: RuledBroker) -> None:
    with Admin(ruled.address, ruled.client()) as admin:
        for call, code in (
            (lambda: admin.describe_acls(), CLUSTER),
            (lambda: admin.create_topics([NewTopic("new")]), TOPIC),
            (lambda: admin.delete_topics(["orders"]), TOPIC),
        ):
            with pytest.raises(FatalError) as refused:
                call()
            assert refused.value.code is code
        ruled.allow("DESCRIBE CLUSTER")
        assert len(admin.describe_acls()) == 1
