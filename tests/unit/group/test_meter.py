"""What the group coordinator counts, across restarts of its shard."""

from collections.abc import Callable

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.group import events as e
from oncelog.group.consumer.events import Beat
from oncelog.group.meter import GroupMeter
from tests.unit.group.context import T0, T1, Context

UNKNOWN = TopicPartition("unknown", 0)


def counts(meter: GroupMeter) -> dict[str, int]:
    """Those that are not 0."""
    return {name: count for name in GroupMeter.__slots__ if (count := getattr(meter, name))}


def commit(context: Context) -> None:
    context.commit(1)


def commit_in_transaction(context: Context) -> None:
    context.txn_commit(1)


def delete(context: Context) -> None:
    context.submit(e.OffsetDelete("g", (T0, T1, UNKNOWN)))


def expire(context: Context) -> None:
    context.advance(context.config.offsets_retention_ms + 3_600_000)


def rebalance(context: Context) -> None:
    context.stable(2)


def begin_an_epoch(context: Context) -> None:
    context.submit(
        Beat("new", "m", 0, topic_names=frozenset("t"), rebalance_timeout_ms=9, owned=frozenset())
    )


@pytest.mark.parametrize(
    ("act", "counted"),
    [
        (commit, {"offset_commits": 1}),
        (commit_in_transaction, {"offset_commits": 1}),
        (delete, {"offset_deletions": 2}),
        (expire, {"offset_expirations": 2}),
        (rebalance, {"classic_rebalances": 1}),
        (begin_an_epoch, {"consumer_rebalances": 1}),
    ],
)
def test_each_deed_is_counted_once_and_no_restart_counts_it_again(
    act: Callable[[Context], None], counted: dict[str, int]
) -> None:
    context = Context()
    if act in (delete, expire):
        assert context.commit(1) is ErrorCode.none
        assert context.commit(1, partition=T1) is ErrorCode.none
        context.meter.offset_commits = 0
    act(context)
    assert counts(context.meter) == counted
    context.restart()
    assert counts(context.meter) == counted


def test_a_refused_commit_is_not_counted() -> None:
    context = Context()
    context.stable()
    assert context.commit(1, "stranger", 1) is ErrorCode.unknown_member_id
    assert context.meter.offset_commits == 0


def test_an_assignment_that_cannot_be_written_completes_no_rebalance() -> None:
    context = Context()
    member, _ = context.new_member()
    context.advance(6_000)
    context.hold = True
    context.sync(member, 1, **{member: b"all"})
    context.fail(ErrorCode.not_enough_replicas)
    assert context.meter.classic_rebalances == 0
