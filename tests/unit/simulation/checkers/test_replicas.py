"""Replicated partitions: logs that differ, leaders, elections, and what losses of power excuse."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncelog.core.ids import TopicPartition
from oncelog.simulation.history import Acked, BrokerStarted, Fault, Logged, Sent, Value, Watermarks
from oncelog.simulation.history_cluster import (
    LACKING,
    TRUNCATED,
    LogDiffers,
    PartitionChanged,
    StaleAnswer,
    UncleanElectionAsked,
)
from tests.unit.simulation.checkers.model import T0, Model

FIRST = PartitionChanged(0.0, "", T0, "id", (0, 1, 2), 0, 0, 0, (0, 1, 2))


class Cluster:
    """A history of one partition on three brokers."""

    def __init__(self) -> None:
        self.model = Model()
        self.state = FIRST
        self.losses_s: list[float] = []
        for broker in range(3):
            self.model.record(BrokerStarted, broker_name(broker), 0)
        self.write()

    def write(self, **changed: object) -> None:
        number = self.state.partition_epoch + bool(changed)
        self.state = replace(self.state, **{"partition_epoch": number, **changed})  # type: ignore[arg-type]
        values = [getattr(self.state, name) for name in PartitionChanged.__match_args__[2:]]
        self.model.record(PartitionChanged, "", *values)

    def lose(self, broker: int, kind: str = "power-loss") -> None:
        self.model.record(Fault, "", kind, f"broker-{broker}")
        if kind == "power-loss":
            self.losses_s.append(round(self.model.now_s, 3))

    def lacks(self, known_s: float = 0.045) -> None:
        self.model.record(LogDiffers, "broker-1", T0, 3, LACKING, "3 of 4", known_s)

    def look(self, broker: int, epoch: int, life: int = 0, *, leads: bool = True) -> None:
        marks = (broker_name(broker), life, T0, epoch, 0, 0, 0, 0, "id", leads)
        self.model.record(Watermarks, *marks)

    def signatures(self, **promise: object) -> set[str]:
        stated = {"flush_every_message": False, "power_losses_s": tuple(self.losses_s)} | promise
        return self.model.signatures(**stated)

    def kinds(self, **promise: object) -> set[str]:
        return {signature.partition(":")[0] for signature in self.signatures(**promise)}


def broker_name(broker: int) -> str:
    return f"broker-{broker}"


def test_a_leader_that_lacks_what_is_committed_is_found() -> None:
    cluster = Cluster()
    assert cluster.kinds() == set()
    cluster.lacks()
    assert cluster.signatures() == {f"replicas: {LACKING}"}


@pytest.mark.parametrize("lost", [(), (0,), (0, 1), (0, 1, 2)])
def test_only_a_loss_of_power_at_every_member_excuses_it(lost: tuple[int, ...]) -> None:
    cluster = Cluster()
    for broker in lost:
        cluster.lose(broker)
    cluster.lacks()
    assert cluster.kinds() == (set() if len(lost) == 3 else {"replicas"})
    # Where every message is flushed nothing is lost with the power.
    assert cluster.kinds(flush_every_message=True) == {"replicas"}


def test_a_loss_before_the_record_was_there_excuses_nothing() -> None:
    cluster = Cluster()
    for broker in range(3):
        cluster.lose(broker)
    cluster.lacks(known_s=cluster.model.now_s + 0.005)
    assert cluster.kinds() == {"replicas"}


def test_a_member_that_joined_again_has_all_again() -> None:
    cluster = Cluster()
    cluster.lose(0)
    cluster.write(isr=(1, 2), leader=1, leader_epoch=1)
    cluster.write(isr=(0, 1, 2))
    cluster.lose(1)
    cluster.write(isr=(0, 2), leader=2, leader_epoch=2)
    cluster.lose(2)
    cluster.lacks()
    assert cluster.kinds() == {"replicas"}
    cluster.lose(0)
    cluster.lacks()
    assert cluster.kinds() == {"replicas"}, "the first loss came before the last holder lost it"


def test_the_last_members_of_an_isr_are_enough_to_lose_it() -> None:
    cluster = Cluster()
    cluster.write(isr=(0, 1))
    cluster.write(isr=(0,), eligible=(1,))
    cluster.lose(0)
    cluster.lacks()
    assert cluster.kinds() == {"replicas"}, "the eligible one has it"
    alone = Cluster()
    alone.write(isr=(0,))
    alone.lose(0)
    alone.lacks()
    assert alone.kinds() == set()


def test_a_disk_that_is_lost_is_a_loss_whatever_is_flushed() -> None:
    cluster = Cluster()
    for broker in range(2):
        cluster.lose(broker, "disk-loss")
    cluster.lose(2, "disk-put-back")
    cluster.lacks()
    assert cluster.kinds(flush_every_message=True) == set()


def test_an_unclean_election_excuses_it_where_it_is_allowed() -> None:
    cluster = Cluster()
    cluster.write(isr=(0,))
    cluster.write(leader=-1, leader_epoch=1)
    cluster.write(leader=2, leader_epoch=2, isr=(2,))
    cluster.lacks()
    assert cluster.signatures() == {"elections: a leader was elected outside the ISR"}
    assert cluster.kinds(unclean_elections=True) == set()


@pytest.mark.parametrize(("isr", "kinds"), [((0, 1), {"stale-answers"}), ((0,), set())])
def test_only_an_unclean_election_excuses_an_old_answer(
    isr: tuple[int, ...], kinds: set[str]
) -> None:
    cluster = Cluster()
    cluster.write(isr=isr)
    cluster.write(leader=1, leader_epoch=1, isr=(1,))
    cluster.model.record(StaleAnswer, "broker-0", T0, 0, 1, "DescribeGroup")
    assert cluster.kinds(unclean_elections=True) == kinds


def test_an_unclean_election_that_an_operator_asks_for_is_allowed() -> None:
    cluster = Cluster()
    cluster.write(isr=(0,))
    cluster.write(leader=-1, leader_epoch=1)
    cluster.model.record(UncleanElectionAsked, "", TopicPartition("other", 0))
    cluster.write(leader=2, leader_epoch=2, isr=(2,))
    assert cluster.kinds() == {"elections"}
    asked = Cluster()
    asked.write(isr=(0,))
    asked.write(leader=-1, leader_epoch=1)
    asked.model.record(UncleanElectionAsked, "", T0)
    asked.write(leader=2, leader_epoch=2, isr=(2,))
    asked.lacks()
    assert asked.kinds() == set()


def test_an_old_leader_may_go_on_alone_until_it_hears_of_an_unclean_election() -> None:
    cluster = Cluster()
    cluster.write(isr=(0,))
    cluster.write(leader=2, leader_epoch=2, isr=(2,))
    cluster.look(0, 0)
    cluster.lacks(known_s=cluster.model.now_s - 0.005)
    assert cluster.kinds(unclean_elections=True) == set()
    cluster.lacks(known_s=cluster.model.now_s)
    assert cluster.kinds(unclean_elections=True) == {"replicas"}


def test_a_broker_that_lost_its_end_may_have_less_than_it_had() -> None:
    cluster = Cluster()
    cluster.model.record(LogDiffers, "broker-1", T0, 3, TRUNCATED, "4 to 3", 0.045)
    assert cluster.kinds() == {"replicas"}
    for broker, is_excused in ((0, False), (1, True)):
        other = Cluster()
        other.lose(broker)
        other.model.record(LogDiffers, "broker-1", T0, 3, TRUNCATED, "4 to 3", 0.045)
        assert other.kinds() == (set() if is_excused else {"replicas"})


@pytest.mark.parametrize(
    ("isr", "eligible", "found"),
    [((0, 2), (), False), ((0, 1), (), True), ((0,), (1,), True)],
    ids=["outside the ISR", "in the ISR", "eligible"],
)
def test_one_that_does_not_count_may_begin_its_log_anew(
    isr: tuple[int, ...], eligible: tuple[int, ...], found: bool
) -> None:
    cluster = Cluster()
    cluster.write(isr=isr, eligible=eligible)
    text = f"oncelog.broker.replication.fetcher: {T0} starts again at 0 (end 4): it was away"
    cluster.model.record(Logged, "broker-1.0", "WARNING", text)
    cluster.model.record(LogDiffers, "broker-1", T0, 0, TRUNCATED, "4 to 0", 0.0)
    assert cluster.signatures() == ({f"replicas: {TRUNCATED}"} if found else set())


def test_an_epoch_has_one_leader_in_one_life() -> None:
    cluster = Cluster()
    cluster.look(0, 0)
    cluster.look(0, 0)
    cluster.look(1, 0, leads=False)
    cluster.look(1, 1)
    assert cluster.kinds() == set()
    cluster.look(1, 1, life=1)
    assert cluster.signatures() == {"leaders: an epoch has two leaders"}
    other = Cluster()
    other.look(0, 3)
    other.look(2, 3)
    assert other.kinds() == {"leaders"}


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"partition_epoch": 1}, "the partition epoch does not rise"),
        ({"leader": 1}, "the leader epoch does not rise"),
        ({"leader_epoch": 0, "leader": -1}, "the leader epoch does not rise"),
        ({"isr": (0, 1, 2), "excluded": (2,)}, "an ISR takes in who is excluded"),
        ({"leader": 1, "leader_epoch": 2, "excluded": (1,)}, "an excluded leader was elected"),
        ({"leader": 2, "leader_epoch": 2}, "a leader was elected outside the ISR"),
        ({"isr": (1,)}, "a leader is not in its ISR"),
        ({"isr": (0, 1, 7)}, "an ISR holds no replica"),
    ],
)
def test_a_state_that_the_rules_exclude_is_found(changed: dict[str, object], what: str) -> None:
    cluster = Cluster()
    cluster.write(isr=(0, 1), leader_epoch=1)
    assert cluster.kinds() == set()
    cluster.write(**changed)
    assert f"elections: {what}" in cluster.signatures()


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"logs": ((0, (1, 9)), (1, (1, 9)), (2, (1, 7)))}, ""),
        ({"logs": ((0, (0, 12)), (1, (1, 9)), (2, (1, 7)))}, ""),
        ({"logs": ((0, (1, 9)), (1, (1, 8)), (2, (1, 7)))}, "a suspect leads with a shorter log"),
        ({"logs": ((0, (2, 3)), (1, (1, 9)), (2, (1, 7)))}, "a suspect leads with a shorter log"),
        ({"logs": ((1, (1, 9)),), "doubted": ()}, "a suspect leads before others"),
    ],
)
def test_of_suspects_the_one_with_the_longest_log_leads(
    changed: dict[str, object], what: str
) -> None:
    cluster = Cluster()
    cluster.write(leader=-1, leader_epoch=1, isr=(2,), suspects=(0, 1))
    elected = {"leader": 1, "leader_epoch": 2, "isr": (1,), "suspects": (), "doubted": (2,)}
    cluster.write(**{**elected, **changed})
    assert cluster.signatures() == ({f"elections: {what}"} if what else set())
    assert cluster.signatures(unclean_elections=True) == set()


def test_an_acknowledgement_by_a_leader_alone_promises_nothing() -> None:
    for acks in (1, -1):
        cluster = Cluster()
        for number in range(2):
            value = Value("p", number)
            cluster.model.record(Sent, "p", value, T0)
            cluster.model.record(Acked, "p", value, T0, 0, acks)
        assert ("inconsistent-offsets" in cluster.kinds()) == (acks == -1)
