"""What is known of the metadata, step by step, and as this broker shows it."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from oncelog.broker.membership.known_metadata import KnownMetadata
from oncelog.controller import layout
from oncelog.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from oncelog.controller.writes import topic_removal, topic_writes
from oncelog.core.ids import TopicPartition
from oncelog.metadata.memory import MemoryStore
from oncelog.metadata.store import StoreFailure, Write

ME = 1
ALONE = PartitionImage(ME, 0, (ME,), (ME,))
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def topic(name: str, number: int, count: int = 2) -> TopicImage:
    return TopicImage(name, UUID(int=number), (ALONE,) * count)


class Bench:
    """A store, and what one broker knows of it."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.known = KnownMetadata(self.store, ME)

    async def write(self, *puts: tuple[str, bytes | None]) -> None:
        await self.store.write_all(
            [Write(path, value, self.known.version_of(path)) for path, value in puts]
        )

    async def make(self, *topics: TopicImage) -> None:
        """Store these topics, read them, and take what they bring for applied."""
        for one in topics:
            await self.write(*topic_writes(self.known.stored.topic(one.name), one))
        assert await self.known.read()
        self.known.steps.clear()

    async def remake(self, before: TopicImage, after: TopicImage) -> None:
        await self.write(*(dict(topic_removal(before)) | dict(topic_writes(None, after))).items())
        assert await self.known.read()

    async def lead(self, partition: TopicPartition, epoch: int) -> None:
        name, number = partition
        state = replace(self.known.stored.topics[name].partitions[number], leader_epoch=epoch)
        await self.write((layout.state_path(name, number), layout.encode_state(state)))
        assert await self.known.read()

    def shown(self, image: MetadataImage | None = None, name: str = "t") -> list[int]:
        """The leaders of a topic's partitions in an image."""
        partitions = (image or self.known.image).topics[name].partitions
        return [partition.leader for partition in partitions]


async def test_a_change_of_one_partition_of_many_renews_only_its_own() -> None:
    """All else stays the very same objects: a change costs what it changes."""
    bench = Bench()
    await bench.make(topic("t", 1, 1000), *(topic(f"t{n}", n + 2) for n in range(1000)))
    before = bench.known.image
    await bench.lead(TopicPartition("t", 7), 5)
    after = bench.known.image
    (step,) = bench.known.steps
    (change,) = step.delta.changed
    assert (step.delta.deleted, step.delta.created) == ((), ())
    assert (change.topic, list(change.partitions)) == (after.topics["t"], [7])
    assert [name for name, one in after.topics.items() if one is not before.topics[name]] == ["t"]
    pairs = zip(before.topics["t"].partitions, after.topics["t"].partitions, strict=True)
    assert [number for number, (old, new) in enumerate(pairs) if old is not new] == [7]
    assert step.image is after


async def test_every_step_is_kept_until_the_broker_applies_it() -> None:
    bench = Bench()
    await bench.make(topic("t", 1))
    await bench.lead(T0, 1)
    await bench.lead(T1, 4)
    await bench.lead(T0, 2)
    steps = [(*step.delta.changed[0].partitions, step.image.revision) for step in bench.known.steps]
    assert steps == [(0, 2), (1, 3), (0, 4)]


async def test_two_elections_in_one_step_show_as_a_later_epoch() -> None:
    """The feed has only the newest state: who resigned in between is seen by the epoch."""
    bench = Bench()
    await bench.make(topic("t", 1))
    path = layout.state_path("t", 0)
    for leader, epoch in ((2, 1), (ME, 2)):
        value = layout.encode_state(PartitionImage(leader, epoch, (ME, 2), ()))
        await bench.store.write_all([Write(path, value, epoch)])
    await bench.known.read()
    (step,) = bench.known.steps
    (change,) = step.delta.changed
    assert list(change.partitions) == [0]
    assert change.topic.partitions[0].leader_epoch == 2


async def test_what_is_off_line_is_shown_so_and_never_decided_on() -> None:
    bench = Bench()
    await bench.make(topic("t", 1), topic("u", 2))
    bench.known.take_off_line([T1, TopicPartition("gone", 0), TopicPartition("t", 9)])
    (step,) = bench.known.steps
    assert [(one.topic.name, list(one.partitions)) for one in step.delta.changed] == [("t", [1])]
    assert bench.shown(step.image) == bench.shown() == [ME, -1]
    assert bench.known.image.topics["t"].partitions[1].offline_replicas == (ME,)
    assert bench.shown(bench.known.stored) == [ME, ME]
    await bench.lead(T1, 3)
    assert bench.shown() == [ME, -1]
    assert bench.known.image.topics["u"] is bench.known.stored.topics["u"]


async def test_what_is_brought_back_is_shown_as_the_store_says() -> None:
    bench = Bench()
    await bench.make(topic("t", 1))
    bench.known.take_off_line([T0, T1])
    bench.known.bring_back([T1, TopicPartition("u", 0)])
    changed = bench.known.steps[-1].delta.changed
    assert [(one.topic.name, list(one.partitions)) for one in changed] == [("t", [1])]
    assert bench.shown() == [-1, ME]
    assert (bench.known.is_off_line(T0), bench.known.is_off_line(T1)) == (True, False)
    bench.known.bring_back([T0])
    assert bench.known.image.topics == bench.known.stored.topics


async def test_a_topic_made_again_is_not_off_line_with_the_one_before() -> None:
    """Its partitions are other folders, in a log directory that works."""
    bench = Bench()
    await bench.make(topic("t", 1))
    bench.known.take_off_line([T0])
    await bench.remake(topic("t", 1), topic("t", 2))
    assert bench.shown() == [ME, ME]
    assert not bench.known.is_off_line(T0)


async def test_an_image_from_before_is_shown_with_what_is_off_line_now() -> None:
    bench = Bench()
    await bench.make(topic("t", 1))
    before = bench.known.image
    await bench.make(topic("u", 2))
    bench.known.take_off_line([T0, TopicPartition("u", 0)])
    bench.known.announce(BrokerImage(ME, "h", 9092))
    shown = bench.known.shown(before)
    assert bench.shown(shown) == [-1, ME]
    assert set(shown.topics) == {"t"}
    assert list(shown.brokers) == [ME]


async def test_a_damaged_value_is_a_failure_until_it_is_put_back() -> None:
    bench = Bench()
    await bench.make(topic("t", 1))
    image = bench.known.image
    path = layout.state_path("t", 0)
    await bench.store.write_all([Write(path, b"{", 1)])
    for _ in range(2):
        with pytest.raises(StoreFailure, match=f"{path} is damaged .* put back a copy"):
            await bench.known.read()
    assert bench.known.image is image
    assert not bench.known.steps
    await bench.store.write_all([Write(path, layout.encode_state(ALONE), 2)])
    assert await bench.known.read()
    assert bench.known.version_of(path) == 3


async def test_a_failed_directory_is_shown_in_all_its_topics() -> None:
    """And a partition that the topic does not have (any more) harms none."""
    bench = Bench()
    await bench.make(topic("t", 1), topic("u", 2), topic("v", 3))
    failed = [T0, T1, TopicPartition("gone", 0), TopicPartition("u", 0), TopicPartition("u", 7)]
    bench.known.take_off_line(failed)
    assert [bench.shown(name=name) for name in "tuv"] == [[-1, -1], [-1, ME], [ME, ME]]
    (step,) = bench.known.steps
    told = {change.topic.name: list(change.partitions) for change in step.delta.changed}
    assert told == {"t": [0, 1], "u": [0]}
    bench.known.bring_back(failed)
    assert [bench.shown(name=name) for name in "tuv"] == [[ME, ME]] * 3
    assert bench.known.off_line == []
