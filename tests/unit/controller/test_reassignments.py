"""Reassignments: the table of steps row by row, refusals, and a controller that dies in between."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from oncelog.controller import layout, reassignments
from oncelog.controller.contents import Contents
from oncelog.controller.decision import ControllerEvent
from oncelog.controller.elections import ElectionRules, LiveBrokers, with_replicas
from oncelog.controller.events import (
    AlterPartition,
    AlterReassignments,
    BrokersChanged,
    CreatePartitions,
    DeleteTopic,
    ElectLeaders,
    ForgetBroker,
    IsrChange,
    IsrMember,
    Reassignment,
    ReassignmentOutcome,
    RemovedReplica,
    ReplicasRemoved,
)
from oncelog.controller.image import MetadataImage, PartitionImage
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from tests.unit.controller.cluster import ID, MIN_ISR, T0, UNCLEAN, Metadata, broker, registration

EPOCH, PARTITION_EPOCH = 4, 9
ALL = PartitionImage(1, 4, (1, 2, 3), (1, 2, 3))
BROKERS = (1, 2, 3, 4, 5)


class Row(NamedTuple):
    """One step, as the table writes it."""

    state: str
    live: str
    event: str
    after: str


def rows() -> list[Row]:
    text = reassignments.__doc__ or ""
    rule, _, _, *lines = text[text.index("====") :].split("\n\n", 1)[0].splitlines()
    starts = [match.start() for match in re.finditer("=+", rule)]
    cells = list(zip(starts, [*starts[1:], None], strict=True))
    return [Row(*(line[begin:end].strip() for begin, end in cells)) for line in lines[:-1]]


def numbers(text: str | None) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text or "")))


def parsed(text: str) -> PartitionImage:
    pattern = r"(\S+):([ \d]*)(\([ \d]*\) )?of ([ \d]*)(\+[ \d]*)?(-[ \d]*)?(~[ \d]*)?"
    match = re.fullmatch(pattern, text)
    assert match is not None, text
    leader, isr, eligible, replicas, adding, removing, removed = match.groups()
    return PartitionImage(
        leader=-1 if leader == "-" else int(leader),
        leader_epoch=EPOCH,
        isr=numbers(isr),
        replicas=numbers(replicas),
        partition_epoch=PARTITION_EPOCH,
        eligible=numbers(eligible),
        adding=numbers(adding),
        removing=numbers(removing),
        removed=numbers(removed),
    )


def event_of(text: str) -> ControllerEvent[Any]:
    who = numbers(text)
    if "asks" in text:
        isr = tuple(IsrMember(one, 1) for one in who[1:])
        return AlterPartition(who[0], 1, (IsrChange(ID, 0, EPOCH, PARTITION_EPOCH, isr),))
    if "forgotten" in text:
        return ForgetBroker(who[0])
    if "has none" in text:
        return ReplicasRemoved(who[0], (RemovedReplica(ID, 0, EPOCH),))
    if "gone" in text:
        return BrokersChanged()
    return to(*who) if text.startswith("to") else to()


def to(*replicas: int, label: TopicPartition = T0) -> AlterReassignments:
    """A reassignment to these brokers; without any it is cancelled."""
    return AlterReassignments((Reassignment(label, replicas or None),))


def cluster(
    *states: PartitionImage, live: tuple[int, ...] = BROKERS, unclean: str = "false"
) -> Metadata:
    directories = {number: frozenset({"d"}) for number in BROKERS}
    config = {MIN_ISR: "2", UNCLEAN: unclean}
    return Metadata(*states, live=live, config=config, directories=directories)


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.state}; {row.event}")
def test_each_row_of_the_table_is_what_the_controller_decides(row: Row) -> None:
    metadata = cluster(parsed(row.state), live=numbers(row.live))
    metadata.submit(event_of(row.event))
    wanted, _, epoch = row.after.partition(", new ")
    state, after = metadata.state, parsed(wanted)
    assert (state.leader_epoch > EPOCH) == bool(epoch)
    assert replace(state, leader_epoch=EPOCH, partition_epoch=PARTITION_EPOCH) == after
    # Only that a folder is gone concerns no leader.
    is_told = row.event.endswith(("has none", "forgotten")) or row.state == row.after
    assert (state.partition_epoch == PARTITION_EPOCH) == is_told
    assert metadata.decide(BrokersChanged()).writes == ()


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.state}; {row.event}")
def test_a_cut_off_step_of_the_controller_is_finished_by_the_next(row: Row) -> None:
    whole = cluster(parsed(row.state), live=numbers(row.live))
    event = event_of(row.event)
    writes = whole.decide(event).writes
    whole.write(writes)
    for count in range(1, len(writes)):
        metadata = cluster(parsed(row.state), live=numbers(row.live))
        metadata.write(writes[:count])
        metadata.submit(BrokersChanged())
        assert metadata.state == whole.state


def test_what_kafka_refuses_is_refused_with_its_code() -> None:
    moving = replace(ALL, replicas=(1, 2, 4, 3), adding=(4,), removing=(3,))
    cases = [
        (ALL, to(1, label=TopicPartition("u", 0)), ErrorCode.unknown_topic_or_partition),
        (ALL, to(1, label=TopicPartition("t", 1)), ErrorCode.unknown_topic_or_partition),
        (ALL, to(1, label=TopicPartition("t", -1)), ErrorCode.unknown_topic_or_partition),
        (ALL, to(), ErrorCode.no_reassignment_in_progress),
        (ALL, AlterReassignments((Reassignment(T0, ()),)), ErrorCode.invalid_replica_assignment),
        (ALL, to(1, 1), ErrorCode.invalid_replica_assignment),
        (ALL, to(1, 9), ErrorCode.invalid_replica_assignment),
        (ALL, to(1, -1), ErrorCode.invalid_replica_assignment),
        (ALL, replace(to(1, 2), allows_factor_change=False), ErrorCode.invalid_replication_factor),
        (
            moving,
            replace(to(1, 2, 3, 4), allows_factor_change=False),
            ErrorCode.invalid_replication_factor,
        ),
    ]
    for state, event, error in cases:
        decision = cluster(state).decide(event)
        ((label, found, text),) = decision.reply
        assert (label, found, decision.writes) == (event.partitions[0].partition, error, ())
        assert text
    same_factor = replace(to(1, 2, 5), allows_factor_change=False)
    for state in (ALL, moving):
        assert cluster(state).submit(same_factor) == (ReassignmentOutcome(T0),)


def test_the_factor_is_that_of_the_replicas_that_stay() -> None:
    moving = replace(ALL, replicas=(4, 5, 1, 2, 3), adding=(4, 5), removing=(1, 2, 3))
    event = replace(to(1, 2, 3), allows_factor_change=False)
    (outcome,) = cluster(moving).submit(event)
    assert outcome.error is ErrorCode.invalid_replication_factor
    assert outcome.message == "The replication factor is changed from 2 to 3"


def test_a_partition_that_has_what_is_asked_is_not_written() -> None:
    assert cluster(ALL).decide(to(1, 2, 3)).writes == ()


def test_each_partition_of_a_request_is_decided_by_itself() -> None:
    metadata = cluster(ALL, ALL)
    other = TopicPartition("t", 1)
    asked = (Reassignment(T0, (1, 9)), Reassignment(other, (2, 3)), Reassignment(other, None))
    errors = [one.error for one in metadata.submit(AlterReassignments(asked))]
    assert errors == [
        ErrorCode.invalid_replica_assignment,
        ErrorCode.none,
        ErrorCode.no_reassignment_in_progress,  # It was done at once.
    ]
    assert [state.replicas for state in metadata.states] == [(1, 2, 3), (2, 3)]


def test_a_partition_that_is_named_twice_gets_the_last_wish() -> None:
    metadata = cluster(ALL)
    asked = (Reassignment(T0, (1, 2, 4)), Reassignment(T0, None), Reassignment(T0, (1, 2, 5)))
    assert {one.error for one in metadata.submit(AlterReassignments(asked))} == {ErrorCode.none}
    assert (metadata.state.replicas, metadata.state.adding) == ((1, 2, 5, 3), (5,))


def test_a_cancellation_that_would_lose_records_is_refused() -> None:
    only_new = PartitionImage(4, 4, (4,), (4, 1), adding=(4,), removing=(1,))
    suspect = PartitionImage(-1, 4, (1,), (4, 1), suspects={4: (3, 9)}, adding=(4,), removing=(1,))
    for state in (only_new, suspect):
        metadata = cluster(state)
        (outcome,) = metadata.submit(to())
        assert outcome.error is ErrorCode.invalid_replica_assignment
        assert metadata.state == state
    allowed = cluster(only_new, unclean="true")
    assert allowed.submit(to()) == (ReassignmentOutcome(T0),)
    assert (allowed.state.leader, allowed.state.isr, allowed.state.removed) == (1, (1,), (4,))
    assert "unclean election" in allowed.warnings()[0]


@pytest.mark.parametrize(
    ("isr", "suspects", "warning"),
    [
        ((4,), {}, "unclean election in 1 partitions"),
        ((), {1: (3, 7), 4: (3, 9)}, "led by the longest log that is left"),
    ],
)
def test_who_stays_alone_by_a_cancellation_leads_with_a_warning(
    isr: tuple[int, ...], suspects: dict[int, tuple[int, int] | None], warning: str
) -> None:
    moving = PartitionImage(-1, 4, isr, (4, 1), suspects=suspects, adding=(4,), removing=(1,))
    metadata = cluster(moving, live=(2, 3), unclean="true")
    assert metadata.submit(to()) == (ReassignmentOutcome(T0),)
    assert (metadata.state.leader, metadata.state.replicas) == (-1, (1,))
    metadata.live(broker(1))
    metadata.submit(registration(1))
    assert (metadata.state.leader, metadata.state.isr) == (1, (1,))
    assert any(warning in text for text in metadata.warnings())


def test_what_a_cancellation_gives_up_is_said_though_another_wish_follows() -> None:
    only_new = PartitionImage(4, 4, (4,), (4, 1), adding=(4,), removing=(1,))
    metadata = cluster(only_new, unclean="true")
    metadata.submit(AlterReassignments((Reassignment(T0, None), Reassignment(T0, (1, 2)))))
    assert (metadata.state.leader, metadata.state.adding) == (1, (2,))
    assert "unclean election in 1 partitions" in metadata.warnings()[0]


def test_who_gets_no_replica_after_all_is_neither_eligible_nor_suspect() -> None:
    state = PartitionImage(
        -1, 4, (), (4, 1, 2), eligible=(4, 2), suspects={4: (3, 9), 2: (3, 8)}, adding=(4,)
    )
    none_live = LiveBrokers(frozenset(), frozenset())
    back, _ = with_replicas(state, (1, 2), none_live, ElectionRules(min_insync_replicas=2))
    assert (back.eligible, back.suspects) == ((2,), {2: (3, 8)})


def test_a_cancellation_that_would_leave_no_leader_is_refused() -> None:
    state = PartitionImage(4, 4, (4,), (4, 1), eligible=(1,), adding=(4,), removing=(1,))
    metadata = cluster(state, live=(2, 3, 4))
    (outcome,) = metadata.submit(to())
    assert (outcome.error, metadata.state) == (ErrorCode.invalid_replica_assignment, state)
    back = cluster(state)
    assert back.submit(to()) == (ReassignmentOutcome(T0),)
    assert (back.state.leader, back.state.isr, back.state.replicas) == (1, (1,), (1,))


def test_a_reassignment_is_not_done_while_none_of_its_brokers_is_live() -> None:
    moving = PartitionImage(1, 4, (1, 2), (2, 1), removing=(1,))
    dead = cluster(moving, live=(1, 3))
    # The session of 2 has ended, and the controller has not looked at it yet.
    assert dead.state.removing
    dead.submit(BrokersChanged())
    assert (dead.state.leader, dead.state.isr, dead.state.removing) == (1, (1,), (1,))


def test_what_is_added_makes_no_isr_too_small() -> None:
    metadata = cluster(PartitionImage(1, 4, (1,), (1,)))
    metadata.submit(to(1, 2, 3))
    assert (metadata.state.settled_count, metadata.state.eligible) == (1, ())
    metadata.submit(ElectLeaders((T0,)))
    assert metadata.state.settled_count == 1


def test_an_empty_replica_leads_only_where_an_operator_asks_for_it() -> None:
    state = PartitionImage(1, 4, (1,), (4, 2, 1), adding=(4,), removing=(1,))
    metadata = cluster(state, live=(2, 4), unclean="true")
    metadata.submit(BrokersChanged())
    assert metadata.state.leader == 2
    only_new = cluster(state, live=(4,), unclean="true")
    only_new.submit(BrokersChanged())
    assert (only_new.state.leader, only_new.state.isr) == (-1, (1,))
    only_new.submit(ElectLeaders((T0,), is_unclean=True))
    assert (only_new.state.leader, only_new.state.isr) == (4, (4,))
    assert "unclean election" in only_new.warnings()[0]


@pytest.mark.parametrize("again", [(4, 2), (4, 3), (2, 3)])
def test_one_that_is_added_stays_so_whatever_is_asked_for_meanwhile(again: tuple[int, ...]) -> None:
    state = PartitionImage(1, 4, (1,), (4, 2, 1), adding=(4,), removing=(1,))
    metadata = cluster(state, live=(1, 4), unclean="true")
    metadata.submit(to(*again))
    assert metadata.state.settled_count == 2
    metadata.live(broker(4))
    metadata.submit(BrokersChanged())
    assert (metadata.state.leader, metadata.state.isr) == (-1, (1,))
    metadata.live(broker(1), broker(4))
    metadata.submit(BrokersChanged())
    metadata.submit(to())
    assert metadata.state.replicas in ((1, 2), (2, 1))


def test_no_reassignment_of_a_dead_lone_replica_gives_its_records_up() -> None:
    metadata = cluster(PartitionImage(1, 4, (1,), (1,)), live=(2, 3), unclean="true")
    metadata.submit(to(2, 3))
    assert (metadata.state.leader, metadata.state.isr) == (-1, (1,))
    metadata.submit(ElectLeaders((T0,), is_unclean=True))
    assert (metadata.state.leader, metadata.state.isr) == (2, (2,))
    assert "unclean election" in metadata.warnings()[0]


def test_a_broker_that_says_again_what_it_removed_earlier_keeps_its_note() -> None:
    metadata = cluster(parsed("1: 1 2 of 1 2 ~3"))
    late = ReplicasRemoved(3, (RemovedReplica(ID, 0, EPOCH), RemovedReplica(UUID(int=8), 0, 4)))
    metadata.submit(to(1, 2, 3))
    state = metadata.state
    isr = tuple(IsrMember(one, 1) for one in (1, 2, 3))
    change = IsrChange(ID, 0, state.leader_epoch, state.partition_epoch, isr)
    metadata.submit(AlterPartition(1, 1, (change,)))
    metadata.submit(to(1, 2))
    assert metadata.decide(late).writes == ()
    assert metadata.state.removed == (3,)


def test_the_deletion_of_a_topic_waits_for_brokers_with_removed_replicas() -> None:
    metadata = cluster(parsed("1: 1 2 of 1 2 ~5"), live=(1, 2))
    metadata.submit(DeleteTopic(ID))
    assert metadata.image.deleted["t"][ID] == (1, 2, 5)


def test_monitors_read_the_replicas_in_the_topics_value() -> None:
    metadata = cluster(ALL, ALL)
    decision = metadata.decide(to(1, 2, 4))
    path, value = decision.writes[-1]
    assert path == layout.topic_path("t")
    fields = json.loads(value or b"")
    assert fields["partitions"] == {"0": [1, 2, 4, 3], "1": [1, 2, 3]}
    assert (fields["adding_replicas"], fields["removing_replicas"]) == ({"0": [4]}, {"0": [3]})
    metadata.write(decision.writes)
    grown = metadata.decide(CreatePartitions("t", 3)).writes[-1]
    assert json.loads(grown.value or b"")["adding_replicas"] == {"0": [4]}


def test_a_state_of_an_earlier_version_has_the_replicas_of_its_topic() -> None:
    metadata = cluster(ALL)
    topic = metadata.image.topics["t"]
    fields = json.loads(layout.encode_state(ALL))
    del fields["replicas"]
    contents = Contents(MetadataImage(cluster_id="c"))
    entries = [
        (layout.topic_path("t"), layout.encode_topic(topic), 1),
        (layout.state_path("t", 0), json.dumps(fields).encode(), 1),
    ]
    contents.take(entries, 1)
    assert contents.image.topics["t"].partitions == (ALL,)
