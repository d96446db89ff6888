"""How the shards of a coordinator follow the metadata: which there are, and what is deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oncelog.broker.partitions.partition import Partition
from oncelog.controller.image import ImageDelta, PartitionImage, TopicImage
from oncelog.coordinator.metadata import CoordinatorMetadata
from oncelog.coordinator.shard import Decision, EventContext
from tests.unit.broker.coordination.test_runtime import OTHER, TOPIC, Bench, Memory, Put
from tests.unit.broker.support import ME, NOW_MS, TOPIC_ID, HandLoop, make_partition


class Knowing(Memory):
    """Remembers the metadata by which it decided."""

    def __init__(self) -> None:
        super().__init__()
        self.known: list[CoordinatorMetadata] = []

    def decide(self, event: Put, context: EventContext) -> Decision[Put, object, str]:
        self.known.append(context.metadata)
        return super().decide(event, context)


class Several(Bench):
    """A runtime over three partitions, each with a shard."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        others = (make_partition(folder, HandLoop(), (ME,), TOPIC, number) for number in (1, 2))
        self.partitions = [self.partition, *others]
        loop: Any = HandLoop()
        self.runtime.loop = loop
        self.shards: list[Knowing] = []
        self.apply(CoordinatorMetadata())

    def _make(self, _partition: Partition) -> Memory:
        self.shards.append(Knowing())
        return self.shards[-1]

    def get(self, _topic: str, index: int) -> Partition:
        return self.partitions[index]

    def apply(self, metadata: CoordinatorMetadata) -> None:
        images = tuple(PartitionImage(ME, 0, (ME,), (ME,)) for _ in self.partitions)
        topic = TopicImage(TOPIC, TOPIC_ID, images)
        self.runtime.apply(ImageDelta(created=(topic,)), self.image(topic), metadata)


async def test_every_partition_that_this_broker_leads_has_a_shard(tmp_path: Path) -> None:
    bench = Several(tmp_path)
    assert bench.runtime.shards() == bench.shards
    assert list(bench.runtime.led()) == [(TOPIC, index, 0) for index in range(3)]


async def test_every_shard_decides_by_the_newest_metadata(tmp_path: Path) -> None:
    bench, newest = Several(tmp_path), CoordinatorMetadata()
    bench.apply(newest)
    bench.runtime.broadcast(Put("id"))
    assert [shard.known[0] is newest for shard in bench.shards] == [True] * 3


async def test_what_is_due_in_every_shard_is_done_once_the_wall_clock_has_jumped(
    tmp_path: Path,
) -> None:
    bench = Several(tmp_path)
    for shard in bench.shards:
        shard.due, shard.deadline_ms = [Put("id", b"due")], NOW_MS + 5_000
    bench.runtime.broadcast(Put("id", b"a"))
    bench.clock.at_ms += 5_000
    bench.runtime.clock_moved()
    assert [shard.applied for shard in bench.shards] == [[b"a", b"due"]] * 3


async def test_a_broker_that_stops_leads_no_shard_any_more(tmp_path: Path) -> None:
    bench = Several(tmp_path)
    bench.runtime.close()
    assert bench.runtime.shards() == []


async def test_every_shard_gets_the_deletion_of_a_topic(tmp_path: Path) -> None:
    """D9: a topic made again under its name inherits nothing."""
    bench = Bench(tmp_path)
    bench.follow()
    bench.delete_topics("t")
    assert bench.machines[0].applied == [b"t"]
    bench.follow()
    bench.delete_topics("u", "v")
    assert bench.machines[0].applied == [b"t", b"u v"], "each is told once"


async def test_a_topic_that_the_metadata_does_not_show_is_not_deleted(tmp_path: Path) -> None:
    """Nor is the internal topic: its ids stay with the partitions that they have."""
    bench = Bench(tmp_path)
    images = tuple(PartitionImage(ME, 0, (ME,), (ME,)) for _ in range(3))
    topic = TopicImage(TOPIC, TOPIC_ID, images)
    bench.runtime.apply(ImageDelta(created=(topic,)), bench.image(topic), CoordinatorMetadata())
    of_ids = [bench.runtime.partition_of(str(number)) for number in range(50)]
    bench.lose_topics("t", TOPIC)
    assert not any(machine.applied for machine in bench.machines)
    assert [bench.runtime.partition_of(str(number)) for number in range(50)] == of_ids


async def test_a_shard_that_is_loaded_meanwhile_gets_what_it_missed(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.follow()
    bench.ask(Put("id", b"a"))
    bench.elect_again()
    bench.delete_topics("t")
    assert bench.machines[1].applied == []
    await bench.runtime.loaded()
    assert bench.machines[1].applied == [b"a", b"t"]


async def test_an_id_belongs_to_the_partition_that_its_topic_really_has(tmp_path: Path) -> None:
    """The count is that of the topic as it was made; the setting is for a topic to come."""
    bench = Bench(tmp_path)
    images = tuple(PartitionImage(ME, 0, (ME,), (ME,)) for _ in range(3))
    other = TopicImage("t", TOPIC_ID, images * 2)
    created = (other, TopicImage(TOPIC, TOPIC_ID, images), TopicImage("u", TOPIC_ID, images[:1]))
    bench.runtime.apply(ImageDelta(created=created), bench.image(*created), CoordinatorMetadata())
    assert {bench.runtime.partition_of(str(number)) for number in range(50)} == {0, 1, 2}
    bench.delete_topics("t")
    assert {bench.runtime.partition_of(str(number)) for number in range(50)} == {0, 1, 2}
    bench.delete_topics("u", TOPIC)
    assert {bench.runtime.partition_of(str(number)) for number in range(50)} == {0}


async def test_a_shard_is_missing_only_where_it_would_be_this_brokers(tmp_path: Path) -> None:
    """Partition 0 has its shard; of partition 1 it depends who leads it, or would."""
    bench = Bench(tmp_path)
    bench.follow()
    assert bench.runtime.has_shards_of(None, ME)
    own = PartitionImage(ME, 0, (ME,), (ME,))
    for leader, replicas, is_whole in (
        (OTHER, (OTHER, ME), True),
        (-1, (OTHER,), True),
        (-1, (ME,), False),
        (ME, (ME,), False),
    ):
        topic = TopicImage(TOPIC, TOPIC_ID, (own, PartitionImage(leader, 0, (), replicas)))
        assert bench.runtime.has_shards_of(topic, ME) is is_whole, (leader, replicas)
