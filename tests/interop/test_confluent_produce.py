"""confluent-kafka (librdkafka) produces to and consumes from a real `oncelog serve` process."""

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.interop.confluent import (
    WAIT_S,
    consumer,
    create_topic,
    fresh,
    given,
    producer,
    read_all,
    send,
    wait_until,
)
from tests.support.broker import BrokerProcess

pytestmark = pytest.mark.interop


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@pytest.mark.parametrize("acks", ["all", "1"])
def test_what_is_produced_is_consumed_in_order(bootstrap_servers: str, acks: str) -> None:
    topic = create_topic(bootstrap_servers)
    delivered = send(producer(bootstrap_servers, acks=acks), topic, numbered(500))
    assert [message.offset() for message in delivered] == list(range(500))
    assert read_all(bootstrap_servers, topic) == numbered(500)


def test_without_acks_records_still_arrive(bootstrap_servers: str) -> None:
    topic = create_topic(bootstrap_servers)
    send(producer(bootstrap_servers, acks="0"), topic, numbered(100))
    found: list[bytes] = []

    def arrived() -> bool:
        found[:] = read_all(bootstrap_servers, topic)
        return len(found) == 100

    wait_until(arrived, "records sent with acks=0")
    assert found == numbered(100)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_pass_through(bootstrap_servers: str, codec: str) -> None:
    topic = create_topic(bootstrap_servers)
    settings = {"compression.type": codec, "linger.ms": 20}
    send(producer(bootstrap_servers, **settings), topic, numbered(2000))
    assert read_all(bootstrap_servers, topic) == numbered(2000)


def test_an_idempotent_producer_gets_offsets_in_order(bootstrap_servers: str) -> None:
    topic = create_topic(bootstrap_servers, 3)
    idempotent = producer(bootstrap_servers, **{"enable.idempotence": True})
    for partition in range(3):
        delivered = send(idempotent, topic, numbered(300), partition)
        assert [message.offset() for message in delivered] == list(range(300))


def test_a_topic_is_created_when_it_is_produced_to(bootstrap_servers: str) -> None:
    topic = fresh("created-by-use")
    send(producer(bootstrap_servers), topic, [b"first"])
    assert read_all(bootstrap_servers, topic) == [b"first"]


def test_a_record_beyond_the_topics_limit_is_refused(bootstrap_servers: str) -> None:
    topic = create_topic(bootstrap_servers, **{"max.message.bytes": "2000"})
    errors: list[KafkaError] = []
    sender = producer(bootstrap_servers)
    sender.produce(topic, b"x" * 5000, on_delivery=lambda error, _: errors.append(given(error)))
    assert sender.flush(WAIT_S) == 0
    assert [error.code() for error in errors] == [KafkaError.MSG_SIZE_TOO_LARGE]


def test_clients_cannot_write_to_internal_topics(bootstrap_servers: str) -> None:
    errors: list[KafkaError] = []
    sender = producer(bootstrap_servers)
    sender.produce(
        "__consumer_offsets",
        b"x",
        partition=0,
        on_delivery=lambda error, _: errors.append(given(error)),
    )
    assert sender.flush(WAIT_S) == 0
    assert [error.code() for error in errors] == [KafkaError.TOPIC_EXCEPTION]


def test_a_fetch_returns_as_soon_as_a_record_is_there(bootstrap_servers: str) -> None:
    topic = create_topic(bootstrap_servers)
    reader = consumer(bootstrap_servers, **{"fetch.wait.max.ms": 15_000})
    reader.assign([TopicPartition(topic, 0, 0)])
    # The fetch waits at the broker by then; without a wake-up it would for 15 s.
    assert reader.poll(1) is None
    send(producer(bootstrap_servers), topic, [b"now"])
    message = reader.poll(5)
    reader.close()
    assert message is not None
    assert message.value() == b"now"


def test_an_offset_out_of_range_is_reset_by_the_clients_policy(bootstrap_servers: str) -> None:
    topic = create_topic(bootstrap_servers)
    send(producer(bootstrap_servers), topic, [b"only"])
    reader = consumer(bootstrap_servers)
    reader.assign([TopicPartition(topic, 0, 99)])
    message = reader.poll(WAIT_S)
    reader.close()
    assert message is not None
    assert message.value() == b"only"


def test_offsets_for_times_finds_the_first_record_at_or_after(bootstrap_servers: str) -> None:
    topic = create_topic(bootstrap_servers)
    sender = producer(bootstrap_servers)
    base_ms = 1_700_000_000_000
    for number in range(5):
        sender.produce(topic, b"x", partition=0, timestamp=base_ms + number * 1000)
        assert sender.flush(WAIT_S) == 0
    reader = consumer(bootstrap_servers)
    (found,) = reader.offsets_for_times([TopicPartition(topic, 0, base_ms + 1500)], timeout=WAIT_S)
    low, high = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_S)
    reader.close()
    assert found.offset == 2
    assert (low, high) == (0, 5)


def test_what_was_acknowledged_survives_sigkill_and_no_sequence_is_lost(tmp_path: Path) -> None:
    """INV-2 and INV-9: an idempotent producer goes on after the broker was killed and restarted."""
    with BrokerProcess(tmp_path / "data") as broker:
        topic = create_topic(broker.bootstrap_servers)
        idempotent = producer(broker.bootstrap_servers, **{"enable.idempotence": True})
        send(idempotent, topic, [b"a%d" % number for number in range(200)])
        broker.kill()
        broker.start()
        delivered = send(idempotent, topic, [b"b%d" % number for number in range(200)])
        assert [message.offset() for message in delivered] == list(range(200, 400))
        values = read_all(broker.bootstrap_servers, topic)
    assert values == [b"a%d" % n for n in range(200)] + [b"b%d" % n for n in range(200)]


def test_reading_an_unknown_topic_is_an_error(bootstrap_servers: str) -> None:
    reader = consumer(bootstrap_servers, **{"allow.auto.create.topics": False})
    with pytest.raises(KafkaException):
        reader.get_watermark_offsets(TopicPartition(fresh("nowhere"), 0), timeout=2)
    reader.close()
