"""Parts of responses that several handlers share."""

from __future__ import annotations

from uuid import UUID

import pytest

from oncelog.broker.apis.responses import absent
from oncelog.controller.image import MetadataImage, PartitionImage, TopicImage
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
