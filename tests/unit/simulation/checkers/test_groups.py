"""Generations, assignments and ownership."""

from oncelog.core.ids import TopicPartition
from oncelog.simulation.history import (
    Assigned,
    AssignmentMade,
    BrokerDied,
    Joined,
    OffsetsCommitted,
    OffsetsCommitting,
    Revoked,
)
from tests.unit.simulation.checkers.model import T0, T1, Model


class Group:
    """A group "g" whose members are called as their clients."""

    def __init__(self, protocol: str = "range") -> None:
        self.model = Model()
        self.protocol = protocol

    def join(self, who: str, generation: int) -> None:
        self.model.record(Joined, who, "g", who, generation, self.protocol, False)

    def make(self, generation: int, **parts: tuple[TopicPartition, ...]) -> None:
        self.model.record(AssignmentMade, "leader", "g", generation, parts)

    def assign(self, who: str, generation: int, *parts: TopicPartition) -> None:
        self.model.record(Assigned, who, "g", who, generation, parts)

    def revoke(self, who: str, *parts: TopicPartition) -> None:
        self.model.record(Revoked, who, "g", who, parts)

    def ask(self, who: str, generation: int) -> None:
        self.model.record(OffsetsCommitting, who, "g", who, generation, {T0: 1})

    def accept(self, who: str, generation: int) -> None:
        self.model.record(OffsetsCommitted, who, "g", who, generation, {T0: 1})

    def signatures(self, **promise: object) -> set[str]:
        return self.model.signatures(**promise)


OLD = "INV-8: a commit of an older generation was accepted"


def test_a_commit_of_an_older_generation_is_not_accepted() -> None:
    group = Group()
    group.join("a", 1)
    group.join("b", 2)
    group.ask("a", 1)
    group.accept("a", 1)
    assert group.signatures() == {OLD}


def test_a_commit_of_nothing_cannot_be_refused() -> None:
    group = Group()
    group.join("a", 1)
    group.join("b", 2)
    group.model.record(OffsetsCommitting, "a", "g", "a", 1, {})
    group.model.record(OffsetsCommitted, "a", "g", "a", 1, {})
    assert group.signatures() == set()


def test_a_commit_sent_before_the_newer_generation_was_told_may_be_accepted() -> None:
    group = Group()
    group.join("a", 1)
    group.ask("a", 1)
    group.join("b", 2)
    group.accept("a", 1)
    assert group.signatures() == set()


def test_a_broker_that_died_may_forget_a_generation_that_was_never_assigned() -> None:
    group = Group()
    group.join("b", 2)
    group.model.record(BrokerDied, "broker-0", 0, "kill")
    group.ask("a", 1)
    group.accept("a", 1)
    assert group.signatures() == set()


def test_a_broker_that_died_does_not_forget_one_that_was_assigned() -> None:
    group = Group()
    group.join("b", 2)
    group.assign("b", 2)
    group.model.record(BrokerDied, "broker-0", 0, "kill")
    group.ask("a", 1)
    group.accept("a", 1)
    assert group.signatures() == {OLD}
    assert group.signatures(flush_every_message=False, power_losses_s=(0.03,)) == set()


def test_a_commit_without_an_answer_is_not_judged() -> None:
    group = Group()
    group.join("b", 2)
    group.ask("a", 1)
    assert group.signatures() == set()


def test_a_member_is_assigned_what_the_leader_made() -> None:
    group = Group()
    group.make(1, a=(T0,), b=(T1,))
    group.assign("a", 1, T0)
    group.assign("b", 1, T1)
    assert group.signatures() == set()
    group.assign("c", 1)
    assert group.signatures() == set()
    group.assign("b", 1)
    assert group.signatures() == {"INV-8: an assignment is not the one that the leader made"}


def test_a_generation_that_was_made_twice_may_be_either() -> None:
    group = Group()
    group.make(1, a=(T0,))
    group.make(1, a=(T1,))
    group.assign("a", 1, T1)
    assert group.signatures() == set()


def test_a_partition_has_one_owner_in_a_generation() -> None:
    group = Group()
    group.assign("a", 1, T0)
    group.assign("b", 1, T0)
    assert group.signatures() == {"ownership: a partition has two owners in one generation"}


def test_a_process_that_was_killed_owns_nothing() -> None:
    group = Group()
    group.assign("c0.0", 1, T0)
    group.assign("c0.1", 1, T0)
    assert group.signatures() == set()
    group.assign("c1.1", 1, T0)
    assert group.signatures() == {"ownership: a partition has two owners in one generation"}


def test_two_lives_of_a_process_own_a_partition_once() -> None:
    group = Group()
    group.assign("c0.0.1", 1, T0)
    group.assign("c0.0.2", 1, T0)
    assert group.signatures() == {"ownership: a partition has two owners in one generation"}


def test_a_leader_assigns_a_partition_once() -> None:
    group = Group()
    group.make(1, a=(T0,), b=(T0, T1))
    assert group.signatures() == {"ownership: a leader assigned a partition twice"}


def test_an_owner_that_gave_up_is_none() -> None:
    group = Group()
    group.assign("a", 1, T0)
    group.revoke("a", T0)
    group.assign("b", 1, T0)
    assert group.signatures() == set()


def moved(
    protocol: str, revoked: bool = False, rejoined: bool = True, allowed: bool = False
) -> set[str]:
    group = Group(protocol)
    group.join("a", 1)
    group.assign("a", 1, T0)
    if revoked:
        group.revoke("a", T0)
    if rejoined:
        group.join("a", 2)
    group.join("b", 2)
    group.assign("b", 2, T0)
    return group.model.allowed() if allowed else group.signatures()


def test_a_cooperative_member_that_keeps_what_it_had_is_told_but_allowed() -> None:
    """Clients of the classic protocol see to that, not the broker."""
    assert moved("cooperative-sticky", allowed=True) == {"ownership"}
    assert moved("cooperative-sticky") == set()
    assert moved("cooperative-sticky", revoked=True, allowed=True) == set()


def test_an_eager_member_gives_up_everything_when_it_joins() -> None:
    assert moved("range") == set()


def test_a_zombie_may_believe_what_it_likes() -> None:
    assert moved("cooperative-sticky", rejoined=False) == set()
    assert moved("range", rejoined=False) == set()
