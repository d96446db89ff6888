"""Of which partitions a member may commit with an epoch that it had before (KIP-1251)."""

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.group.consumer.commits import check_commit
from oncelog.group.consumer.group import ConsumerGroup
from oncelog.group.consumer.members import ConsumerMember, TopicIdPartition
from oncelog.group.events import OffsetCommit, OffsetToCommit
from tests.unit.group.consumer.world import topic_id

NONE, STALE = ErrorCode.none, ErrorCode.stale_member_epoch
GAINED, KEPT, REVOKED, FOREIGN = range(4)


@pytest.mark.parametrize(
    ("epoch", "errors"),
    [
        (5, [NONE, NONE, NONE, NONE]),
        (4, [STALE, NONE, NONE, STALE]),
        (3, [STALE, NONE, NONE, STALE]),
        (2, [STALE, STALE, NONE, STALE]),
        (1, [STALE, STALE, STALE, STALE]),
    ],
)
def test_an_older_epoch_is_valid_for_what_the_member_has_owned_since_then(
    epoch: int, errors: list[ErrorCode]
) -> None:
    """Also for what it gives up: what it has read until then is committed before it is revoked."""

    def at(partition: int) -> TopicIdPartition:
        return TopicIdPartition(topic_id("t"), partition)

    group = ConsumerGroup("g")
    group.put(
        ConsumerMember(
            "m",
            member_epoch=5,
            assigned={at(GAINED): 5, at(KEPT): 3},
            pending_revocation={at(REVOKED): 2},
        )
    )
    offsets = tuple(OffsetToCommit("t", n, 9, topic_id=topic_id("t")) for n in range(4))
    error, stale = check_commit(group, OffsetCommit("g", 10, epoch, "m", offsets))
    assert error is NONE
    assert [stale.get(TopicPartition("t", n), NONE) for n in range(4)] == errors
