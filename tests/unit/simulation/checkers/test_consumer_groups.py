"""Groups under KIP-848: owners, epochs, commits, expulsions."""

from __future__ import annotations

import pytest

from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TopicPartition
from oncelog.simulation.history import (
    Assigned,
    GroupDescribed,
    HeartbeatAnswered,
    HeartbeatAsked,
    LateRequest,
    OffsetsCommitRefused,
    OffsetsCommitted,
    OffsetsCommitting,
    Revoked,
)
from oncelog.simulation.history_cluster import PartitionChanged
from tests.unit.simulation.checkers.model import T0, T1, Model

Parts = tuple[TopicPartition, ...]


class Group:
    """A group "g" whose members are called as their clients."""

    def __init__(self) -> None:
        self.model = Model()

    def ask(self, who: str, epoch: int, owned: Parts | None = None) -> None:
        self.model.record(HeartbeatAsked, who, "g", who, epoch, owned)

    def beat(
        self,
        who: str,
        epoch: int,
        to: int,
        *,
        owned: Parts | None = None,
        told: Parts | None = None,
        error: str = "",
    ) -> None:
        self.ask(who, epoch, owned)
        self.model.record(HeartbeatAnswered, who, "g", who, to, error, told)

    def assign(self, who: str, epoch: int, *parts: TopicPartition) -> None:
        self.model.record(Assigned, who, "g", who, epoch, parts)

    def revoke(self, who: str, *parts: TopicPartition) -> None:
        self.model.record(Revoked, who, "g", who, parts)

    def own(self, who: str, epoch: int, *parts: TopicPartition) -> None:
        """Join, be told and say so."""
        self.beat(who, 0, epoch, owned=(), told=parts)
        self.assign(who, epoch, *parts)
        self.beat(who, epoch, epoch, owned=parts)

    def commit(self, who: str, epoch: int, offset: int = 1, error: str = "") -> None:
        self.model.record(OffsetsCommitting, who, "g", who, epoch, {T0: offset})
        if error:
            self.model.record(OffsetsCommitRefused, who, "g", who, epoch, error)
        else:
            self.model.record(OffsetsCommitted, who, "g", who, epoch, {T0: offset})
            self.model.put_offset("g", T0, offset, next(self.model.appends))

    def signatures(self, **promise: object) -> set[str]:
        return self.model.signatures(**promise)


BOTH = "two-owners: a partition was given to a member before its owner had given it up"
OLDER = "member-epochs: a commit of an older epoch was accepted"
NONE = "member-epochs: a commit of a member that was told it is none was accepted"
LOST = "member-epochs: a commit of a member that had lost the partition was accepted"
BACK = "monotonic-commits: a commit went back"
EARLY = "early-expulsion: a member was taken out before its session was over"
SILENT = "silent-member: a member that is silent is kept in its group"


def handed_over(*, is_lost: bool = False) -> Group:
    """`a` owns the partition, `b` is given it, and then `a` is found still in the group."""
    group = Group()
    if is_lost:
        group.ask("a", 0, ())
    group.own("a", 1, T0)
    group.own("b", 2, T0)
    return group


def test_a_partition_is_not_given_before_its_owner_has_given_it_up() -> None:
    group = handed_over()
    group.beat("a", 1, 1)
    assert group.signatures() == {BOTH}
    assert group.signatures(flush_every_message=False, power_losses_s=(0.03,)) == set()


def test_a_member_that_was_expelled_may_believe_what_it_likes() -> None:
    group = handed_over()
    group.beat("a", 1, 0, error="fenced_member_epoch")
    group.beat("a", 0, 3, owned=(), told=(T1,))
    assert group.signatures() == set()


@pytest.mark.parametrize(("epochs", "found"), [((0, 1), set()), ((0, 0), {SILENT})])
def test_a_session_begins_again_with_the_next_coordinator(
    epochs: tuple[int, int], found: set[str]
) -> None:
    group = Group()
    at = TopicPartition(CONSUMER_OFFSETS_TOPIC, 0)

    def lead(number: int) -> None:
        state = (0, epochs[number], number)
        group.model.record(PartitionChanged, "", at, "id", (0, 1), *state, (0, 1))

    lead(0)
    group.own("a", 1, T0)
    group.model.now_s += 8
    lead(1)
    group.model.now_s += 2
    group.model.record(GroupDescribed, "b", "g", "Stable", {"a": (T0,)})
    assert group.signatures(member_session_s=3.0) == found


def test_a_heartbeat_without_an_answer_may_have_given_the_partition_up() -> None:
    group = handed_over(is_lost=True)
    group.beat("a", 1, 1)
    assert group.signatures() == set()
    assert "two-owners" in group.model.allowed()


def test_a_partition_that_was_given_up_may_be_given_on() -> None:
    group = Group()
    group.own("a", 1, T0)
    group.beat("a", 1, 1, told=())
    group.revoke("a", T0)
    group.beat("a", 1, 2, owned=())
    group.own("b", 2, T0)
    group.beat("a", 2, 2)
    assert group.signatures() == set()


def test_an_answer_that_was_long_under_way_gives_nothing() -> None:
    group = Group()
    group.ask("b", 0, ())
    group.own("a", 1, T0)
    group.model.record(HeartbeatAnswered, "b", "g", "b", 1, "", (T0,))
    group.assign("b", 1, T0)
    group.beat("a", 1, 1)
    assert group.signatures() == set()


def test_a_partition_is_not_described_as_that_of_two() -> None:
    group = Group()
    group.own("a", 1, T0)
    group.model.record(GroupDescribed, "a", "g", "Stable", {"a": (T0,), "b": (T0,)})
    assert group.signatures() == {"two-owners: a partition is described as that of two members"}


def moved_on(commit_epoch: int) -> Group:
    """`a` gave the partition up in epoch 1, is in 2, and commits it."""
    group = Group()
    group.own("a", 1, T0)
    group.beat("a", 1, 1, told=())
    group.revoke("a", T0)
    group.beat("a", 1, 2, owned=())
    group.commit("a", commit_epoch)
    return group


def test_an_older_epoch_does_not_commit_what_was_given_up() -> None:
    assert moved_on(1).signatures() == {OLDER}


def test_the_epoch_of_a_member_commits_anything() -> None:
    assert moved_on(2).signatures() == set()


def test_an_older_epoch_commits_what_was_owned_all_the_time() -> None:
    group = Group()
    group.own("a", 1, T0)
    group.beat("a", 1, 2)
    group.commit("a", 1)
    assert group.signatures() == set()


def test_an_older_epoch_may_commit_what_came_later_in_that_epoch() -> None:
    group = Group()
    group.own("a", 1, T1)
    group.beat("a", 1, 1, told=(T0, T1))
    group.assign("a", 1, T0, T1)
    group.beat("a", 1, 2, owned=(T0, T1))
    group.commit("a", 1)
    assert group.signatures() == set()


def test_an_older_epoch_may_commit_what_was_given_back_in_that_epoch() -> None:
    group = moved_on(2)
    group.beat("a", 2, 2, owned=(T1,))
    group.beat("a", 2, 2, told=(T0, T1))
    group.assign("a", 2, T0, T1)
    group.beat("a", 2, 3, owned=(T0, T1))
    group.commit("a", 2)
    assert group.signatures() == set()


def test_an_older_epoch_may_commit_what_its_member_had_not_received_in_the_next() -> None:
    """The broker assigned the partition in epoch 1, and the answer was lost."""
    group = Group()
    group.beat("a", 0, 1, owned=())
    group.beat("a", 1, 2, owned=())
    group.beat("a", 2, 2, owned=(), told=(T0,))
    group.assign("a", 2, T0)
    group.beat("a", 2, 2, owned=(T0,))
    group.commit("a", 1)
    assert group.signatures() == set()


def test_who_was_told_to_be_no_member_commits_nothing() -> None:
    group = Group()
    group.own("a", 1, T0)
    group.beat("a", 1, 0, error="fenced_instance_id")
    group.commit("a", 1)
    assert group.signatures() == {NONE}
    again = Group()
    again.own("a", 1, T0)
    again.beat("a", 1, 0, error="fenced_instance_id")
    again.ask("a", 0, ())
    again.commit("a", 1)
    assert again.signatures() == set()


def test_a_zombie_does_not_commit_a_partition_of_another_member() -> None:
    group = handed_over()
    group.commit("a", 1)
    assert group.signatures() == {LOST}
    assert handed_over(is_lost=True).signatures() == set()


def test_an_epoch_does_not_go_back() -> None:
    group = Group()
    group.own("a", 3, T0)
    group.beat("a", 3, 2)
    assert group.signatures() == {"member-epochs: the epoch of a member went back"}


def test_commits_do_not_go_back() -> None:
    group = Group()
    group.own("a", 1, T0)
    group.commit("a", 1, 5)
    group.commit("a", 1, 4)
    assert group.signatures() == {BACK}


def test_commits_go_back_to_one_in_doubt() -> None:
    group = Group()
    group.own("a", 1, T0)
    group.model.record(OffsetsCommitting, "a", "g", "a", 1, {T0: 3})
    group.commit("a", 1, 5)
    group.commit("a", 1, 4)
    assert group.signatures() == set()


def test_no_member_is_expelled_before_its_session_is_over() -> None:
    group = Group()
    group.own("a", 1, T0)
    group.beat("a", 1, 0, error="unknown_member_id")
    assert group.signatures() == {EARLY}
    assert group.signatures(member_session_s=0.001) == set()


def test_a_heartbeat_that_came_late_may_have_been_told_what_to_give_up() -> None:
    group = Group()
    group.own("a", 1, T0)
    group.ask("a", 1)
    group.beat("a", 1, 1)
    group.beat("a", 1, 0, error="unknown_member_id")
    assert group.signatures() == set()
    assert "early-expulsion" in group.model.allowed()


def test_a_member_that_does_not_give_up_in_time_is_expelled() -> None:
    group = Group()
    group.own("a", 1, T0)
    group.beat("a", 1, 1, told=())
    group.beat("a", 1, 0, error="unknown_member_id")
    assert group.signatures() == set()


def test_who_is_silent_is_described_no_more() -> None:
    group = Group()
    group.own("a", 1, T0)
    group.model.now_s += 10
    described = {"a": (T0,)}
    group.model.record(GroupDescribed, "b", "g", "Stable", described)
    assert group.signatures() == set()
    assert group.signatures(member_session_s=3.0) == {SILENT}
    assert group.signatures(member_session_s=3.0, last_fault_s=9.0) == set()


def test_a_heartbeat_without_an_answer_may_have_come_at_any_time() -> None:
    group = Group()
    group.own("a", 1, T0)
    group.model.now_s += 5
    group.ask("a", 1)
    group.model.now_s += 10
    group.model.record(GroupDescribed, "b", "g", "Stable", {"a": (T0,)})
    assert group.signatures(member_session_s=3.0) == set()


def late_heartbeat(*, is_lost: bool = True) -> Group:
    """A request of `a` arrives 5 s after its last heartbeat, which was answered."""
    group = Group()
    group.own("a", 1, T0)
    if is_lost:
        group.ask("a", 1)
    group.beat("a", 1, 1)
    group.model.now_s += 5
    group.model.record(LateRequest, "a")
    return group


def test_a_heartbeat_that_arrives_late_renews_the_session() -> None:
    group = late_heartbeat()
    group.model.now_s += 4
    group.model.record(GroupDescribed, "b", "g", "Stable", {"a": (T0,)})
    assert group.signatures(member_session_s=3.0) == set()


def test_a_late_heartbeat_renews_the_session_for_no_longer_than_a_session() -> None:
    group = late_heartbeat()
    group.model.now_s += 6
    group.model.record(GroupDescribed, "b", "g", "Stable", {"a": (T0,)})
    assert group.signatures(member_session_s=3.0) == {SILENT}


def test_a_late_request_that_is_no_heartbeat_renews_no_session() -> None:
    group = late_heartbeat(is_lost=False)
    group.model.now_s += 4
    group.model.record(GroupDescribed, "b", "g", "Stable", {"a": (T0,)})
    assert group.signatures(member_session_s=3.0) == {SILENT}
