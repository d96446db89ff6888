"""confluent-kafka meets faults on demand that the ten tests of examples/testing leave out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException

from oncelog.testing import ApiKey, ControlledBroker, ErrorCode
from tests.interop.confluent import WAIT_S, producer, read_all, send, transactional

pytestmark = [pytest.mark.interop, pytest.mark.slow]

PAUSES = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20}


@pytest.fixture(scope="module")
def started() -> Iterator[ControlledBroker]:
    with ControlledBroker() as broker:
        yield broker


@pytest.fixture
def topic(started: ControlledBroker, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name)
    started.create_topic(name)
    return name


def test_a_request_that_is_lost_is_sent_again(started: ControlledBroker, topic: str) -> None:
    lost = started.faults.lose_request(ApiKey.PRODUCE)
    send(
        producer(started.bootstrap_servers, **{"enable.idempotence": True, **PAUSES}), topic, [b"a"]
    )
    lost.wait()
    assert read_all(started.bootstrap_servers, topic) == [b"a"]


def test_an_error_that_passes_is_tried_again(started: ControlledBroker, topic: str) -> None:
    failed = started.faults.fail(ApiKey.PRODUCE, ErrorCode.not_leader_or_follower, times=2)
    send(
        producer(started.bootstrap_servers, **{"enable.idempotence": True, **PAUSES}), topic, [b"a"]
    )
    failed.wait()
    assert read_all(started.bootstrap_servers, topic) == [b"a"]


def test_inv2_a_sequence_that_librdkafka_uses_again_loses_no_record(
    started: ControlledBroker, topic: str
) -> None:
    """A purged record may be in the log, and the next transaction's first record gets its number.

    That is no retry, so it is not acknowledged as one.
    """
    settings = {**PAUSES, "retry.backoff.ms": 5000, "retry.backoff.max.ms": 5000}
    client = transactional(started.bootstrap_servers, topic, **settings)
    client.begin_transaction()
    client.produce(topic, b"first")
    client.commit_transaction(WAIT_S)
    client.begin_transaction()
    lost = started.faults.lose_reply(ApiKey.PRODUCE)
    client.produce(topic, b"purged")
    client.flush(0.1)
    lost.wait()
    client.abort_transaction(WAIT_S)
    client.begin_transaction()
    client.produce(topic, b"never")
    with pytest.raises(KafkaException) as refused:
        client.commit_transaction(WAIT_S)
    assert refused.value.args[0].txn_requires_abort()
    client.abort_transaction(WAIT_S)
    client.begin_transaction()
    client.produce(topic, b"second")
    client.commit_transaction(WAIT_S)
    assert read_all(started.bootstrap_servers, topic) == [b"first", b"second"]


def test_faults_of_one_client_leave_another_alone(started: ControlledBroker, topic: str) -> None:
    fault = started.faults.fail(
        ApiKey.PRODUCE, ErrorCode.topic_authorization_failed, client_id="forbidden"
    )
    send(producer(started.bootstrap_servers, **PAUSES), topic, [b"a"])
    assert fault.hits_count == 0
    forbidden = producer(started.bootstrap_servers, **{"client.id": "forbidden", **PAUSES})
    failures: list[KafkaError | None] = []
    forbidden.produce(topic, b"b", on_delivery=lambda error, _: failures.append(error))
    assert forbidden.flush(WAIT_S) == 0
    assert [error.name() for error in failures if error] == ["TOPIC_AUTHORIZATION_FAILED"]
    assert read_all(started.bootstrap_servers, topic) == [b"a"]


def test_a_clock_that_moves_ages_transactions(started: ControlledBroker, topic: str) -> None:
    slow = transactional(
        started.bootstrap_servers, "slow", **{"transaction.timeout.ms": 900_000, **PAUSES}
    )
    slow.begin_transaction()
    send(slow, topic, [b"a"])
    started.faults.advance_clock(60_000)
    slow.commit_transaction(WAIT_S)
    slow.begin_transaction()
    send(slow, topic, [b"b"])
    started.faults.advance_clock(901_000)
    with pytest.raises(KafkaException):
        slow.commit_transaction(WAIT_S)
    assert read_all(started.bootstrap_servers, topic) == [b"a"]
