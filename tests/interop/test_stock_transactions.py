"""Transactions with every stock Python client: librdkafka, kafka-python and aiokafka (all TV1)."""

import pytest

from tests.support.interop import (
    FENCED,
    Client,
    Record,
    Refused,
    fresh,
    read_to_end,
    wait_until,
)

pytestmark = [pytest.mark.interop, pytest.mark.slow]


def values(client: Client, topic: str, partitions: int, isolation_level: str) -> list[bytes]:
    return [r.value or b"" for r in read_to_end(client, topic, partitions, isolation_level)]


def test_only_what_was_committed_is_seen_by_read_committed(client: Client) -> None:
    """INV-3."""
    topic = client.topic(2)
    sender = client.sender(transactional_id=fresh("txn"))
    for number in range(5):
        sender.begin()
        sender.send(topic, [Record(b"%d" % number, partition=part) for part in range(2)])
        if number % 2:
            sender.abort()
        else:
            sender.commit()
    assert values(client, topic, 2, "read_committed") == [b"0", b"2", b"4"] * 2
    everything = [b"%d" % number for number in range(5)] * 2
    assert values(client, topic, 2, "read_uncommitted") == everything


def test_an_open_transaction_holds_back_what_follows_it(client: Client) -> None:
    """INV-7."""
    topic = client.topic()
    sender = client.sender(transactional_id=fresh("txn"))
    sender.begin()
    sender.send(topic, [Record(b"open")])
    client.sender().send(topic, [Record(b"plain")])
    reader = client.reader(isolation_level="read_committed")
    reader.assign(topic, [0])
    assert [record for _ in range(4) for record in reader.poll()] == []
    assert values(client, topic, 1, "read_uncommitted") == [b"open", b"plain"]
    sender.commit()
    assert values(client, topic, 1, "read_committed") == [b"open", b"plain"]


def test_empty_transactions_end(client: Client) -> None:
    sender = client.sender(transactional_id=fresh("txn"))
    for end in (sender.commit, sender.abort, sender.commit):
        sender.begin()
        end()


def test_a_new_instance_fences_the_old_one_and_aborts_what_it_left(client: Client) -> None:
    """INV-5."""
    topic, transactional_id = client.topic(), fresh("txn")
    old = client.sender(transactional_id=transactional_id)
    old.begin()
    old.send(topic, [Record(b"old")])
    new = client.sender(transactional_id=transactional_id)
    with pytest.raises(Refused) as caught:
        old.commit()
    assert caught.value.name in FENCED
    new.begin()
    new.send(topic, [Record(b"new")])
    new.commit()
    assert values(client, topic, 1, "read_committed") == [b"new"]


def test_a_fenced_instance_adds_nothing_to_a_log(client: Client) -> None:
    """INV-5."""
    topic, transactional_id = client.topic(), fresh("txn")
    old = client.sender(transactional_id=transactional_id)
    old.begin()
    old.send(topic, [Record(b"before")])
    client.sender(transactional_id=transactional_id)
    with pytest.raises(Refused) as caught:
        old.send(topic, [Record(b"after")])
    assert caught.value.name in FENCED
    assert values(client, topic, 1, "read_uncommitted") == [b"before"]


def test_a_timeout_above_the_brokers_limit_is_refused(client: Client) -> None:
    with pytest.raises(Refused) as caught:
        client.sender(transactional_id=fresh("txn"), transaction_timeout_ms=16 * 60 * 1000)
    # kafka-python does not pass the broker's reason on.
    assert caught.value.name in ("INVALID_TRANSACTION_TIMEOUT", "KafkaError")


def test_a_transaction_beyond_its_timeout_is_aborted(client: Client) -> None:
    topic = client.topic()
    sender = client.sender(transactional_id=fresh("txn"), transaction_timeout_ms=1_000)
    sender.begin()
    sender.send(topic, [Record(b"late")])
    client.sender().send(topic, [Record(b"plain")])
    reader = client.reader(isolation_level="read_committed")
    reader.assign(topic, [0])
    found: list[bytes | None] = []

    def released() -> bool:
        found.extend(record.value for record in reader.poll())
        return bool(found)

    wait_until(released, "the abort of a transaction that timed out")
    assert found == [b"plain"]
    with pytest.raises(Refused):
        sender.commit()


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_offsets_in_a_transaction_count_exactly_when_it_commits(
    client: Client, commit: bool
) -> None:
    """INV-6: consume, transform, produce."""
    source, sink, group = client.topic(), client.topic(), fresh("group")
    client.sender().send(source, [Record(b"%d" % number) for number in range(10)])
    reader = client.reader(group=group)
    reader.subscribe(source)
    taken: list[bytes] = []

    def step() -> bool:
        taken.extend(record.value or b"" for record in reader.poll())
        return len(taken) == 10

    wait_until(step, "the source's records")
    sender = client.sender(transactional_id=fresh("txn"))
    sender.begin()
    sender.send(sink, [Record(value) for value in taken])
    sender.send_offsets(source, {0: 10}, reader)
    if commit:
        sender.commit()
    else:
        sender.abort()
    reader.close()
    assert client.reader(group=group).committed(source, 0) == (10 if commit else None)
    assert values(client, sink, 1, "read_committed") == (taken if commit else [])
