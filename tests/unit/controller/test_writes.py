"""What a decision costs: each state of a wide topic's partitions is encoded once."""

from uuid import UUID

import pytest

from oncelog.controller import layout
from oncelog.controller.image import PartitionImage, TopicImage
from oncelog.controller.placement import new_partitions
from oncelog.controller.writes import topic_writes

COUNT = 300


def test_states_that_many_partitions_share_are_encoded_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoded: list[PartitionImage] = []
    encode = layout.encode_state

    def counted(partition: PartitionImage, controller_epoch: int = 0) -> bytes:
        encoded.append(partition)
        return encode(partition, controller_epoch)

    monkeypatch.setattr(layout, "encode_state", counted)
    racks = dict.fromkeys((1, 2, 3))
    topic = TopicImage("t", UUID(int=1), new_partitions(racks, 0, range(COUNT), 3))
    writes = dict(topic_writes(None, topic, controller_epoch=7))
    # Leaders go round three brokers, and each has its followers in two orders.
    assert len(encoded) == 6
    for number, partition in enumerate(topic.partitions):
        assert writes[layout.state_path("t", number)] == encode(partition, 7)
