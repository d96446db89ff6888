"""Which groups may change their protocol, and which may not; the scenarios tell how they do."""

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.group.config import GroupConfig
from oncelog.group.consumer.events import Beat, Quit
from oncelog.group.consumer.outcome import BeatResult
from oncelog.group.consumer.settings import ConsumerGroupConfig, MigrationPolicy
from oncelog.group.events import Leave, LeavingMember
from oncelog.group.results import JoinResult, LeaveResult
from tests.unit.group.consumer.world import FakeTopics
from tests.unit.group.context import Context


def context(**settings: object) -> Context:
    consumer = ConsumerGroupConfig(assignment_interval_ms=0, **settings)  # type: ignore[arg-type]
    return Context(GroupConfig(consumer=consumer), topics=FakeTopics({"t": 4}))


def beat(c: Context, member_id: str = "new", instance_id: str | None = None) -> BeatResult:
    event = Beat(
        "g",
        member_id,
        0,
        rebalance_timeout_ms=60_000,
        topic_names=frozenset({"t"}),
        owned=frozenset(),
        instance_id=instance_id,
    )
    result = c.replies[c.submit(event)]
    assert isinstance(result, BeatResult)
    return result


def stable(c: Context, kind: str = "consumer") -> None:
    c.join(version=3, kind=kind)
    c.advance(3_000)


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE])
def test_a_group_is_not_upgraded_where_the_policy_forbids_it(policy: MigrationPolicy) -> None:
    c = context(migration_policy=policy)
    stable(c)
    assert beat(c).error is ErrorCode.group_id_not_found
    assert list(c.group().members) == ["c-1"]


def test_a_group_of_something_else_than_consumers_is_not_upgraded() -> None:
    c = context()
    stable(c, kind="connect")
    assert beat(c).error is ErrorCode.group_id_not_found


def test_a_group_that_is_too_large_is_not_upgraded() -> None:
    c = context(max_size=0)
    stable(c)
    assert beat(c).error is ErrorCode.group_id_not_found


def test_a_group_whose_assignor_keeps_data_of_its_own_is_not_upgraded() -> None:
    c = context()
    stable(c)
    given = {"c-1": b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01x"}
    c.submit(c.sync_event("c-1", 1, given))
    found = beat(c)
    assert found.error is ErrorCode.group_id_not_found
    assert found.message is not None
    assert "custom assignor" in found.message


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.UPGRADE])
def test_classic_members_stay_in_their_consumer_group_or_do_not_come(
    policy: MigrationPolicy,
) -> None:
    c = context(migration_policy=policy)
    assert beat(c).error is ErrorCode.none
    joined = c.replies[c.join(version=3)]
    assert isinstance(joined, JoinResult)
    if policy is MigrationPolicy.DISABLED:
        assert joined.error is ErrorCode.inconsistent_group_protocol
        return
    c.advance(45_000)
    assert list(c.consumer_group().members) in ([joined.member_id], [])
    assert "g" not in c.shard.store.groups


def test_a_downgraded_group_waits_no_more_for_what_its_classic_members_were_called_for() -> None:
    c = context()
    assert beat(c, "new").error is ErrorCode.none
    c.join(version=3)
    (classic_id,) = set(c.consumer_group().members) - {"new"}
    # It is given partitions, and has to fetch them; it never does.
    c.submit(Quit("g", "new", -1))
    assert list(c.group().members) == [classic_id]
    c.advance(300_000)
    assert "g" not in c.shard.store.consumer_groups


def test_a_group_is_downgraded_without_the_classic_members_that_leave_in_the_same_request() -> None:
    c = context()
    assert beat(c, "new", instance_id="n").error is ErrorCode.none
    c.join(version=3)
    c.join(version=3)
    gone, left = sorted(set(c.consumer_group().members) - {"new"})
    request = Leave("g", (LeavingMember(gone), LeavingMember("", "n")))
    result = c.replies[c.submit(request)]
    assert isinstance(result, LeaveResult)
    assert [member.error for member in result.members] == [ErrorCode.none] * 2
    assert list(c.group().members) == [left]
    c.restart()
    assert list(c.group().members) == [left]
