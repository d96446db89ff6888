"""The blocking clients, against a broker in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import islice

import pytest

import oncelog
from oncelog import (
    AbortableError,
    ClientError,
    EmbeddedBroker,
    FatalError,
    NewTopic,
    TopicPartition,
    sync,
)
from tests.support.reference.api import members

ZERO = TopicPartition("t", 0)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        with sync.Admin(broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", 1), NewTopic("seek", 1)])
        yield broker.bootstrap_servers


def test_records_go_there_and_come_back(servers: str) -> None:
    with sync.Producer(servers, transactional_id="sync") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"never")
        producer.abort_transaction()
        producer.begin_transaction()
        sent = [producer.send("t", value) for value in (b"a", b"b")]
        producer.commit_transaction()
        assert [one.result(0).partition for one in sent] == [0, 0]
    with sync.Consumer(servers, group_id="sync") as consumer:
        consumer.assign([ZERO])
        assert [record.value for record in islice(consumer, 2)] == [b"a", b"b"]
        consumer.commit()
        assert consumer.committed()[ZERO].offset == consumer.position(ZERO)


def test_what_an_iteration_has_not_given_yet_is_not_committed(servers: str) -> None:
    with sync.Admin(servers) as admin:
        admin.create_topics([NewTopic("iterated", 1)])
    with sync.Producer(servers) as producer:
        for number in range(5):
            producer.send("iterated", b"%d" % number)
    for expected in ([b"0", b"1"], [b"2", b"3"]):
        with sync.Consumer(servers, {"group.id": "iterating"}) as consumer:
            consumer.subscribe(["iterated"])
            assert [record.value for record in islice(consumer, 2)] == expected


def test_errors_are_those_of_the_asyncio_clients(servers: str) -> None:
    with sync.Admin(servers) as admin, pytest.raises(FatalError) as caught:
        admin.describe_topic("nowhere")
    assert caught.value.code.name == "unknown_topic_or_partition"
    with sync.Producer(servers, transactional_id="failing") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        delivery = producer.send("t", b"v")
        producer.abort_transaction()
        assert isinstance(delivery.exception(1), AbortableError | None)
    with pytest.raises(ClientError), sync.Admin("127.0.0.1:1", timeout_ms=10):
        pass


def test_leaving_ends_the_thread_and_may_be_done_twice(servers: str) -> None:
    before = threading.active_count()
    with sync.Consumer(servers) as consumer:
        assert threading.active_count() == before + 1
    consumer.close()
    assert threading.active_count() == before


NOT_BLOCKING: dict[str, set[str]] = {
    "Admin": set(),
    "Consumer": {"fetch_batches"},
    "Producer": {
        "attach",
        "continue_at",
        "producer_epoch",
        "producer_id",
        "reattach",
        "send_batch",
        "wait_for_memory",
    },
}
"""What is for programs that pass whole batches on or share a transaction; `send` waits for room."""


@pytest.mark.parametrize("name", ["Admin", "Consumer", "Producer"])
def test_every_method_of_the_asyncio_client_is_there(name: str) -> None:
    ours = {each for each, _ in members(getattr(oncelog, name))}
    blocking = {each for each, _ in members(getattr(sync, name))}
    assert ours - blocking == NOT_BLOCKING[name]
