"""Which leaderships the controller brings back to the preferred replicas."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from oncelog.controller.balance import leaderships_to_bring_back
from oncelog.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from oncelog.core.ids import TopicPartition


def image(
    *partitions: PartitionImage, brokers: tuple[int, ...] = (1, 2), leaves: tuple[int, ...] = ()
) -> MetadataImage:
    return MetadataImage(
        cluster_id="c",
        topics=[TopicImage("t", UUID(int=1), partitions)],
        brokers=[BrokerImage(each, "h", 1, is_shutting_down=each in leaves) for each in brokers],
    )


def led_by(leader: int, *replicas: int, **fields: Any) -> PartitionImage:
    return PartitionImage(leader, 3, fields.pop("isr", replicas), replicas, **fields)


def labels(*numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("t", number) for number in numbers)


@pytest.mark.parametrize(("away_count", "percentage", "found"), [(1, 10, 0), (2, 10, 2), (1, 9, 1)])
def test_leaderships_go_back_once_others_have_more_than_the_share(
    away_count: int, percentage: int, found: int
) -> None:
    at_home = [led_by(1, 1, 2)] * (10 - away_count)
    away = [led_by(2, 1, 2)] * away_count
    assert leaderships_to_bring_back(image(*away, *at_home), percentage) == labels(*range(found))


def test_each_brokers_share_counts_by_itself() -> None:
    of_one = [led_by(1, 1, 2)] * 10
    of_two = [led_by(1, 2, 1)]
    assert leaderships_to_bring_back(image(*of_one, *of_two), 50) == labels(10)


def test_a_preferred_replica_that_cannot_lead_is_left_out() -> None:
    out_of_isr = led_by(2, 1, 2, isr=(2,))
    off_line = led_by(2, 1, 2, offline_replicas=(1,))
    able = led_by(2, 1, 2)
    assert leaderships_to_bring_back(image(out_of_isr, off_line, able), 0) == labels(2)
    assert leaderships_to_bring_back(image(able, brokers=(2,)), 0) == ()
    assert leaderships_to_bring_back(image(able, leaves=(1,)), 0) == ()


def test_a_partition_without_a_leader_counts_as_led_elsewhere() -> None:
    assert leaderships_to_bring_back(image(led_by(-1, 1, 2)), 10) == labels(0)
