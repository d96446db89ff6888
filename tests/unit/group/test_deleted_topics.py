"""A topic made again under its name inherits no offsets, whatever came between."""

from uuid import UUID

import pytest

from oncelog.coordinator import Append
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.core.limits import EXPIRY_CONTINUE_MS
from oncelog.group import events as e
from oncelog.group.config import GroupConfig
from oncelog.group.replies import DeletedOffsetsReply
from oncelog.protocol.record import Record, build_batch
from tests.unit.coordinator.support import AnyOutput
from tests.unit.group.context import Context, Marker, topic_deleted

OLD, NEW = UUID(int=1), UUID(int=2)
SWEEP_MS = 600_000


class Measured(Context):
    """Notes how large each append is."""

    def __post_init__(self) -> None:
        self.sizes: list[int] = []
        super().__post_init__()

    def handle(self, output: AnyOutput) -> None:
        self.sizes += [size_of(append) for append in output.appends]
        super().handle(output)


def size_of(append: Append) -> int:
    entries = append.records
    return len(build_batch([Record(0, 0, entry.key, entry.value) for entry in entries]))


def commit(
    c: Context, topic_id: UUID, count: int = 1, *, topic: str = "t", group_id: str = "g"
) -> None:
    wanted = tuple(e.OffsetToCommit(topic, index, 5, -1, "", topic_id) for index in range(count))
    c.submit(e.OffsetCommit(group_id, 10, -1, "", wanted))


def txn_commit(c: Context, topic_id: UUID, producer_id: int = 7) -> None:
    wanted = (e.OffsetToCommit("t", 0, 6, -1, "", topic_id),)
    c.submit(e.TxnOffsetCommit("g", 5, "x", producer_id, 0, -1, "", wanted))


def kept(c: Context, group_id: str = "g") -> list[tuple[str, int]]:
    return [(found.topic, found.partition) for found in c.fetch_all(group_id=group_id)]


def tombstones_count(c: Context) -> int:
    return sum(not isinstance(item, Marker) and item.record.value is None for item in c.log)


def load(c: Context, **topic_ids: UUID) -> None:
    """Crash, load, and hear which topics the metadata names deleted."""
    c.restart()
    c.submit_silently(e.TopicsDeleted({name: frozenset((id_,)) for name, id_ in topic_ids.items()}))
    c.advance(0)


def found(c: Context, *topic_ids: UUID) -> frozenset[str]:
    """Of which deleted topics, all named `t`, there are offsets."""
    token = c.submit(e.FindDeletedOffsets({"t": frozenset(topic_ids)}))
    reply = c.replies[token]
    assert isinstance(reply, DeletedOffsetsReply)
    return reply.names


def test_more_offsets_than_one_append_holds_are_deleted_in_several() -> None:
    c = Measured(GroupConfig(append_bytes_max=500))
    commit(c, OLD, 50)
    commit(c, OLD, 50, group_id="h")
    c.sizes.clear()
    c.submit_silently(topic_deleted(OLD))
    assert len(c.sizes) == 1, "one append per turn of the loop"
    c.advance(0)
    assert len(c.sizes) > 2
    assert max(c.sizes) <= 500
    assert tombstones_count(c) == 100
    assert kept(c) == kept(c, "h") == []
    c.restart()
    assert kept(c) == kept(c, "h") == []


def test_an_append_too_small_for_anything_takes_one_at_a_time() -> None:
    c = Context(GroupConfig(append_bytes_max=1))
    commit(c, OLD, 3)
    c.submit_silently(topic_deleted(OLD))
    c.advance(0)
    assert kept(c) == []


def test_what_the_newer_topic_commits_between_two_appends_stays() -> None:
    c = Context(GroupConfig(append_bytes_max=150))
    commit(c, OLD, 20)
    c.submit_silently(topic_deleted(OLD))
    c.submit(e.OffsetCommit("g", 10, -1, "", (e.OffsetToCommit("t", 19, 7, -1, "", NEW),)))
    c.advance(0)
    assert kept(c) == [("t", 19)]


def test_after_a_load_the_offsets_of_topics_that_are_gone_are_deleted() -> None:
    """The crash came after the topic was forgotten, and before the tombstones."""
    c = Context()
    commit(c, OLD, 2)
    commit(c, NEW, topic="u")
    commit(c, OLD, group_id="h")
    txn_commit(c, OLD)
    load(c, t=OLD)
    assert kept(c) == [("u", 0)]
    assert kept(c, "h") == []
    c.marker(7, True)
    assert kept(c) == [("u", 0)]
    written = len(c.log)
    load(c, t=OLD)
    assert len(c.log) == written, "once is enough"


def test_a_load_deletes_no_offset_of_a_topic_that_is_not_named_deleted() -> None:
    """D14: the metadata may be a change behind the offsets, or restored from an older copy."""
    c = Context()
    commit(c, e.ZERO_TOPIC_ID)
    commit(c, NEW, group_id="h")
    commit(c, OLD, topic="unknown")
    written = len(c.log)
    load(c, t=OLD)
    assert kept(c) == [("t", 0), ("unknown", 0)]
    assert kept(c, "h") == [("t", 0)]
    assert len(c.log) == written
    load(c, t=e.ZERO_TOPIC_ID, unknown=OLD)
    assert kept(c) == []


def test_a_deletion_is_found_until_no_offset_of_its_topic_is_left() -> None:
    c = Context()
    assert found(c, OLD, e.ZERO_TOPIC_ID) == frozenset()
    txn_commit(c, OLD)
    commit(c, OLD, topic="u")
    assert found(c, OLD) == {"t"}
    assert found(c, NEW) == frozenset()
    c.marker(7, True)
    assert found(c, OLD) == {"t"}
    c.submit_silently(topic_deleted(OLD))
    assert found(c, OLD) == frozenset()


def test_an_offset_on_its_way_may_be_one_of_a_deleted_topic() -> None:
    c = Context(hold=True)
    commit(c, OLD)
    assert found(c, OLD) == {"t"}
    assert c.shard.id_of(e.FindDeletedOffsets({})) is None


def test_a_crash_amid_the_deletion_is_made_good_by_the_next_load() -> None:
    c = Context(GroupConfig(append_bytes_max=150))
    commit(c, OLD, 20)
    c.submit_silently(topic_deleted(OLD))
    assert 0 < len(kept(c)) < 20
    load(c, t=OLD)
    assert kept(c) == []


@pytest.mark.parametrize("error", [ErrorCode.not_enough_replicas, ErrorCode.message_too_large])
def test_a_deletion_that_was_not_written_is_tried_again(error: ErrorCode) -> None:
    c = Context()
    commit(c, OLD, 2)
    c.hold = True
    c.submit_silently(topic_deleted(OLD))
    c.fail(error)
    c.hold = False
    assert len(kept(c)) == 2
    c.advance(SWEEP_MS)
    assert kept(c) == []


def test_the_rest_of_a_deletion_that_was_not_written_is_tried_again() -> None:
    c = Context(GroupConfig(append_bytes_max=150))
    commit(c, OLD, 20)
    c.submit_silently(topic_deleted(OLD))
    c.hold = True
    c.handle(c.processor.tick(c.now_ms))
    c.fail(ErrorCode.not_enough_replicas)
    c.hold = False
    c.advance(SWEEP_MS)
    assert kept(c) == []


@pytest.mark.parametrize(("topic_id", "stays"), [(OLD, False), (NEW, True)])
def test_a_commit_on_its_way_is_judged_when_it_has_arrived(topic_id: UUID, stays: bool) -> None:
    c = Context()
    commit(c, OLD)
    c.hold = True
    commit(c, topic_id)
    c.submit_silently(topic_deleted(OLD))
    c.hold = False
    c.commit_all()
    c.advance(SWEEP_MS)
    assert kept(c) == ([("t", 0)] if stays else [])


@pytest.mark.parametrize("committed", [True, False])
def test_the_newer_topics_transaction_is_left_alone(committed: bool) -> None:
    """INV-6: a tombstone would take the offset of the open transaction too."""
    c = Context()
    commit(c, OLD)
    txn_commit(c, NEW)
    load(c, t=OLD)
    c.marker(7, committed)
    c.advance(SWEEP_MS)
    assert kept(c) == ([("t", 0)] if committed else [])


@pytest.mark.parametrize("bytes_max", [500, 507, 514, 521, 528, 535, 542])
def test_expired_offsets_beyond_one_append_go_a_second_later(bytes_max: int) -> None:
    c = Measured(GroupConfig(append_bytes_max=bytes_max, offsets_retention_ms=1_000))
    commit(c, OLD, 20)
    c.sizes.clear()
    c.advance(SWEEP_MS)
    assert 0 < len(kept(c)) < 20
    c.advance(3 * EXPIRY_CONTINUE_MS)
    assert max(c.sizes) <= bytes_max
    assert "g" not in c.shard.store.groups


@pytest.mark.parametrize("producer_ids", [(7, 8), (8, 7)])
def test_an_offset_of_a_newer_topic_in_any_open_transaction_is_not_deleted(
    producer_ids: tuple[int, int],
) -> None:
    c = Context()
    for topic_id, producer_id in zip((OLD, NEW), producer_ids, strict=True):
        txn_commit(c, topic_id, producer_id)
    c.submit_silently(topic_deleted(OLD))
    assert tombstones_count(c) == 0
    assert found(c, OLD) == found(c, NEW) == {"t"}


def test_what_was_deleted_meanwhile_is_not_deleted_again() -> None:
    c = Context()
    partition = TopicPartition("t", 0)
    c.submit_silently(e.RemoveOffsets((e.Leftover("g", partition, frozenset((OLD,))),)))
    assert c.log == []
