"""Stock clients as a user whose rights come and go: each sees its own error, as on Apache Kafka.

After Apache's AuthorizerIntegrationTest and GroupAuthorizerIntegrationTest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from oncelog.core.acl import ANY_ACL
from tests.support.access import RuledBroker, ruled_broker

pytestmark = [pytest.mark.interop, pytest.mark.slow]

WAIT_S = 20


@pytest.fixture(scope="module")
def shared() -> Iterator[RuledBroker]:
    with ruled_broker() as broker:
        broker.broker.create_topic("orders")
        yield broker


@pytest.fixture
def ruled(shared: RuledBroker) -> Iterator[RuledBroker]:
    yield shared
    shared.admin.delete_acls([ANY_ACL])


def error_of(call: Callable[[], object]) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        call()
    error: KafkaError = caught.value.args[0]
    return error


def delivered(producer: confluent_kafka.Producer, topic: str = "orders") -> KafkaError | None:
    """What becomes of one record: None, or its error."""
    outcomes: list[KafkaError | None] = []
    producer.produce(topic, b"value", on_delivery=lambda error, _message: outcomes.append(error))
    assert producer.flush(WAIT_S) == 0
    return outcomes[0]


def read(consumer: confluent_kafka.Consumer) -> confluent_kafka.Message:
    """The next record or error."""
    message = consumer.poll(WAIT_S)
    assert message is not None
    return message


def test_a_producer_is_told_of_its_topic(ruled: RuledBroker) -> None:
    refused = delivered(confluent_kafka.Producer(ruled.confluent(linger_ms=0)))
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    ruled.allow("WRITE TOPIC orders")
    producer = confluent_kafka.Producer(ruled.confluent(linger_ms=0))
    assert delivered(producer) is None
    ruled.revoke("WRITE TOPIC orders")
    refused = delivered(producer)
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    ruled.allow("WRITE TOPIC orders")
    assert delivered(confluent_kafka.Producer(ruled.confluent(linger_ms=0))) is None


def test_a_transactional_id_is_refused_for_good(ruled: RuledBroker) -> None:
    ruled.allow("WRITE TOPIC orders")
    producer = confluent_kafka.Producer(ruled.confluent(transactional_id="t"))
    error = error_of(lambda: producer.init_transactions(WAIT_S))
    assert error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert error.fatal()


def test_a_right_that_goes_in_a_transaction_ends_it_whole(ruled: RuledBroker) -> None:
    ruled.allow("WRITE TRANSACTIONAL_ID t", "WRITE TOPIC orders")
    producer = confluent_kafka.Producer(ruled.confluent(transactional_id="t"))
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("orders", b"torn")
    assert producer.flush(WAIT_S) == 0
    ruled.revoke("WRITE TRANSACTIONAL_ID t")
    error = error_of(lambda: producer.commit_transaction(WAIT_S))
    assert error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert error.fatal()
    ruled.broker.faults.expire_transaction("t")
    ruled.allow("READ TOPIC orders", "READ GROUP g")
    last = confluent_kafka.Producer(ruled.confluent(linger_ms=0))
    assert delivered(last) is None
    consumer = confluent_kafka.Consumer(
        ruled.confluent(
            group_id="g", auto_offset_reset="earliest", isolation_level="read_committed"
        )
    )
    consumer.subscribe(["orders"])
    message = read(consumer)
    values = [message.value()]
    while values[-1] != b"value":
        values.append(read(consumer).value())
    consumer.close()
    assert b"torn" not in values


def test_a_consumer_is_told_of_its_group_and_its_topic(ruled: RuledBroker) -> None:
    for rights, code in (
        (["READ TOPIC orders"], KafkaError.GROUP_AUTHORIZATION_FAILED),
        (["READ GROUP g"], KafkaError.TOPIC_AUTHORIZATION_FAILED),
    ):
        ruled.allow(*rights)
        consumer = confluent_kafka.Consumer(
            ruled.confluent(group_id="g", auto_offset_reset="earliest")
        )
        consumer.subscribe(["orders"])
        error = read(consumer).error()
        assert error is not None
        assert error.code() == code
        consumer.close()
        ruled.revoke(*rights)


def test_an_administrator_is_told_of_the_cluster_and_of_topics(ruled: RuledBroker) -> None:
    admin = AdminClient(ruled.confluent())
    made = admin.create_topics([NewTopic("new", 1, 1)])["new"]
    assert error_of(made.result).code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    deleted = admin.delete_topics(["orders"])["orders"]
    assert error_of(deleted.result).code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    broker = ConfigResource(ConfigResource.Type.BROKER, "1")
    described = admin.describe_configs([broker])[broker]
    assert error_of(described.result).code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    group = admin.delete_consumer_groups(["g"])["g"]
    assert error_of(group.result).code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    assert "orders" not in admin.list_topics(timeout=WAIT_S).topics
    ruled.allow("DESCRIBE TOPIC orders")
    assert "orders" in admin.list_topics(timeout=WAIT_S).topics
