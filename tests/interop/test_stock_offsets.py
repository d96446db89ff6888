"""Seeking, offsets for times and the bounds of a partition, with every stock Python client."""

import pytest

from tests.support.interop import WAIT_S, Client, Reader, Received, Record, fresh, wait_until

pytestmark = [pytest.mark.interop, pytest.mark.slow]

BASE_MS = 1_700_000_000_000


def read(reader: Reader, count: int) -> list[Received]:
    found: list[Received] = []

    def step() -> bool:
        found.extend(reader.poll())
        return len(found) >= count

    wait_until(step, f"{count} records", WAIT_S)
    return found


def numbered(client: Client, count: int) -> str:
    topic = client.topic()
    records = [Record(b"%d" % n, timestamp_ms=BASE_MS + 1_000 * n) for n in range(count)]
    sender = client.sender()
    for record in records:
        sender.send(topic, [record])
    return topic


def test_a_reader_goes_to_where_it_was_sent(client: Client) -> None:
    topic = numbered(client, 10)
    reader = client.reader()
    reader.assign(topic, [0])
    assert [r.offset for r in read(reader, 10)] == list(range(10))
    reader.seek(topic, 0, 7)
    assert [r.offset for r in read(reader, 3)] == [7, 8, 9]
    reader.seek(topic, 0, 2)
    assert [r.value for r in read(reader, 8)][:2] == [b"2", b"3"]


def test_an_offset_out_of_range_is_reset_to_the_earliest(client: Client) -> None:
    topic = numbered(client, 3)
    reader = client.reader()
    reader.assign(topic, [0])
    reader.seek(topic, 0, 99)
    assert [r.offset for r in read(reader, 3)] == [0, 1, 2]


def test_offsets_are_found_by_time(client: Client) -> None:
    topic = numbered(client, 5)
    reader = client.reader()
    assert reader.offset_for_time(topic, 0, BASE_MS - 1) == 0
    assert reader.offset_for_time(topic, 0, BASE_MS + 2_000) == 2
    assert reader.offset_for_time(topic, 0, BASE_MS + 2_001) == 3
    assert reader.offset_for_time(topic, 0, BASE_MS + 4_001) is None


def test_bounds_are_the_first_and_the_next_offset(client: Client) -> None:
    topic = numbered(client, 4)
    assert client.reader().bounds(topic, 0) == (0, 4)


def test_a_read_committed_reader_is_told_the_last_stable_offset_as_the_end(
    client: Client,
) -> None:
    topic = numbered(client, 2)
    sender = client.sender(transactional_id=fresh("txn"))
    sender.begin()
    sender.send(topic, [Record(b"open")])
    committed = client.reader(isolation_level="read_committed")
    uncommitted = client.reader(isolation_level="read_uncommitted")
    assert committed.bounds(topic, 0) == (0, 2)
    assert uncommitted.bounds(topic, 0) == (0, 3)
    sender.commit()
    # The marker takes an offset as well. Apache Kafka writes it after it answered the commit.
    wait_until(lambda: committed.bounds(topic, 0) == (0, 4), "the marker")
