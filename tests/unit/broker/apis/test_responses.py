"""Parts of responses that several handlers share."""

from __future__ import annotations

from uuid import UUID

import pytest

from oncelog.broker.apis.responses import absent, shown_by, shown_eligible, shown_isr
from oncelog.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from oncelog.core.errors import ErrorCode

ME, OTHER = 1, 2


@pytest.mark.parametrize(
    ("off_line", "index", "expected"),
    [
        ((ME,), 0, ErrorCode.kafka_storage_error),
        ((ME, OTHER), 0, ErrorCode.kafka_storage_error),
        ((OTHER,), 0, ErrorCode.not_leader_or_follower),
        ((), 0, ErrorCode.not_leader_or_follower),
        ((ME,), 1, ErrorCode.unknown_topic_or_partition),
    ],
)
def test_only_a_folder_of_this_broker_is_a_storage_error(
    off_line: tuple[int, ...], index: int, expected: ErrorCode
) -> None:
    partition = PartitionImage(-1, 0, (), (ME, OTHER), off_line)
    image = MetadataImage(cluster_id="c", topics=[TopicImage("t", UUID(int=1), (partition,))])
    assert absent(image, ME, "t", index) is expected
    assert absent(image, ME, "u", 0) is ErrorCode.unknown_topic_or_partition


def test_members_of_an_isr_without_a_leader_are_eligible_once_they_are_gone() -> None:
    partition = PartitionImage(-1, 0, (ME, OTHER), (ME, OTHER, 3), eligible=(3,))
    image = MetadataImage(cluster_id="c", brokers=[BrokerImage(ME, "h", 9)])
    assert shown_eligible(image, partition) == (3, OTHER)


def test_members_of_an_isr_that_are_gone_are_not_shown() -> None:
    partition = PartitionImage(-1, 0, (ME, OTHER), (ME, OTHER))
    image = MetadataImage(cluster_id="c", brokers=[BrokerImage(OTHER, "h", 9)])
    assert shown_isr(image, partition) == (OTHER,)


def test_replicas_are_off_line_without_their_broker_or_their_log_directory() -> None:
    partition = PartitionImage(ME, 0, (ME,), (ME, OTHER, 3, 4), (3,))
    brokers = [BrokerImage(each, "h", 9) for each in (ME, 3, 4)]
    shown = shown_by(MetadataImage(cluster_id="c", brokers=brokers), "PLAINTEXT")
    assert shown.offline_replicas(partition) == (OTHER, 3)
