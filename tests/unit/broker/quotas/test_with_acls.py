"""Quotas and ACLs of one broker: who is refused is measured, and what is allowed is bounded."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka
import pytest

from oncelog.client import ClientError, ClientQuotaEntity, NewTopic, TopicPartition
from oncelog.core.acl import ANY_ACL
from oncelog.core.errors import ErrorCode
from oncelog.sync import Admin, Consumer, Producer
from tests.support.access import USER, RuledBroker, ruled_broker

ME = ClientQuotaEntity(USER)


@pytest.fixture(scope="module")
def shared() -> Iterator[RuledBroker]:
    with ruled_broker() as broker:
        broker.broker.create_topic("orders")
        yield broker


@pytest.fixture
def ruled(shared: RuledBroker) -> Iterator[RuledBroker]:
    yield shared
    shared.admin.delete_acls([ANY_ACL])
    for entity, values in shared.admin.describe_client_quotas().items():
        shared.admin.alter_client_quotas({entity: dict.fromkeys(values)})


def throttled_count(ruled: RuledBroker) -> int:
    return ruled.broker.call(
        lambda broker: sum(meter.throttled_count for meter in broker.dispatcher.meters.values())
    )


def test_who_may_do_nothing_is_measured_all_the_same(ruled: RuledBroker) -> None:
    ruled.admin.alter_client_quotas({ME: {"request_percentage": 1e-9}})
    before = throttled_count(ruled)
    with Admin(ruled.address, ruled.client()) as admin, pytest.raises(ClientError) as refused:
        admin.create_topics([NewTopic("denied", 1)])
    assert refused.value.code is ErrorCode.topic_authorization_failed
    assert throttled_count(ruled) > before


def test_a_topic_that_may_not_be_made_takes_no_token(ruled: RuledBroker) -> None:
    """Else its quota would run out by what is refused."""
    ruled.admin.alter_client_quotas({ME: {"controller_mutation_rate": 0.001}})
    with Admin(ruled.address, ruled.client()) as admin:
        for _ in range(2):
            with pytest.raises(ClientError) as refused:
                admin.create_topics([NewTopic("new", 5)])
            assert refused.value.code is ErrorCode.topic_authorization_failed
    ruled.allow("CREATE TOPIC new")
    with Admin(ruled.address, ruled.client()) as admin:
        admin.create_topics([NewTopic("new", 5)])


def test_what_may_be_read_and_written_is_bounded(ruled: RuledBroker) -> None:
    ruled.allow("WRITE TOPIC orders", "READ TOPIC orders")
    rates = {"producer_byte_rate": 50_000.0, "consumer_byte_rate": 50_000.0}
    ruled.admin.alter_client_quotas({ME: rates})
    told: list[confluent_kafka.ThrottleEvent] = []
    producer = confluent_kafka.Producer(ruled.confluent() | {"throttle_cb": told.append})
    for _ in range(60):
        producer.produce("orders", b"v" * 10_000)
        producer.flush(30)
        if told:
            break
    assert told
    before = throttled_count(ruled)
    with Consumer(ruled.address, ruled.client(), auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        while throttled_count(ruled) == before:
            consumer.poll(1_000)
    with Producer(ruled.broker.bootstrap_servers) as other:
        # Who is another user waits for nobody.
        assert other.send("orders", b"v").result(10).offset >= 0
