"""What consumers of the classic protocol put into JoinGroup and SyncGroup, read and written."""

import struct

import pytest

from oncelog.group.consumer.embedded import (
    NamedPartitions,
    Subscription,
    identified,
    read_assignment,
    read_subscription,
    write_assignment,
)
from oncelog.protocol.codec import writer
from oncelog.protocol.wire import INT16
from tests.unit.group.consumer.world import FakeTopics, partitions
from tests.unit.group.context import subscription

TOPICS = FakeTopics({"t": 4, "u": 1})


def encoded(value: Subscription, version: int) -> bytes:
    raw = bytearray(INT16.pack(version))
    writer(Subscription, min(version, 3), flexible=False)(raw, value)
    return bytes(raw)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 9])
def test_a_subscription_says_as_much_as_its_version_carries(version: int) -> None:
    owned = (NamedPartitions(topic="t", partitions=(1, 2)),)
    whole = Subscription(topics=("t",), owned_partitions=owned, generation_id=4, rack_id="r")
    found = read_subscription(encoded(whole, version))
    assert found is not None
    assert found.topics == ("t",)
    assert found.owned_partitions == (owned if version >= 1 else ())
    assert found.generation_id == (4 if version >= 2 else -1)
    assert found.rack_id == ("r" if version >= 3 else None)
    assert read_subscription(subscription("t")) == Subscription(topics=("t",))


@pytest.mark.parametrize(
    "raw", [b"", b"\x00", b"\xff\xff", b"\x00\x00\x7f\xff\xff\xff", b"\x00\x01"]
)
def test_bytes_that_are_no_subscription_are_none(raw: bytes) -> None:
    assert read_subscription(raw) is None


def test_an_assignment_names_the_topics_that_there_are() -> None:
    raw = write_assignment(partitions("t", 2, 0) | partitions("gone", 1), TOPICS, b"\x00\x02")
    assert raw == struct.pack(">hih1siiii", 2, 1, 1, b"t", 2, 0, 2, -1)
    found = read_assignment(raw)
    assert found is not None
    assert identified(found.assigned_partitions, TOPICS) == partitions("t", 0, 2)
    assert identified((NamedPartitions(topic="gone", partitions=(1,)),), TOPICS) == frozenset()


def test_no_bytes_assign_nothing_and_damaged_ones_are_none() -> None:
    empty = read_assignment(b"")
    assert empty is not None
    assert not empty.assigned_partitions
    assert read_assignment(b"\xff\xff") is None
    assert read_assignment(b"\x00\x00\x7f\xff\xff\xff") is None
