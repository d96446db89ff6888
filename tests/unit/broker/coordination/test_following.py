"""How the shards of a coordinator follow the metadata: which there are, and what is deleted."""

from __future__ import annotations

from pathlib import Path

from oncelog.controller.image import ImageDelta, PartitionImage, TopicImage
from oncelog.coordinator.metadata import CoordinatorMetadata
from tests.unit.broker.coordination.test_runtime import OTHER, TOPIC, Bench, Put
from tests.unit.broker.support import ME, TOPIC_ID


async def test_every_shard_gets_the_deletion_of_a_topic(tmp_path: Path) -> None:
    """D9: a topic made again under its name inherits nothing."""
    bench = Bench(tmp_path)
    bench.follow()
    bench.delete_topic("t")
    assert bench.machines[0].applied == [b"t"]
    bench.follow()
    bench.delete_topic("u")
    assert bench.machines[0].applied == [b"t", b"u"], "each is told once"


async def test_a_topic_that_the_metadata_does_not_show_is_not_deleted(tmp_path: Path) -> None:
    """Nor is the internal topic: its ids stay with the partitions that they have."""
    bench = Bench(tmp_path)
    images = tuple(PartitionImage(ME, 0, (ME,), (ME,)) for _ in range(3))
    topic = TopicImage(TOPIC, TOPIC_ID, images)
    bench.runtime.apply(ImageDelta(created=(topic,)), bench.image(topic), CoordinatorMetadata())
    of_ids = [bench.runtime.partition_of(str(number)) for number in range(50)]
    bench.lose_topic("t")
    bench.lose_topic(TOPIC)
    assert not any(machine.applied for machine in bench.machines)
    assert [bench.runtime.partition_of(str(number)) for number in range(50)] == of_ids


async def test_a_shard_that_is_loaded_meanwhile_gets_what_it_missed(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.follow()
    bench.ask(Put("id", b"a"))
    bench.elect_again()
    bench.delete_topic("t")
    assert bench.machines[1].applied == []
    await bench.runtime.loaded()
    assert bench.machines[1].applied == [b"a", b"t"]


async def test_an_id_belongs_to_the_partition_that_its_topic_really_has(tmp_path: Path) -> None:
    """The count is that of the topic as it was made; the setting is for a topic to come."""
    bench = Bench(tmp_path)
    images = tuple(PartitionImage(ME, 0, (ME,), (ME,)) for _ in range(3))
    other = TopicImage("t", TOPIC_ID, images * 2)
    created = (TopicImage(TOPIC, TOPIC_ID, images), other)
    bench.runtime.apply(ImageDelta(created=created), bench.image(*created), CoordinatorMetadata())
    assert {bench.runtime.partition_of(str(number)) for number in range(50)} == {0, 1, 2}
    bench.delete_topic("t")
    assert {bench.runtime.partition_of(str(number)) for number in range(50)} == {0, 1, 2}
    bench.delete_topic(TOPIC)
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
