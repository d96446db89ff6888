"""How long a partition that no broker knows is asked for."""

from oncelog.client.machines.unknown import UnknownTopics
from oncelog.core.ids import TopicPartition

T0 = TopicPartition("t", 0)
PATIENCE_MS = 1_000


def test_a_partition_that_stays_unknown_is_overdue_once() -> None:
    unknown = UnknownTopics(PATIENCE_MS)
    assert [unknown.is_overdue(T0, at_ms) for at_ms in (0, 600, 999, 1_000)] == [
        False,
        False,
        False,
        True,
    ]
    assert not unknown.is_overdue(T0, 1_001)


def test_a_partition_not_asked_for_in_between_begins_again() -> None:
    unknown = UnknownTopics(PATIENCE_MS)
    assert not unknown.is_overdue(T0, 0)
    assert not unknown.is_overdue(T0, 1_001)
    assert unknown.is_overdue(T0, 2_001)


def test_a_partition_that_was_found_begins_again() -> None:
    unknown = UnknownTopics(PATIENCE_MS)
    assert not unknown.is_overdue(T0, 0)
    unknown.found(T0)
    assert not unknown.is_overdue(T0, 1_000)
