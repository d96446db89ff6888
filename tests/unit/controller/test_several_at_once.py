"""What one event concerns in several topics, partitions, brokers or notes: none is left out."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from oncelog.controller import layout
from oncelog.controller.balance import leaderships_to_bring_back
from oncelog.controller.changes import ConfigChange, ConfigOperation
from oncelog.controller.decision import ControllerEvent, Put
from oncelog.controller.events import (
    AlterPartition,
    AlterReassignments,
    AlterTopicConfigs,
    BrokersChanged,
    BrokerShuttingDown,
    CreatePartitions,
    CreateTopics,
    DeletionsConfirmed,
    DirectoryFailed,
    ElectionOutcome,
    ElectLeaders,
    IsrChange,
    IsrMember,
    IsrOutcome,
    LedCoordinator,
    OffLineReplica,
    Reassignment,
    RemovedReplica,
    ReplicasMadeAgain,
    ReplicasRemoved,
)
from oncelog.controller.features import TRANSACTION_VERSION, unsupported_level
from oncelog.controller.image import PartitionImage, TopicImage
from oncelog.controller.states import Elected, elected_by
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import INTERNAL_TOPICS, TopicPartition
from tests.unit.controller.cluster import ID, MIN_ISR, T0, UNCLEAN, Metadata, registration

ALL = PartitionImage(1, 4, (1, 2, 3), (1, 2, 3), partition_epoch=9)
OTHER_ID = UUID(int=2)
T1, U0 = TopicPartition("t", 1), TopicPartition("u", 0)


def cluster(state: PartitionImage, live: tuple[int, ...] = (1, 2, 3)) -> Metadata:
    """Two partitions of one topic and one of another, all in one state."""
    return Metadata(state, state, live=live, others=[TopicImage("u", OTHER_ID, (state,), {})])


def leaders(metadata: Metadata) -> list[int]:
    topics = metadata.image.topics
    return [state.leader for name in ("t", "u") for state in topics[name].partitions]


@pytest.mark.parametrize(
    ("live", "event"),
    [
        ((2, 3), BrokersChanged()),
        ((1, 2, 3), BrokerShuttingDown(1, 1)),
        ((1, 2, 3), DirectoryFailed(1, (T0, T1, U0))),
        ((1, 2, 3), registration(1, off_line=frozenset({T0, T1, U0}))),
    ],
)
def test_what_ends_a_leader_ends_it_everywhere(
    live: tuple[int, ...], event: ControllerEvent[object]
) -> None:
    metadata = cluster(ALL, live)
    decision = metadata.decide(event)
    assert elected_by(metadata.image, decision.writes) == Elected(3, 0)
    metadata.submit(event)
    assert leaders(metadata) == [2, 2, 2]


def test_it_is_said_how_many_partitions_have_another_leader_and_how_many_none() -> None:
    metadata = Metadata(
        ALL,  # It only loses a member of its ISR.
        replace(ALL, leader=3),
        PartitionImage(3, 4, (3,), (3,)),
        PartitionImage(3, 4, (3,), (3, 1)),
        live=(1, 2),
    )
    metadata.submit(BrokersChanged())
    assert [state.leader for state in metadata.states] == [1, 1, -1, -1]
    assert [notice.text for notice in metadata.notices] == [
        "3 partitions have another leader, 2 of them none"
    ]


def test_preferred_leaders_are_elected_in_all_topics() -> None:
    metadata = cluster(replace(ALL, leader=2))
    assert leaderships_to_bring_back(metadata.image, 10) == (T0, T1, U0)
    assert metadata.submit(ElectLeaders(None)) == tuple(map(ElectionOutcome, (T0, T1, U0)))
    assert leaders(metadata) == [1, 1, 1]


def test_a_broker_that_can_get_nothing_back_keeps_no_other_from_it() -> None:
    """One is not registered, and has so many elsewhere; of another it is less than the share."""
    away = PartitionImage(1, 4, (1, 3), (3, 1))
    at_home = PartitionImage(2, 4, (2, 1), (2, 1))
    elsewhere = PartitionImage(2, 4, (1, 2), (1, 2))
    little = PartitionImage(1, 4, (2, 1), (2, 1))
    states = (away, little, *[at_home] * 20, elsewhere)
    metadata = Metadata(*states, live=(1, 2))
    assert leaderships_to_bring_back(metadata.image, 10) == (TopicPartition("t", 22),)


def test_each_isr_is_changed_or_refused_by_itself() -> None:
    metadata = cluster(replace(ALL, isr=(1, 2)))
    good = IsrChange(ID, 0, 4, 9, tuple(IsrMember(each, 1) for each in (1, 2, 3)))
    changes = (
        good._replace(topic_id=UUID(int=9)),
        good._replace(partition=7),
        good._replace(partition=1, leader_epoch=3),
        good,
        good,
        good._replace(topic_id=OTHER_ID),
    )
    reply = metadata.submit(AlterPartition(1, 1, changes))
    changed = replace(ALL, partition_epoch=10)
    assert reply == (
        IsrOutcome(ErrorCode.unknown_topic_id),
        IsrOutcome(ErrorCode.unknown_topic_or_partition),
        IsrOutcome(ErrorCode.fenced_leader_epoch),
        IsrOutcome(state=changed),
        IsrOutcome(ErrorCode.invalid_request),
        IsrOutcome(state=changed),
    )
    assert [state.isr for state in metadata.states] == [(1, 2, 3), (1, 2)]
    assert metadata.notices == [], "no reassignment is done by that"


def test_replicas_that_begin_again_or_are_removed_are_so_in_all_partitions() -> None:
    off_line = replace(ALL, isr=(1, 2), offline_replicas=(3,))
    metadata = cluster(off_line)
    stale = OffLineReplica(ID, 0, 8)
    named = (stale, *(OffLineReplica(*label, 9) for label in ((ID, 0), (ID, 1), (OTHER_ID, 0))))
    metadata.submit(ReplicasMadeAgain(3, named))
    states = [*metadata.states, *metadata.image.topics["u"].partitions]
    assert [state.offline_replicas for state in states] == [(), (), ()]
    metadata = cluster(replace(ALL, removed=(4, 5)))
    late = RemovedReplica(ID, 0, 3)
    gone = (late, *(RemovedReplica(*label, 4) for label in ((ID, 0), (ID, 1), (OTHER_ID, 0))))
    metadata.submit(ReplicasRemoved(4, gone))
    states = [*metadata.states, *metadata.image.topics["u"].partitions]
    assert [state.removed for state in states] == [(5,), (5,), (5,)]


def test_a_broker_confirms_the_deletions_of_several_topics() -> None:
    a, b, c, d = (UUID(int=number) for number in range(11, 15))
    noted = {"x": {a: (1,), b: (1, 2)}, "y": {c: (2, 1), d: (1,)}, "z": {}}
    metadata = Metadata(ALL, deleted=noted)
    metadata.submit(DeletionsConfirmed(1, frozenset({a, b, c})))
    assert metadata.image.deleted["x"] == {b: (2,)}
    assert metadata.image.deleted["y"] == {c: (2,), d: (1,)}


def test_a_new_broker_is_added_to_the_notes_of_all_deleted_topics() -> None:
    a, b = UUID(int=11), UUID(int=12)
    metadata = Metadata(ALL, deleted={"x": {a: (2,)}, "y": {a: (1,), b: (3, 2)}})
    metadata.submit(registration(1))
    assert metadata.image.deleted == {"x": {a: (2, 1)}, "y": {a: (1,), b: (3, 2, 1)}}


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
def test_who_coordinates_any_partition_confirms_what_it_knows_of(name: str, number: int) -> None:
    """And is listed again when it is elected there."""
    others = [
        TopicImage(topic, UUID(int=20 + index), (replace(ALL, leader=2),) * 2, {})
        for index, topic in enumerate(sorted(INTERNAL_TOPICS))
    ]
    metadata = Metadata(ALL, others=others, deleted={"x": {UUID(int=11): (3,)}})
    metadata.submit(ElectLeaders((TopicPartition(name, number),)))
    assert metadata.image.deleted == {"x": {UUID(int=11): (3, 1)}}
    known = frozenset({UUID(int=11)})
    unasked = metadata.submit(DeletionsConfirmed(1, known))
    assert unasked.error is ErrorCode.fenced_leader_epoch
    led = frozenset({LedCoordinator(name, number, 5)})
    assert metadata.submit(DeletionsConfirmed(1, known, led)).error is ErrorCode.none


def test_every_broker_that_is_elected_a_coordinator_is_listed_again() -> None:
    """And none where no broker is."""
    name = sorted(INTERNAL_TOPICS)[0]
    states = [PartitionImage(1, 4, (1, *other), (1, *other)) for other in ((2,), (3,), ())]
    internal = TopicImage(name, UUID(int=20), tuple(states), {})
    noted = {"x": {UUID(int=11): (1,)}, "y": {UUID(int=12): (1, 3)}}
    metadata = Metadata(others=[internal], live=(2, 3), deleted=noted)
    metadata.submit(BrokersChanged())
    assert [state.leader for state in metadata.image.topics[name].partitions] == [2, 3, -1]
    assert metadata.image.deleted == {
        "x": {UUID(int=11): (1, 2, 3)},
        "y": {UUID(int=12): (1, 3, 2)},
    }


@pytest.mark.parametrize(
    ("before", "leader", "counted"),
    [
        (replace(ALL, leader=-1), 2, Elected(1, 0)),
        (ALL, 1, Elected(0, 0)),
        (ALL, -1, Elected(0, 0)),
        (replace(ALL, isr=(1,)), 2, Elected(1, 1)),
        (replace(ALL, isr=(1,), eligible=(2,)), 2, Elected(1, 0)),
        (replace(ALL, leader=3, isr=(1,)), 1, Elected(1, 0)),
    ],
)
def test_an_election_is_counted_and_whether_it_was_unclean(
    before: PartitionImage, leader: int, counted: Elected
) -> None:
    after = layout.encode_state(replace(before, leader=leader, isr=(leader,), eligible=()), 1)
    others = [
        Put(layout.state_path("new", 0), after),
        Put(layout.topic_path("t"), None),
        Put(layout.broker_path(1), b"{}"),
    ]
    writes = [*others, Put(layout.state_path("t", 0), after)]
    assert elected_by(Metadata(before).image, writes) == counted


def test_a_reassignment_that_is_done_is_so_to_monitors_too() -> None:
    """They read the topic's own value."""
    metadata = Metadata(replace(ALL, isr=(1, 2), adding=(3,)))
    change = IsrChange(ID, 0, 4, 9, tuple(IsrMember(each, 1) for each in (1, 2, 3)))
    decision = metadata.decide(AlterPartition(1, 1, (change,)))
    value = dict(decision.writes)[layout.topic_path("t")]
    assert value is not None
    assert b"adding" not in value or b'"adding_replicas":{}' in value


def test_a_reassignment_that_only_removes_can_be_cancelled() -> None:
    metadata = Metadata(replace(ALL, isr=(1, 3), removing=(3,)))
    (outcome,) = metadata.submit(AlterReassignments((Reassignment(T0, None),)))
    assert outcome.error is ErrorCode.none
    assert (metadata.state.replicas, metadata.state.removing) == ((1, 2, 3), ())
    assert metadata.state.isr == (1, 3)


def test_a_topics_own_config_decides_whether_it_may_lose_records() -> None:
    """And not the cluster's, which others have that have none of their own."""
    alone = replace(ALL, leader=3, isr=(3,), adding=(3,))
    for topic, cluster_wide, error in (
        ("false", "true", ErrorCode.invalid_replica_assignment),
        ("true", "false", ErrorCode.none),
    ):
        metadata = Metadata(alone, config={UNCLEAN: topic}, cluster_config={UNCLEAN: cluster_wide})
        (outcome,) = metadata.submit(AlterReassignments((Reassignment(T0, None),)))
        assert outcome.error is error


def test_a_reassignment_forgets_all_of_a_replica_that_goes() -> None:
    """And says where the partition goes to, without those that leave."""
    state = replace(
        ALL, leader=2, isr=(2,), offline_replicas=(1,), eligible=(3,), suspects={1: (3, 5)}
    )
    metadata = Metadata(state)
    metadata.submit(AlterReassignments((Reassignment(T0, (2,)),)))
    assert metadata.state == PartitionImage(2, 5, (2,), (2,), partition_epoch=11, removed=(1, 3))
    metadata = Metadata(ALL, ALL, live=(1, 2, 3, 4))
    asked = tuple(Reassignment(label, (4, 2)) for label in (T0, T1))
    metadata.submit(AlterReassignments(asked))
    assert [notice.text for notice in metadata.notices] == [
        "reassigned t-0 to [4, 2], t-1 to [4, 2]"
    ]


def test_a_new_partition_has_as_many_replicas_as_the_first() -> None:
    """As in Kafka: a reassignment may have given others another number."""
    metadata = Metadata(PartitionImage(1, 4, (1, 2), (1, 2)), PartitionImage(1, 4, (1,), (1,)))
    assert metadata.submit(CreatePartitions("t", 3)).error is ErrorCode.none
    assert len(metadata.states[2].replicas) == 2


def test_every_level_has_to_be_supported_by_a_broker_that_registers() -> None:
    finalized = {TRANSACTION_VERSION: 2, "group.version": 1}
    assert (
        unsupported_level(finalized, {TRANSACTION_VERSION: (0, 2), "group.version": (0, 1)}) is None
    )
    problem = unsupported_level(finalized, {TRANSACTION_VERSION: (0, 2)})
    assert problem is not None
    assert "version 1 of group.version" in problem


RETAINS = PartitionImage(2, 4, (1, 2), (1, 2, 3), partition_epoch=9, eligible=(3,))


@pytest.mark.parametrize("is_topics", [True, False])
@pytest.mark.parametrize(
    ("state", "event", "live"),
    [
        (RETAINS, ElectLeaders((T0,)), (1, 2)),
        (RETAINS, AlterPartition(2, 1, (IsrChange(ID, 0, 4, 9, (IsrMember(2, 1),)),)), (1, 2)),
        (RETAINS, BrokersChanged(), (1,)),
        (RETAINS, BrokerShuttingDown(2, 1), (1, 2)),
        (RETAINS, DirectoryFailed(1, (T0,)), (1, 2)),
        (RETAINS, registration(1), (1, 2)),
        (
            replace(RETAINS, isr=(2,), offline_replicas=(1,)),
            ReplicasMadeAgain(1, (OffLineReplica(ID, 0, 9),)),
            (1, 2),
        ),
    ],
)
def test_a_topics_own_min_isr_decides_who_stays_eligible(
    state: PartitionImage, event: ControllerEvent[object], live: tuple[int, ...], is_topics: bool
) -> None:
    """And not the cluster's, which others have that have none of their own (KIP-966)."""
    topic, cluster_wide = ("3", "1") if is_topics else ("1", "3")
    metadata = Metadata(
        state, live=live, config={MIN_ISR: topic}, cluster_config={MIN_ISR: cluster_wide}
    )
    metadata.submit(event)
    assert metadata.state != state
    assert (3 in metadata.state.eligible) == is_topics


def test_other_rules_of_a_topic_are_in_effect_in_all_its_partitions() -> None:
    metadata = cluster(PartitionImage(-1, 4, (1,), (1, 2)), live=(2,))
    change = ConfigChange(UNCLEAN, ConfigOperation.SET, "true")
    assert metadata.submit(AlterTopicConfigs("t", (change,))).error is ErrorCode.none
    assert leaders(metadata) == [2, 2, -1]


def test_all_topics_of_a_request_are_made_and_said() -> None:
    metadata = Metadata(ALL)
    wanted = (TopicToCreate("a", 1, 1), TopicToCreate("t", 1, 1), TopicToCreate("b", 2, 1))
    reply = metadata.submit(CreateTopics(wanted))
    assert [outcome.error for outcome in reply] == [
        ErrorCode.none,
        ErrorCode.topic_already_exists,
        ErrorCode.none,
    ]
    assert {"a", "b"} <= metadata.image.topics.keys()
    assert [notice.text.partition(" (")[0] for notice in metadata.notices] == [
        "created topic a",
        "created topic b",
    ]


def test_a_reassignment_of_several_topics_is_in_the_value_of_each() -> None:
    metadata = cluster(ALL)
    asked = tuple(Reassignment(label, (1, 2)) for label in (T0, U0))
    decision = metadata.decide(AlterReassignments(asked))
    paths = {path for path, _ in decision.writes}
    assert paths >= {layout.topic_path("t"), layout.topic_path("u")}
