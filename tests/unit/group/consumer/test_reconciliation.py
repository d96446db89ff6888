from oncelog.group.consumer.members import (
    NO_PARTITIONS,
    ConsumerMember,
    MemberState,
    Partitions,
    TopicIdPartition,
)
from oncelog.group.consumer.reconciliation import Situation, reconcile
from tests.unit.group.consumer.world import partitions, topic_id

STABLE = MemberState.STABLE
UNREVOKED = MemberState.UNREVOKED_PARTITIONS
UNRELEASED = MemberState.UNRELEASED_PARTITIONS
T = partitions


def member(
    state: MemberState,
    epoch: int,
    assigned: Partitions = frozenset(),
    pending: Partitions = frozenset(),
) -> ConsumerMember:
    return ConsumerMember(
        "m",
        member_epoch=epoch,
        previous_member_epoch=epoch,
        state=state,
        assigned=dict.fromkeys(assigned, epoch),
        pending_revocation=dict.fromkeys(pending, epoch),
    )


def situation(
    epoch: int,
    target: Partitions,
    *,
    taken: Partitions = frozenset(),
    reported: Partitions | None = None,
    topics: str = "tu",
    changed: bool = False,
) -> Situation:
    owners: dict[TopicIdPartition, str] = dict.fromkeys(taken, "other")
    wanted = frozenset(topic_id(name) for name in topics)
    return Situation(epoch, target, wanted, owners, reported, changed)


def owns(found: ConsumerMember) -> tuple[MemberState, int, int, Partitions, Partitions]:
    return (
        found.state,
        found.member_epoch,
        found.previous_member_epoch,
        frozenset(found.assigned),
        frozenset(found.pending_revocation),
    )


def test_a_member_at_its_target_stays_as_it_is() -> None:
    before = member(STABLE, 3, T("t", 1))
    assert reconcile(before, situation(3, T("t", 1))) is before


def test_a_new_member_gets_partitions_without_an_owner() -> None:
    found = reconcile(member(STABLE, 0), situation(3, T("t", 1, 2)))
    assert owns(found) == (STABLE, 3, 0, T("t", 1, 2), frozenset())
    assert set(found.assigned.values()) == {3}


def test_what_another_member_owns_is_waited_for() -> None:
    found = reconcile(member(STABLE, 0), situation(3, T("t", 1, 2), taken=T("t", 2)))
    assert owns(found) == (UNRELEASED, 3, 0, T("t", 1), frozenset())
    found = reconcile(found, situation(3, T("t", 1, 2)))
    assert owns(found) == (STABLE, 3, 3, T("t", 1, 2), frozenset())


def test_what_is_not_its_own_any_more_is_revoked_in_the_old_epoch_first() -> None:
    before = member(STABLE, 3, T("t", 1, 2))
    found = reconcile(before, situation(4, T("t", 1, 5)))
    assert owns(found) == (UNREVOKED, 3, 3, T("t", 1), T("t", 2))
    assert reconcile(found, situation(4, T("t", 1, 5), reported=T("t", 1, 2))) is found
    assert reconcile(found, situation(4, T("t", 1, 5))) is found
    found = reconcile(found, situation(4, T("t", 1, 5), reported=T("t", 1)))
    assert owns(found) == (STABLE, 4, 3, T("t", 1, 5), frozenset())
    assert found.assigned == {**dict.fromkeys(T("t", 1), 3), **dict.fromkeys(T("t", 5), 4)}


def test_a_target_that_changed_again_is_revoked_for_once_more() -> None:
    before = member(UNREVOKED, 3, T("t", 1, 3), T("t", 2))
    found = reconcile(before, situation(5, T("t", 1), reported=T("t", 1, 3)))
    assert owns(found) == (UNREVOKED, 3, 3, T("t", 1), T("t", 3))


def test_what_it_was_to_give_up_may_become_its_own_again() -> None:
    before = member(UNREVOKED, 3, T("t", 1), T("t", 2))
    mine = situation(5, T("t", 1, 2), taken=T("t", 1, 2), reported=T("t", 1))
    assert owns(reconcile(before, mine)) == (STABLE, 5, 3, T("t", 1, 2), frozenset())


def test_unsubscribed_topics_are_revoked_before_there_is_a_new_target() -> None:
    before = member(STABLE, 3, T("t", 1) | T("u", 1))
    found = reconcile(before, situation(3, T("t", 1) | T("u", 1), topics="t", changed=True))
    assert owns(found) == (UNREVOKED, 3, 3, T("t", 1), T("u", 1))
    unused = situation(3, T("t", 1) | T("u", 1), topics="t", changed=True, reported=T("t", 1))
    assert owns(reconcile(before, unused)) == (STABLE, 3, 3, T("t", 1), frozenset())


def test_more_is_revoked_when_a_member_that_revokes_unsubscribes_too() -> None:
    before = member(UNREVOKED, 3, T("t", 1) | T("u", 1), T("t", 2))
    found = reconcile(before, situation(4, T("t", 1), topics="t", changed=True))
    assert owns(found) == (UNREVOKED, 3, 3, T("t", 1), T("t", 2) | T("u", 1))


def test_topics_that_are_gone_count_as_unsubscribed() -> None:
    before = member(STABLE, 3, T("t", 1) | T("u", 1))
    found = reconcile(before, situation(4, T("t", 1) | T("u", 1), topics="t"))
    assert owns(found)[3:] == (T("t", 1), T("u", 1))


def test_a_member_with_nothing_moves_to_the_epoch() -> None:
    found = reconcile(member(STABLE, 2), situation(4, frozenset()))
    assert owns(found) == (STABLE, 4, 2, frozenset(), frozenset())
    assert found.assigned == NO_PARTITIONS
