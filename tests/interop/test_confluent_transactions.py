"""confluent-kafka's transactions against a real `oncelog serve`: INV-3, INV-4, INV-5, INV-6."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

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
    transactional,
    wait_until,
)
from tests.support.broker import BrokerProcess

pytestmark = pytest.mark.interop

NONE_COMMITTED = -1001


def test_a_committed_transaction_is_read_and_an_aborted_one_is_not(bootstrap_servers: str) -> None:
    topic = create_topic(bootstrap_servers)
    writer = transactional(bootstrap_servers, fresh("txn"))
    for number in range(6):
        writer.begin_transaction()
        send(writer, topic, [b"%d" % number])
        if number % 2 == 0:
            writer.commit_transaction(WAIT_S)
        else:
            writer.abort_transaction(WAIT_S)
    assert read_all(bootstrap_servers, topic) == [b"0", b"2", b"4"]
    everything = read_all(bootstrap_servers, topic, isolation_level="read_uncommitted")
    assert everything == [b"%d" % number for number in range(6)]


def test_a_transaction_over_partitions_is_visible_whole_or_not_at_all(
    bootstrap_servers: str,
) -> None:
    topic = create_topic(bootstrap_servers, 4)
    writer = transactional(bootstrap_servers, fresh("txn"))
    writer.begin_transaction()
    for partition in range(4):
        send(writer, topic, [b"%d" % partition], partition)
    assert read_all(bootstrap_servers, topic, 4) == []
    writer.commit_transaction(WAIT_S)
    assert sorted(read_all(bootstrap_servers, topic, 4)) == [b"0", b"1", b"2", b"3"]


def test_an_open_transaction_holds_back_later_records_for_read_committed(
    bootstrap_servers: str,
) -> None:
    topic = create_topic(bootstrap_servers)
    writer = transactional(bootstrap_servers, fresh("txn"))
    writer.begin_transaction()
    send(writer, topic, [b"open"])
    send(producer(bootstrap_servers), topic, [b"plain"])
    assert read_all(bootstrap_servers, topic) == []
    uncommitted = read_all(bootstrap_servers, topic, isolation_level="read_uncommitted")
    assert uncommitted == [b"open", b"plain"]
    writer.commit_transaction(WAIT_S)
    assert read_all(bootstrap_servers, topic) == [b"open", b"plain"]


def test_a_reader_that_waits_gets_the_transaction_at_its_commit(bootstrap_servers: str) -> None:
    topic = create_topic(bootstrap_servers)
    reader = consumer(bootstrap_servers, **{"fetch.wait.max.ms": 15_000})
    reader.assign([TopicPartition(topic, 0, 0)])
    # The fetch waits at the broker by then; without a wake-up it would for 15 s.
    assert reader.poll(1) is None
    writer = transactional(bootstrap_servers, fresh("txn"))
    writer.begin_transaction()
    send(writer, topic, [b"now"])
    writer.commit_transaction(WAIT_S)
    message = reader.poll(5)
    reader.close()
    assert message is not None
    assert message.value() == b"now"


def test_a_new_producer_fences_the_old_one(bootstrap_servers: str) -> None:
    """INV-5: what the old producer left open is aborted, and it can do nothing more."""
    topic = create_topic(bootstrap_servers)
    transactional_id = fresh("txn")
    zombie = transactional(bootstrap_servers, transactional_id)
    zombie.begin_transaction()
    send(zombie, topic, [b"zombie"])
    heir = transactional(bootstrap_servers, transactional_id)
    with pytest.raises(KafkaException) as caught:
        zombie.commit_transaction(WAIT_S)
    assert caught.value.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)
    heir.begin_transaction()
    send(heir, topic, [b"heir"])
    heir.commit_transaction(WAIT_S)
    assert read_all(bootstrap_servers, topic) == [b"heir"]


def test_a_fenced_producer_cannot_add_records(bootstrap_servers: str) -> None:
    topic = create_topic(bootstrap_servers)
    transactional_id = fresh("txn")
    zombie = transactional(bootstrap_servers, transactional_id)
    zombie.begin_transaction()
    send(zombie, topic, [b"before"])
    transactional(bootstrap_servers, transactional_id)
    zombie.produce(topic, b"after")
    # Being fenced is fatal, and librdkafka's Python client raises that from wherever it polls.
    with pytest.raises(KafkaException) as caught:
        zombie.flush(WAIT_S)
    assert caught.value.args[0].code() == KafkaError._FENCED
    uncommitted = read_all(bootstrap_servers, topic, isolation_level="read_uncommitted")
    assert uncommitted == [b"before"]


def test_a_transaction_beyond_its_timeout_is_aborted(bootstrap_servers: str) -> None:
    topic = create_topic(bootstrap_servers)
    writer = transactional(
        bootstrap_servers,
        fresh("txn"),
        **{"transaction.timeout.ms": 1000, "message.timeout.ms": 900},
    )
    writer.begin_transaction()
    send(writer, topic, [b"late"])
    send(producer(bootstrap_servers), topic, [b"plain"])

    def released() -> bool:
        return read_all(bootstrap_servers, topic) == [b"plain"]

    wait_until(released, "the abort of a transaction that timed out")
    with pytest.raises(KafkaException):
        writer.commit_transaction(WAIT_S)


def test_a_timeout_above_the_brokers_limit_is_refused(bootstrap_servers: str) -> None:
    writer = producer(
        bootstrap_servers,
        **{"transactional.id": fresh("txn"), "transaction.timeout.ms": 16 * 60 * 1000},
    )
    with pytest.raises(KafkaException) as caught:
        writer.init_transactions(WAIT_S)
    assert caught.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_in_a_transaction_are_visible_exactly_when_it_commits(
    bootstrap_servers: str, commit: bool
) -> None:
    """INV-6."""
    source, sink = create_topic(bootstrap_servers), create_topic(bootstrap_servers)
    send(producer(bootstrap_servers), source, [b"%d" % number for number in range(10)])
    group = fresh("group")
    reader = consumer(bootstrap_servers, group)
    reader.subscribe([source])
    taken: list[bytes] = []

    def step() -> bool:
        message = reader.poll(0.2)
        if message is not None and message.error() is None:
            taken.append(given(message.value()))
        return len(taken) == 10

    wait_until(step, "the source's records")
    writer = transactional(bootstrap_servers, fresh("txn"))
    writer.begin_transaction()
    send(writer, sink, taken)
    writer.send_offsets_to_transaction(
        reader.position(reader.assignment()), reader.consumer_group_metadata(), WAIT_S
    )
    if commit:
        writer.commit_transaction(WAIT_S)
    else:
        writer.abort_transaction(WAIT_S)
    reader.close()
    assert committed(bootstrap_servers, group, source) == (10 if commit else NONE_COMMITTED)
    assert len(read_all(bootstrap_servers, sink)) == (10 if commit else 0)


def test_offsets_of_an_open_transaction_are_not_served(bootstrap_servers: str) -> None:
    """INV-6: librdkafka asks for stable offsets, so it waits until the transaction is over."""
    topic = create_topic(bootstrap_servers)
    group = fresh("group")
    reader = consumer(bootstrap_servers, group)
    writer = transactional(bootstrap_servers, fresh("txn"))
    writer.begin_transaction()
    writer.send_offsets_to_transaction(
        [TopicPartition(topic, 0, 7)], reader.consumer_group_metadata(), WAIT_S
    )
    waiting = consumer(bootstrap_servers, group)
    with pytest.raises(KafkaException):
        waiting.committed([TopicPartition(topic, 0)], timeout=1)
    writer.commit_transaction(WAIT_S)
    (found,) = waiting.committed([TopicPartition(topic, 0)], timeout=WAIT_S)
    reader.close()
    waiting.close()
    assert found.offset == 7


def test_many_producers_commit_side_by_side(bootstrap_servers: str) -> None:
    topic = create_topic(bootstrap_servers, 2)

    def work(number: int) -> None:
        writer = transactional(bootstrap_servers, fresh("txn"))
        for turn in range(20):
            writer.begin_transaction()
            for partition in range(2):
                send(writer, topic, [b"%d-%d" % (number, turn)], partition)
            writer.commit_transaction(WAIT_S)

    with ThreadPoolExecutor(4) as pool:
        # list() raises what any of them raised.
        list(pool.map(work, range(4)))
    values = read_all(bootstrap_servers, topic, 2)
    assert sorted(values) == sorted(2 * [b"%d-%d" % (n, t) for n in range(4) for t in range(20)])


def test_transactions_survive_sigkill_of_the_broker(tmp_path: Path) -> None:
    """INV-3, INV-4 and INV-9: open transactions go on after a restart, ended ones stay ended."""
    settings = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
    with BrokerProcess(tmp_path / "data", settings) as broker:
        servers = broker.bootstrap_servers
        topic = create_topic(servers)
        writer = transactional(servers, "survivor")
        writer.begin_transaction()
        send(writer, topic, [b"committed"])
        writer.commit_transaction(WAIT_S)
        writer.begin_transaction()
        send(writer, topic, [b"aborted"])
        writer.abort_transaction(WAIT_S)
        writer.begin_transaction()
        send(writer, topic, [b"open, before"])
        broker.kill()
        broker.start()
        send(writer, topic, [b"open, after"])
        assert read_all(servers, topic) == [b"committed"]
        writer.commit_transaction(WAIT_S)
        assert read_all(servers, topic) == [b"committed", b"open, before", b"open, after"]
