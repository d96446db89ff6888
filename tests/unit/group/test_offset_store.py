"""The commits in flight of a group's offsets."""

from oncelog.core.ids import TopicPartition
from oncelog.group.events import OffsetCommit
from oncelog.group.offset_store import OffsetStore

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_of_two_commits_in_flight_the_older_one_is_applied_first() -> None:
    store = OffsetStore()
    older, newer = (OffsetCommit("g", at, -1, "", ()) for at in (1, 2))
    store.add_in_flight("g", [T0], older)
    store.add_in_flight("g", [T0], newer)
    store.complete_in_flight("g", T0)
    store.fail_in_flight("g", older)
    assert store.is_in_flight("g", T0)
    store.fail_in_flight("g", newer)
    assert not store.is_in_flight("g", T0)
    assert store.group_ids() == []


def test_a_commit_is_in_flight_and_fails_with_all_of_its_partitions() -> None:
    store = OffsetStore()
    commit = OffsetCommit("g", 1, -1, "", ())
    store.add_in_flight("g", [T0, T1], commit)
    assert [store.is_in_flight("g", each) for each in (T0, T1)] == [True, True]
    store.fail_in_flight("g", commit)
    assert [store.is_in_flight("g", each) for each in (T0, T1)] == [False, False]
