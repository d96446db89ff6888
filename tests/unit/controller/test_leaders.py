"""The ISR that a leader asks for, and elections that an operator asks for; Kafka's errors."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from oncelog.controller.events import (
    AlterPartition,
    BrokersChanged,
    CreateTopics,
    ElectionOutcome,
    ElectLeaders,
    IsrChange,
    IsrMember,
    IsrOutcome,
)
from oncelog.controller.image import BrokerImage, ImageDelta, PartitionImage
from oncelog.controller.states import elected_by
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from tests.unit.controller.cluster import ID, MIN_ISR, T0, UNCLEAN, Metadata, broker

LED = PartitionImage(1, 4, (1, 2), (1, 2, 3), partition_epoch=9)
ASKED = IsrChange(ID, 0, 4, 9, (IsrMember(1, 1), IsrMember(2, 1), IsrMember(3, 1)))


def altered(metadata: Metadata, *changes: IsrChange, sender: int = 1) -> list[ErrorCode]:
    return [outcome.error for outcome in metadata.submit(AlterPartition(sender, 1, changes))]


def test_a_change_is_answered_with_the_state_that_it_makes() -> None:
    metadata = Metadata(LED, config={MIN_ISR: "2"})
    (outcome,) = metadata.submit(AlterPartition(1, 1, (ASKED,)))
    assert outcome == IsrOutcome(state=metadata.state)
    assert metadata.state == replace(LED, isr=(1, 2, 3), partition_epoch=10)
    shrunk = ASKED._replace(partition_epoch=10, isr=(IsrMember(1, 1),))
    assert altered(metadata, shrunk) == [ErrorCode.none]
    assert (metadata.state.isr, metadata.state.eligible) == ((1,), (2, 3))
    assert metadata.state.leader_epoch == 4


def test_an_isr_that_is_the_present_one_is_not_written() -> None:
    metadata = Metadata(LED)
    same = ASKED._replace(isr=(IsrMember(2, 1), IsrMember(1, 1)))
    decision = metadata.decide(AlterPartition(1, 1, (same,)))
    assert (decision.reply, decision.writes) == ((IsrOutcome(state=LED),), ())


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (ASKED._replace(topic_id=UUID(int=9)), ErrorCode.unknown_topic_id),
        (ASKED._replace(partition=1), ErrorCode.unknown_topic_or_partition),
        (ASKED._replace(partition=-1), ErrorCode.unknown_topic_or_partition),
        (ASKED._replace(leader_epoch=5), ErrorCode.not_controller),
        (ASKED._replace(partition_epoch=10), ErrorCode.not_controller),
        (ASKED._replace(leader_epoch=3), ErrorCode.fenced_leader_epoch),
        (ASKED._replace(partition_epoch=8), ErrorCode.invalid_update_version),
        (ASKED._replace(isr=()), ErrorCode.invalid_request),
        (ASKED._replace(isr=(IsrMember(2, 1),)), ErrorCode.invalid_request),
        (ASKED._replace(isr=(IsrMember(1, 1), IsrMember(4, 1))), ErrorCode.invalid_request),
        (ASKED._replace(isr=(IsrMember(1, 1), IsrMember(1, 1))), ErrorCode.invalid_request),
        (ASKED._replace(isr=(IsrMember(1, 1), IsrMember(3, 2))), ErrorCode.ineligible_replica),
        (ASKED._replace(isr=(IsrMember(1, 1), IsrMember(3, -1))), ErrorCode.ineligible_replica),
    ],
)
def test_a_change_that_cannot_be_has_kafkas_error(change: IsrChange, error: ErrorCode) -> None:
    metadata = Metadata(LED)
    assert altered(metadata, change) == [error]
    assert metadata.state == LED


def test_only_the_leader_changes_an_isr() -> None:
    assert altered(Metadata(LED), ASKED, sender=2) == [ErrorCode.invalid_request]


@pytest.mark.parametrize("sender", [broker(1, 2), None])
def test_a_leader_of_an_earlier_life_changes_no_isr(sender: BrokerImage | None) -> None:
    metadata = Metadata(LED, live=[broker(2), broker(3), *([sender] if sender else [])])
    assert altered(metadata, ASKED, ASKED) == [ErrorCode.stale_broker_epoch] * 2


@pytest.mark.parametrize(
    "member",
    [None, broker(3, 2), broker(3, is_shutting_down=True), broker(3, is_clean=False)],
)
def test_a_member_that_is_not_live_in_that_life_is_refused(member: BrokerImage | None) -> None:
    metadata = Metadata(LED, live=[broker(1), broker(2), *([member] if member else [])])
    assert altered(metadata, ASKED) == [ErrorCode.ineligible_replica]


def test_a_member_whose_directory_failed_is_refused() -> None:
    metadata = Metadata(replace(LED, offline_replicas=(3,)))
    assert altered(metadata, ASKED) == [ErrorCode.ineligible_replica]


def test_a_leader_that_shuts_down_may_still_take_others_in() -> None:
    alone = replace(LED, isr=(1,))
    live = [broker(1, is_shutting_down=True), broker(2), broker(3)]
    assert altered(Metadata(alone, live=live), ASKED) == [ErrorCode.none]


def test_each_change_of_a_request_stands_by_itself() -> None:
    metadata = Metadata(LED, LED)
    bad = ASKED._replace(leader_epoch=3)
    assert altered(metadata, bad, ASKED._replace(partition=1), ASKED._replace(partition=1)) == [
        ErrorCode.fenced_leader_epoch,
        ErrorCode.none,
        ErrorCode.invalid_request,
    ]
    assert [state.isr for state in metadata.states] == [(1, 2), (1, 2, 3)]


# --- elections


def elected(metadata: Metadata, *labels: TopicPartition, **more: bool) -> list[ErrorCode]:
    return [one.error for one in metadata.submit(ElectLeaders(labels, **more))]


def test_a_preferred_leader_in_the_isr_leads_when_asked_for() -> None:
    metadata = Metadata(replace(LED, leader=2))
    assert elected(metadata, T0) == [ErrorCode.none]
    assert metadata.state == replace(LED, leader_epoch=5, partition_epoch=10)
    assert elected(metadata, T0) == [ErrorCode.election_not_needed]


@pytest.mark.parametrize(
    "state",
    [replace(LED, leader=2, isr=(2,)), replace(LED, leader=2, offline_replicas=(1,))],
)
def test_a_preferred_leader_that_is_not_in_sync_does_not_lead(state: PartitionImage) -> None:
    metadata = Metadata(state)
    assert elected(metadata, T0) == [ErrorCode.preferred_leader_not_available]
    assert metadata.state == state


def test_a_preferred_leader_that_is_dead_or_shuts_down_does_not_lead() -> None:
    led = replace(LED, leader=2)
    for live in ([broker(2)], [broker(1, is_shutting_down=True), broker(2)]):
        metadata = Metadata(led, live=live)
        assert elected(metadata, T0) == [ErrorCode.preferred_leader_not_available]


def test_an_unclean_election_is_one_for_partitions_without_a_leader() -> None:
    waiting = replace(LED, leader=-1, isr=(1,))
    metadata = Metadata(LED, waiting, waiting, live=(2, 3))
    assert elected(metadata, T0, is_unclean=True) == [ErrorCode.election_not_needed]
    assert elected(metadata, TopicPartition("t", 1), is_unclean=True) == [ErrorCode.none]
    assert (metadata.states[1].leader, metadata.states[1].isr) == (2, (2,))
    assert len(metadata.warnings()) == 1
    empty = Metadata(waiting, live=())
    assert elected(empty, T0, is_unclean=True) == [ErrorCode.eligible_leaders_not_available]


def test_an_election_of_all_leaves_out_those_without_need() -> None:
    moved, lost = replace(LED, leader=2), replace(LED, leader=2, isr=(2,))
    metadata = Metadata(LED, moved, lost)
    reply = metadata.submit(ElectLeaders(None))
    assert [(one.partition.partition, one.error) for one in reply] == [
        (1, ErrorCode.none),
        (2, ErrorCode.preferred_leader_not_available),
    ]


def test_what_there_is_not_cannot_be_elected() -> None:
    reply = Metadata(LED).submit(ElectLeaders((TopicPartition("t", 1), TopicPartition("u", 0))))
    assert [one.error for one in reply] == [ErrorCode.unknown_topic_or_partition] * 2


def test_an_election_names_each_partition_once() -> None:
    reply = Metadata(LED).submit(ElectLeaders((T0, T0)))
    text = "Leader election not needed for topic partition."
    assert reply == (ElectionOutcome(T0, ErrorCode.election_not_needed, text),)


def test_unclean_elections_are_allowed_by_a_topic_or_by_the_cluster() -> None:
    waiting = replace(LED, leader=-1, isr=(1,))
    for topic, cluster, leads in (
        ({}, {}, False),
        ({UNCLEAN: "true"}, {}, True),
        ({}, {UNCLEAN: "true"}, True),
        ({UNCLEAN: "false"}, {UNCLEAN: "true"}, False),
    ):
        metadata = Metadata(waiting, live=(2,), config=topic, cluster_config=cluster)
        metadata.submit(BrokersChanged())
        assert (metadata.state.leader != -1) == leads


def test_an_election_is_counted_where_another_broker_leads() -> None:
    waiting = replace(LED, leader=-1, isr=(1,))
    metadata = Metadata(LED, replace(LED, leader=2), waiting, live=(2, 3))
    metadata.contents.image = metadata.image.after(ImageDelta(), cluster_config={UNCLEAN: "true"})
    decision = metadata.decide(BrokersChanged())
    assert elected_by(metadata.image, decision.writes) == (2, 1)
    metadata.write(decision.writes)
    assert elected_by(metadata.image, metadata.decide(BrokersChanged()).writes) == (0, 0)
    created = metadata.decide(CreateTopics(tuple(map(TopicToCreate, "xyz"))))
    assert elected_by(metadata.image, created.writes) == (0, 0)
