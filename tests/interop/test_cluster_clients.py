"""Stock clients of three real brokers: the Java client, groups whose coordinator is killed, and
transactions while each broker is killed in turn.
"""

from __future__ import annotations

import re
import subprocess
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.interop.confluent import (
    WAIT_S,
    fresh,
    producer,
    read_all,
    send,
    transactional,
    wait_until,
)
from tests.interop.test_java import CHECKS, CODECS, SOURCE
from tests.support.broker_processes import IDS, Brokers
from tests.support.cluster_soak import settings
from tests.support.peer import PeerUnavailable, jars, java
from tests.support.workload import QUIET

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(180)]

SESSION_MS = 3_000
RUN_TIMEOUT_S = 150
PARTITION_COUNT = 3


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    folder = tmp_path_factory.mktemp("brokers")
    with Brokers(folder, settings(SESSION_MS)) as running:
        yield running


@pytest.fixture(scope="module")
def printed(brokers: Brokers) -> str:
    """What the Java client's checks say."""
    try:
        class_path = jars()
    except PeerUnavailable as reason:
        pytest.skip(f"the Java client cannot be had: {reason}")
    command = [java(), "-XX:TieredStopAtLevel=1", "-cp", class_path, str(SOURCE), brokers.servers]
    done = subprocess.run(
        [*command, uuid.uuid4().hex[:8], str(len(IDS)), *CODECS, *CHECKS],
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.soak
@pytest.mark.parametrize("check", [*CODECS, *CHECKS])
def test_the_java_client_of_three_brokers(printed: str, check: str) -> None:
    verdicts = [
        line for line in printed.splitlines() if re.match(rf"(ok|failed) {check}(:|$)", line)
    ]
    assert verdicts == [f"ok {check}"]


def member(servers: str, group: str, protocol: str) -> Consumer:
    session = {} if protocol == "consumer" else {"session.timeout.ms": 6000}
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **session,
            **QUIET,
        }
    )


def read(consumer: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []

    def is_there() -> bool:
        for message in consumer.consume(count - len(found), 0.2):
            assert message.error() is None or message.error().retriable(), message.error()  # type: ignore[union-attr]
            found.extend([message.value() or b""] if message.error() is None else [])
        return len(found) >= count

    wait_until(is_there, f"{count} records", 60)
    return found


def commit(consumer: Consumer) -> None:
    """Commit, again and again while the client says that it may be tried again."""

    def is_done() -> bool:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            return False
        return True

    wait_until(is_done, "the commit", 60)


def offsets(consumer: Consumer, topic: str) -> list[int]:
    wanted = [TopicPartition(topic, partition) for partition in range(PARTITION_COUNT)]
    return [each.offset for each in consumer.committed(wanted, WAIT_S)]


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.soak)])
def test_a_group_goes_on_after_its_coordinator_was_killed(brokers: Brokers, protocol: str) -> None:
    topic, group = fresh("topic"), fresh("group")
    brokers.create_topic(topic, PARTITION_COUNT)
    to = producer(brokers.servers, **{"enable.idempotence": True})
    for partition in range(PARTITION_COUNT):
        send(to, topic, [b"%d:%d" % (partition, n) for n in range(20)], partition)
    first = member(brokers.servers, group, protocol)
    first.subscribe([topic])
    before = read(first, 30)
    commit(first)
    noted = offsets(first, topic)
    assert sum(max(0, offset) for offset in noted) == 30
    described = brokers.admin.describe_consumer_groups([group])[group].result(WAIT_S)
    coordinator = described.coordinator.id
    brokers.kill(coordinator)
    try:
        second = member(brokers.servers, group, protocol)
        assert offsets(second, topic) == noted
        after = read(first, 30)
        commit(first)
        assert sorted(before + after) == sorted(
            b"%d:%d" % (p, n) for p in range(PARTITION_COUNT) for n in range(20)
        )
        assert offsets(second, topic) == [20] * PARTITION_COUNT
        # A new client: the one before has kept who was the coordinator, and waits for it.
        admin = AdminClient({"bootstrap.servers": brokers.servers, **QUIET})
        moved = admin.describe_consumer_groups([group])[group].result(WAIT_S)
        assert moved.coordinator.id != coordinator
        # Another member comes, so the new coordinator balances the group.
        second.subscribe([topic])
        wait_until(lambda: polled(first) and polled(second), "both to have partitions", 60)
    finally:
        brokers.start(coordinator)
    first.close()
    second.close()
    brokers.until(lambda: brokers.is_whole(topic), 60)


def polled(consumer: Consumer) -> bool:
    """Whether it has partitions, after it had time for its group."""
    assert consumer.consume(1, 0.1) == []
    return len(consumer.assignment()) > 0


def end(to: Producer, *, commit: bool) -> None:
    """Commit or abort, again and again while the client says that it may be tried again."""

    def is_done() -> bool:
        try:
            if commit:
                to.commit_transaction(WAIT_S)
            else:
                to.abort_transaction(WAIT_S)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            return False
        return True

    wait_until(is_done, "the end of a transaction", 60)


def test_transactions_go_on_while_each_broker_is_killed_in_turn(brokers: Brokers) -> None:
    """INV-3: coordinators and leaders die while a transaction is open, and none is lost."""
    topic = fresh("topic")
    brokers.create_topic(topic, PARTITION_COUNT)
    to = transactional(brokers.servers, fresh("id"), **QUIET)
    wanted = []
    for number, broker_id in enumerate(each for each in IDS for _ in range(4)):
        to.begin_transaction()
        for partition in range(PARTITION_COUNT):
            to.produce(topic, b"%d:%d" % (partition, number), partition=partition)
        if number % 4 == 1:
            brokers.kill(broker_id)
        # An abort without the first request of a transaction is fatal to librdkafka.
        assert to.flush(60) == 0, number
        is_committed = number % 3 > 0
        wanted += [number] * is_committed
        end(to, commit=is_committed)
        if number % 4 == 3:
            brokers.start(broker_id)
            brokers.until(lambda: brokers.is_whole(topic), 60)
    found = read_all(brokers.servers, topic, PARTITION_COUNT)
    assert sorted(found) == sorted(
        b"%d:%d" % (p, n) for p in range(PARTITION_COUNT) for n in wanted
    )
    for partition in range(PARTITION_COUNT):
        of_one = [
            int(value.split(b":")[1]) for value in found if value.startswith(b"%d:" % partition)
        ]
        assert of_one == wanted
