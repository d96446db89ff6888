"""Brokers that register, end, shut down, lose a directory or are forgotten."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from oncelog.controller import layout
from oncelog.controller.decision import ChangeOutcome, Put
from oncelog.controller.events import (
    BrokersChanged,
    BrokerShuttingDown,
    DeleteTopic,
    DirectoryFailed,
    ForgetBroker,
    OffLineReplica,
    ReplicasMadeAgain,
    ShutdownOutcome,
)
from oncelog.controller.image import PartitionImage
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from tests.unit.controller.cluster import ID, MIN_ISR, T0, UNCLEAN, Metadata, broker, registration

ALL = PartitionImage(1, 4, (1, 2, 3), (1, 2, 3))
STALE = ErrorCode.stale_broker_epoch


# --- registrations


def test_a_registration_of_an_earlier_life_changes_nothing() -> None:
    metadata = Metadata(ALL, live=[broker(1, 3), broker(2), broker(3)])
    for epoch in (0, 2, 4):
        decision = metadata.decide(registration(1, epoch))
        assert (decision.reply.error, decision.writes) == (STALE, ())
    assert metadata.decide(registration(1, 3)).writes


def test_a_registration_of_a_broker_that_is_gone_again_changes_nothing() -> None:
    decision = Metadata(ALL, live=(2, 3)).decide(registration(1, 1))
    assert (decision.reply.error, decision.writes) == (STALE, ())


def test_an_unclean_broker_is_not_elected_before_its_registration_is_decided() -> None:
    """A new controller finds it registered, and in an ISR that it must leave."""
    waiting = PartitionImage(-1, 5, (1, 2), (1, 2, 3))
    metadata = Metadata(waiting, live=[broker(1, is_clean=False), broker(3)])
    metadata.submit(BrokersChanged())
    assert metadata.state == waiting
    metadata.submit(registration(1, is_clean=False, uncertain={T0: (5, 10)}))
    assert metadata.state.suspects == {1: (5, 10)}
    assert metadata.image.brokers[1].is_clean
    metadata.submit(BrokersChanged())
    assert metadata.state.leader == -1


def test_an_unclean_broker_that_leads_still_is_replaced_before_it_registers() -> None:
    metadata = Metadata(ALL, live=[broker(1, is_clean=False), broker(2), broker(3)])
    metadata.submit(BrokersChanged())
    assert (metadata.state.leader, metadata.state.isr) == (2, (2, 3))


def test_a_suspect_stays_one_in_a_later_life_that_is_clean() -> None:
    metadata = Metadata(PartitionImage(-1, 5, (2,), (1, 2), suspects={1: (5, 10)}), live=(1,))
    metadata.submit(registration(1))
    assert (metadata.state.leader, metadata.state.suspects) == (-1, {1: (5, 10)})
    metadata.submit(registration(1, uncertain={T0: (5, 11)}))
    assert metadata.state.suspects == {1: (5, 11)}


def test_a_suspect_that_lost_more_says_so_in_its_later_life() -> None:
    before = PartitionImage(-1, 5, (2,), (1, 2), suspects={1: (5, 10)})
    metadata = Metadata(before, live=(1, 2))
    metadata.submit(registration(1, is_clean=False, uncertain={T0: (5, 3)}))
    metadata.submit(registration(2, is_clean=False, uncertain={T0: (5, 4)}))
    assert metadata.state.leader == 2


@pytest.mark.parametrize(
    ("logs", "leader"),
    [
        ({1: (5, 10), 2: (5, 11)}, 2),
        ({1: (6, 10), 2: (5, 11)}, 1),
        ({1: (5, 11), 2: (5, 11)}, 2),
        ({1: (-1, 0), 2: (-1, 0)}, 2),
    ],
)
def test_of_suspects_the_longest_log_leads(logs: dict[int, tuple[int, int]], leader: int) -> None:
    """The last epoch decides before the end; equal ones are led in the order of the assignment."""
    before = PartitionImage(-1, 5, (1, 2), (3, 2, 1))
    metadata = Metadata(before, live=())
    for who, log in logs.items():
        assert metadata.state.leader == -1
        metadata.live(*metadata.image.brokers.values(), broker(who))
        metadata.submit(registration(who, is_clean=False, uncertain={T0: log}))
    assert (metadata.state.leader, metadata.state.isr) == (leader, (leader,))
    assert metadata.state.leader_epoch > max(log[0] for log in logs.values())
    (warning,) = metadata.warnings()
    assert f"t-0 by broker {leader}" in warning


def test_the_longest_log_is_waited_for_while_its_broker_is_away() -> None:
    before = PartitionImage(-1, 5, (2,), (1, 2), suspects={1: (5, 10)})
    metadata = Metadata(before, live=(2,))
    metadata.submit(registration(2, is_clean=False, uncertain={T0: (5, 4)}))
    assert metadata.state.leader == -1
    metadata.live(broker(1, 2), broker(2))
    metadata.submit(BrokersChanged())
    assert metadata.state.leader == 1


def test_a_log_that_is_ahead_of_an_older_store_begins_above_its_epoch() -> None:
    metadata = Metadata(PartitionImage(-1, 5, (1,), (1, 2)), live=(1,))
    metadata.submit(registration(1, uncertain={T0: (9, 10)}))
    assert (metadata.state.leader, metadata.state.leader_epoch) == (1, 10)


def test_a_broker_without_a_directory_leads_nothing_in_it() -> None:
    metadata = Metadata(ALL, PartitionImage(1, 4, (1,), (1, 2)))
    labels = (T0, TopicPartition("t", 1))
    metadata.submit(registration(1, off_line=frozenset(labels)))
    first, second = metadata.states
    assert (first.leader, first.isr, first.offline_replicas) == (2, (2, 3), (1,))
    assert (second.leader, second.isr, second.offline_replicas) == (-1, (1,), (1,))
    metadata.submit(BrokersChanged())
    assert metadata.states == (first, second)
    metadata.submit(registration(1, off_line=frozenset(labels)))
    assert metadata.states == (first, second)
    metadata.submit(registration(1))
    assert [state.leader for state in metadata.states] == [2, 1]
    assert metadata.states[1].offline_replicas == ()


def test_a_new_broker_is_asked_for_deletions_that_are_noted() -> None:
    """Transactions that name such a topic may come to its coordinator."""
    noted = {"old": {UUID(int=8): (2,), UUID(int=9): ()}}
    metadata = Metadata(ALL, deleted=noted)
    metadata.submit(registration(1))
    assert metadata.image.deleted == {"old": {UUID(int=8): (2, 1), UUID(int=9): ()}}


def test_only_a_broker_that_is_alone_changes_the_clusters_config() -> None:
    """A cluster of which one broker is up is not one broker."""
    stored = {MIN_ISR: "2"}
    metadata = Metadata(ALL, live=(1,), cluster_config=stored)
    metadata.submit(registration(1, cluster_config={MIN_ISR: "1", UNCLEAN: "true"}))
    assert metadata.image.cluster_config == {MIN_ISR: "2", UNCLEAN: "true"}
    assert len(metadata.warnings()) == 1


def test_a_broker_that_is_left_alone_takes_the_eligible_out_with_its_config() -> None:
    below = PartitionImage(1, 4, (1,), (1, 2), eligible=(2,))
    directories = {1: frozenset({"d"})}
    metadata = Metadata(below, live=(1,), cluster_config={MIN_ISR: "2"}, directories=directories)
    metadata.submit(registration(1, cluster_config={MIN_ISR: "1"}))
    assert metadata.image.cluster_config == {MIN_ISR: "1"}
    assert metadata.state.eligible == ()


def test_a_suspect_that_leads_by_another_cluster_config_is_said() -> None:
    below = PartitionImage(-1, 4, (), (1, 2), eligible=(2,), suspects={1: (3, 9)})
    directories = {1: frozenset({"d"})}
    metadata = Metadata(below, live=(1,), cluster_config={MIN_ISR: "2"}, directories=directories)
    metadata.submit(registration(1, cluster_config={MIN_ISR: "1"}))
    assert metadata.state.leader == 1
    assert "led by the longest log that is left" in metadata.warnings()[0]


def test_a_follower_that_registers_leaves_its_leader_and_its_epoch() -> None:
    """Also where its log has a later epoch: the leader has it cut."""
    metadata = Metadata(PartitionImage(3, 4, (1, 2, 3), (1, 2, 3)))
    metadata.submit(registration(2))
    metadata.submit(registration(1, uncertain={T0: (9, 10)}))
    assert metadata.state == PartitionImage(3, 4, (3,), (1, 2, 3), partition_epoch=2)


def test_an_eligible_broker_whose_log_is_doubtful_is_a_suspect() -> None:
    metadata = Metadata(PartitionImage(-1, 4, (2,), (1, 2), eligible=(1,)), live=(1,))
    metadata.submit(registration(1, is_clean=False, uncertain={T0: (4, 7)}))
    assert (metadata.state.leader, metadata.state.suspects) == (-1, {1: (4, 7)})
    assert metadata.state.eligible == ()


def test_what_is_known_of_a_suspects_log_stays_known_while_it_is_off_line() -> None:
    metadata = Metadata(PartitionImage(-1, 5, (2,), (1, 2), suspects={1: (5, 10)}), live=(1, 3))
    metadata.submit(registration(1, is_clean=False, off_line=frozenset({T0})))
    assert metadata.state.suspects == {1: (5, 10)}
    metadata.submit(registration(1, is_clean=False))
    assert metadata.state.suspects == {1: None}, "it is back, and says of no log"


@pytest.mark.parametrize("have_all", [{"isr": (1,)}, {"isr": (), "eligible": (1,)}])
def test_a_lone_replica_that_had_every_record_leads_unsaid(have_all: dict[str, Any]) -> None:
    """Whatever the end of its log lost, no other broker has it."""
    metadata = Metadata(PartitionImage(-1, 4, replicas=(1,), **have_all), live=(1, 2))
    metadata.submit(registration(1, is_clean=False, uncertain={T0: (3, 9)}))
    assert metadata.state.leader == 1
    assert metadata.warnings() == []


# --- brokers that are gone


def test_who_shuts_down_and_leads_on_keeps_no_dead_member_in_the_isr() -> None:
    metadata = Metadata(PartitionImage(1, 4, (1, 2), (1, 2)), config={UNCLEAN: "true"})
    metadata.live(broker(1, is_shutting_down=True), broker(3))
    metadata.submit(BrokersChanged())
    assert (metadata.state.leader, metadata.state.isr) == (1, (1,))


def test_what_changed_is_decided_once() -> None:
    below = PartitionImage(3, 4, (3,), (1, 2, 3), eligible=(1,))
    metadata = Metadata(ALL, below, PartitionImage(2, 4, (2, 3), (2, 3)), live=(1, 2))
    metadata.submit(BrokersChanged())
    assert [state.leader for state in metadata.states] == [1, 1, 2]
    assert metadata.decide(BrokersChanged()).writes == ()
    assert metadata.decide(BrokersChanged()).notices == ()


def test_states_that_no_topic_has_are_removed() -> None:
    """They are of a creation, or of a deletion, that a controller did not finish."""
    metadata = Metadata(ALL)
    state = layout.encode_state(ALL)
    metadata.write([Put(layout.state_path("new", 0), state), Put(layout.state_path("t", 1), state)])
    assert metadata.image.leftovers == {"new": (0,), "t": (1,)}
    metadata.write([Put(layout.topic_path("t"), None)])
    assert metadata.image.leftovers == {"new": (0,), "t": (0, 1)}
    metadata.submit(BrokersChanged())
    assert metadata.image.leftovers == {}
    assert metadata.decide(BrokersChanged()).writes == ()


def test_a_deletion_is_one_from_its_first_write_on() -> None:
    metadata = Metadata(ALL, ALL)
    note, value, *_ = metadata.decide(DeleteTopic(ID)).writes
    metadata.write([note, value])
    assert metadata.image.topics == {}
    assert metadata.image.deleted == {"t": {ID: (1, 2, 3)}}


def test_an_unclean_election_says_what_is_known_to_be_lost() -> None:
    allowed = {UNCLEAN: "true"}
    metadata = Metadata(ALL, live=(), config=allowed)
    metadata.submit(BrokersChanged())
    metadata.live(broker(3))
    before = replace(metadata.state, isr=(1, 2))
    unknown = Metadata(before, live=(3,), config=allowed)
    unknown.submit(BrokersChanged())
    assert unknown.state.isr == (3,)
    (warning,) = unknown.warnings()
    assert "unclean election in 1 partitions" in warning
    assert "t-0 by broker 3 (how many acknowledged records are lost is not known)" in warning
    known = Metadata(replace(before, isr=(2,), suspects={1: (4, 90)}), live=(3,), config=allowed)
    known.submit(BrokersChanged())
    (warning,) = known.warnings()
    assert "t-0 by broker 3 (of the logs known, that of broker 1 to 90)" in warning


def test_one_warning_names_only_the_first_partitions() -> None:
    lost = PartitionImage(1, 4, (1,), (1, 2))
    metadata = Metadata(*[lost] * 7, live=(2,), cluster_config={UNCLEAN: "true"})
    metadata.submit(BrokersChanged())
    (warning,) = metadata.warnings()
    assert warning.endswith(" and 2 more")


# --- a broker that shuts down


def test_a_broker_that_shuts_down_gives_up_what_others_can_lead() -> None:
    alone = PartitionImage(1, 4, (1,), (1, 2))
    metadata = Metadata(ALL, alone, PartitionImage(2, 4, (1, 2), (2, 1)))
    assert metadata.submit(BrokerShuttingDown(1, 1)) == ShutdownOutcome(remaining_count=1)
    assert [(state.leader, state.isr) for state in metadata.states] == [
        (2, (2, 3)),
        (1, (1,)),
        (2, (2,)),
    ]
    assert metadata.image.brokers[1].is_shutting_down
    again = metadata.decide(BrokerShuttingDown(1, 1))
    assert (again.reply, again.writes) == (ShutdownOutcome(remaining_count=1), ())


def test_the_next_controller_does_not_elect_a_broker_that_shuts_down() -> None:
    metadata = Metadata(ALL, live=(2, 3))
    metadata.live(broker(2, is_shutting_down=True), broker(3))
    metadata.submit(BrokersChanged())
    assert (metadata.state.leader, metadata.state.isr) == (3, (3,))


def test_what_a_broker_leads_alone_it_leads_until_it_is_gone() -> None:
    """Also where an unclean election is allowed: its records are not lost by a shutdown."""
    alone = PartitionImage(1, 4, (1,), (1, 2))
    metadata = Metadata(alone, config={UNCLEAN: "true"})
    metadata.submit(BrokerShuttingDown(1, 1))
    metadata.submit(BrokersChanged())
    assert metadata.state == alone


def test_a_shutdown_in_an_earlier_life_is_refused() -> None:
    metadata = Metadata(ALL, live=[broker(1, 2), broker(2)])
    decision = metadata.decide(BrokerShuttingDown(1, 1))
    assert (decision.reply, decision.writes) == (ShutdownOutcome(STALE), ())
    assert metadata.decide(BrokerShuttingDown(3, 1)).reply.error is STALE


# --- a log directory that fails


def test_another_in_sync_replica_leads_when_a_directory_fails() -> None:
    led = PartitionImage(1, 4, (1, 2), (1, 2))
    followed = PartitionImage(2, 4, (1, 2), (2, 1))
    other = PartitionImage(1, 4, (1, 2), (1, 2))
    metadata = Metadata(led, followed, other)
    failed = (T0, TopicPartition("t", 1), TopicPartition("gone", 0))
    metadata.submit(DirectoryFailed(1, failed))
    assert metadata.states == (
        PartitionImage(2, 5, (2,), (1, 2), (1,), 1),
        PartitionImage(2, 4, (2,), (2, 1), (1,), 1),
        other,
    )
    assert metadata.decide(DirectoryFailed(1, failed)).writes == ()


def test_the_last_in_sync_replica_stays_though_its_directory_failed() -> None:
    """Another member that comes back leads, though its broker is live all the time."""
    metadata = Metadata(PartitionImage(1, 4, (1, 2), (1, 2)), live=(1, 3))
    metadata.submit(DirectoryFailed(1, (T0,)))
    assert (metadata.state.leader, metadata.state.isr) == (-1, (1, 2))
    metadata.live(broker(1), broker(2), broker(3))
    metadata.submit(registration(2))
    assert (metadata.state.leader, metadata.state.isr) == (2, (2,))


def test_a_broker_that_is_alone_stores_no_failed_directory() -> None:
    metadata = Metadata(PartitionImage(1, 4, (1,), (1,)), live=(1,))
    assert metadata.decide(DirectoryFailed(1, (T0,))).writes == ()


# --- a replica that begins again without records


def test_a_replica_begins_again_by_the_newest_state_only() -> None:
    """An event that comes late says nothing of a directory that has failed since."""
    off_line = PartitionImage(2, 4, (2,), (1, 2), (1,), 7)
    metadata = Metadata(off_line)
    for one in (
        OffLineReplica(ID, 0, 6),
        OffLineReplica(ID, 1, 7),
        OffLineReplica(UUID(int=8), 0, 7),
    ):
        assert metadata.decide(ReplicasMadeAgain(1, (one,))).writes == ()
    begun = OffLineReplica(ID, 0, 7)
    assert metadata.decide(ReplicasMadeAgain(2, (begun,))).writes == ()
    in_sync = Metadata(replace(off_line, isr=(2, 3), replicas=(1, 2, 3)))
    assert in_sync.decide(ReplicasMadeAgain(3, (begun,))).writes == ()
    metadata.submit(ReplicasMadeAgain(1, (begun,)))
    assert metadata.state == replace(off_line, offline_replicas=(), partition_epoch=8)


def test_a_replica_that_begins_again_is_waited_for_no_more() -> None:
    """Neither as a member of the ISR nor as a suspect whose log is not known."""
    before = PartitionImage(-1, 4, (1, 2), (1, 2, 3), (1,), 7)
    for state in (before, replace(before, isr=(2,), suspects={1: None})):
        metadata = Metadata(state, live=(1, 3))
        metadata.submit(ReplicasMadeAgain(1, (OffLineReplica(ID, 0, 7),)))
        changed = metadata.state
        assert (changed.leader, changed.isr, changed.suspects) == (-1, (2,), {})


# --- a broker that is forgotten


def test_a_broker_that_is_forgotten_holds_up_no_deletion() -> None:
    noted = {"a": {UUID(int=8): (2, 3), UUID(int=9): (3,)}, "b": {UUID(int=9): (3,)}}
    metadata = Metadata(ALL, live=(1, 2), deleted=noted, broker_epochs={3: 7})
    assert metadata.submit(ForgetBroker(3)) == ChangeOutcome()
    assert metadata.image.deleted == {"a": {UUID(int=8): (2,)}}
    assert 3 not in metadata.image.directories
    assert metadata.image.broker_epochs == {3: 7}
    again = metadata.decide(ForgetBroker(3))
    assert (again.reply, again.writes) == (ChangeOutcome(), ())


def test_only_a_broker_that_was_here_and_is_gone_can_be_forgotten() -> None:
    metadata = Metadata(ALL)
    assert metadata.decide(ForgetBroker(1)).reply.error is ErrorCode.invalid_request
    assert metadata.decide(ForgetBroker(9)).reply.error is ErrorCode.broker_id_not_registered
    assert metadata.decide(ForgetBroker(1)).writes == metadata.decide(ForgetBroker(9)).writes == ()
