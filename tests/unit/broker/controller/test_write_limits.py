"""A decision that is larger than one write of the store is written in parts, each of them valid."""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.controller import layout
from oncelog.controller.events import CreateTopics, DeleteTopic
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.metadata.store import Check, StoreFailure, Write, WriteLimit, WriteTooLarge
from tests.unit.broker.controller.support import Shell, TroubledStore, started

NEW = CreateTopics((TopicToCreate("t", partitions=7),))


class SmallStore(TroubledStore):
    """Takes three writes at a time; after `parts_left` of them it takes none."""

    write_limit = WriteLimit(3, 10_000)  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.parts_left = 1_000

    async def write_all(
        self, writes: Sequence[Write], *, checks: Sequence[Check] = (), fence: Check | None = None
    ) -> None:
        if not self.parts_left:
            raise StoreFailure("the store is gone")
        self.parts_left -= 1
        bound = any(write.session for write in writes)
        if not (bound or self.write_limit.fits(writes)):
            raise WriteTooLarge("the store takes no such step")
        await super().write_all(writes, checks=checks, fence=fence)


async def next_controller(store: SmallStore, before: Shell) -> Shell:
    """Another broker, after the session of the controller has ended."""
    store.parts_left = 1_000
    session_id = before.membership.session_id
    assert session_id is not None
    store.expire(session_id)
    return await started(store, 2)


async def test_a_topic_of_many_partitions_is_written_last_of_all_its_values() -> None:
    store = SmallStore()
    shell = await started(store)
    store.written.clear()
    (outcome,) = await shell.controller.submit(NEW)
    assert outcome.error is ErrorCode.none
    assert list(map(len, store.written)) == [3, 3, 2]
    assert store.written[-1][-1] == layout.topic_path("t")
    assert len(shell.feed.image.topics["t"].partitions) == 7
    assert shell.feed.image.leftovers == {}


async def test_a_creation_that_stops_half_way_is_undone_by_the_next_controller() -> None:
    store = SmallStore()
    shell = await started(store)
    store.parts_left = 2
    (outcome,) = await shell.controller.submit(NEW)
    assert outcome.error is ErrorCode.request_timed_out
    second = await next_controller(store, shell)
    assert second.feed.known.stored.leftovers
    await second.office.look()
    assert list(await store.list(layout.TOPICS_PREFIX)) == []
    (outcome,) = await second.controller.submit(NEW)
    assert outcome.error is ErrorCode.none


async def test_a_deletion_that_stops_half_way_is_finished_by_the_next_controller() -> None:
    store = SmallStore()
    shell = await started(store)
    (outcome,) = await shell.controller.submit(NEW)
    topic = outcome.topic
    assert topic is not None
    store.parts_left = 1
    reply = await shell.controller.submit(DeleteTopic(topic.topic_id))
    assert reply.error is ErrorCode.request_timed_out
    second = await next_controller(store, shell)
    assert second.feed.image.topics == {}
    assert second.feed.image.deleted == {"t": {topic.topic_id: (1, 2)}}
    assert second.feed.known.stored.leftovers
    await second.office.look()
    assert list(await store.list(layout.TOPICS_PREFIX)) == []


async def test_an_old_controller_that_is_fenced_half_way_leaves_it_open() -> None:
    store = SmallStore()
    shell = await started(store)

    epoch = await store.get(layout.CONTROLLER_EPOCH_PATH)
    assert epoch is not None
    claim = Write(layout.CONTROLLER_EPOCH_PATH, layout.encode_number(9), epoch.version)
    harmless = Write(layout.group_config_path("g"), layout.encode_config({}), 0)
    store.rivals = [harmless, claim]
    (outcome,) = await shell.controller.submit(NEW)
    assert outcome.error is ErrorCode.request_timed_out


async def test_a_value_that_the_store_cannot_take_is_refused_unwritten() -> None:
    store = SmallStore()
    shell = await started(store)
    store.written.clear()
    wide = CreateTopics((TopicToCreate("t", partitions=2_000),))
    (outcome,) = await shell.controller.submit(wide)
    assert outcome.error is ErrorCode.policy_violation
    assert outcome.message == (
        "the metadata store does not take the value at /brokers/topics/t: it is too large"
    )
    assert store.written == []
