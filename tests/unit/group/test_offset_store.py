"""The commits in flight of a group's offsets."""

from oncelog.core.ids import TopicPartition
from oncelog.group.events import OffsetCommit
from oncelog.group.offset_store import OffsetStore

T0 = TopicPartition("t", 0)


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
