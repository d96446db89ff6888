"""Decides on the ISR that a leader asks for, and on the election that an operator asks for.

The checks and their errors are those of Kafka's `ReplicationControlManager`.
"""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.controller.cluster_config import election_rules
from oncelog.controller.decision import ControllerDecision, ControllerNotice, DecisionContext
from oncelog.controller.elections import (
    Election,
    LiveBrokers,
    led_by,
    live_brokers,
    settled,
    with_isr,
)
from oncelog.controller.events import (
    AlterPartition,
    ElectionOutcome,
    ElectLeaders,
    IsrChange,
    IsrMember,
    IsrOutcome,
)
from oncelog.controller.image import MetadataImage, PartitionImage, TopicImage
from oncelog.controller.states import (
    StateChange,
    completed,
    election_notices,
    listed,
    state_writes,
)
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition

__all__ = ["alter_partition", "elect_leaders"]


def alter_partition(
    image: MetadataImage, event: AlterPartition, context: DecisionContext
) -> ControllerDecision[tuple[IsrOutcome, ...]]:
    """Change each ISR, or refuse to. With the last new replica in it a reassignment is done."""
    sender = image.brokers.get(event.broker_id)
    if sender is None or sender.broker_epoch != event.broker_epoch:
        stale = IsrOutcome(ErrorCode.stale_broker_epoch)
        return ControllerDecision(tuple(stale for _ in event.changes))
    live = live_brokers(image)
    reply = []
    changes: dict[TopicPartition, StateChange] = {}
    for asked in event.changes:
        topic = image.topic_by_id(asked.topic_id)
        if topic is None:
            reply.append(IsrOutcome(ErrorCode.unknown_topic_id))
            continue
        before = image.partition(topic.name, asked.partition)
        label = topic.label(asked.partition)
        if before is None or label in changes:
            # Named twice in one event is no request of ours.
            error = ErrorCode.unknown_topic_or_partition
            reply.append(IsrOutcome(ErrorCode.invalid_request if before else error))
            continue
        error = _refusal(image, event.broker_id, before, asked)
        if error is not ErrorCode.none:
            reply.append(IsrOutcome(error))
            continue
        isr = tuple(member.broker_id for member in asked.isr)
        state = before
        if set(isr) != set(before.isr):
            rules = election_rules(topic.config, image.cluster_config)
            election = completed(Election(with_isr(before, isr, rules)), live, rules)
            state = election.state
            changes[label] = StateChange(label, before, election)
        reply.append(IsrOutcome(state=state))
    done = [one for one in changes.values() if one.election.state.replicas != one.before.replicas]
    notices = []
    if done:
        told = listed([f"{one.label} to {list(one.election.state.replicas)}" for one in done])
        notices.append(ControllerNotice(f"{len(done)} reassignments are done: {told}"))
    return ControllerDecision(tuple(reply), state_writes(image, changes.values()), tuple(notices))


def _refusal(
    image: MetadataImage, sender_id: int, state: PartitionImage, asked: IsrChange
) -> ErrorCode:
    if asked.leader_epoch > state.leader_epoch or asked.partition_epoch > state.partition_epoch:
        # The leader knows a newer state than this controller, which is one no more.
        return ErrorCode.not_controller
    if asked.leader_epoch < state.leader_epoch:
        return ErrorCode.fenced_leader_epoch
    if sender_id != state.leader:
        return ErrorCode.invalid_request
    if asked.partition_epoch < state.partition_epoch:
        return ErrorCode.invalid_update_version
    members = [member.broker_id for member in asked.isr]
    if len(set(members)) != len(members) or not {*state.replicas} >= {*members}:
        return ErrorCode.invalid_request
    if sender_id not in members:
        return ErrorCode.invalid_request
    if not all(_is_active(image, state, one) for one in asked.isr if one.broker_id != sender_id):
        return ErrorCode.ineligible_replica
    return ErrorCode.none


def _is_active(image: MetadataImage, state: PartitionImage, member: IsrMember) -> bool:
    """Whether a member is in the life in which it caught up, and stays (KIP-841, KIP-903)."""
    broker = image.brokers.get(member.broker_id)
    if broker is None or broker.broker_epoch != member.broker_epoch:
        return False
    if broker.is_shutting_down or not broker.is_clean:
        return False
    return member.broker_id not in state.offline_replicas


def elect_leaders(
    image: MetadataImage, event: ElectLeaders, context: DecisionContext
) -> ControllerDecision[tuple[ElectionOutcome, ...]]:
    """Elect in each partition by itself.

    Where all are asked for, those that need no election are left out of the reply.
    """
    live = live_brokers(image)
    labels: Sequence[TopicPartition] = event.partitions or ()
    if event.partitions is None:
        labels = [one for topic in image.topics.values() for one in topic.topic_partitions()]
    reply = []
    changes = []
    for label in dict.fromkeys(labels):
        before = image.partition(*label)
        if before is None:
            text = "This server does not host this topic-partition."
            reply.append(ElectionOutcome(label, ErrorCode.unknown_topic_or_partition, text))
        elif before.leader == before.replicas[0] or (event.is_unclean and before.leader != -1):
            if event.partitions is not None:
                text = "Leader election not needed for topic partition."
                reply.append(ElectionOutcome(label, ErrorCode.election_not_needed, text))
        else:
            topic = image.topics[label.topic]
            election = _elected(image, topic, before, live, is_unclean=event.is_unclean)
            if election is not None:
                changes.append(StateChange(label, before, election))
            reply.append(_outcome(label, election, is_unclean=event.is_unclean))
    notices = tuple(election_notices(changes))
    return ControllerDecision(tuple(reply), state_writes(image, changes), notices)


def _elected(
    image: MetadataImage,
    topic: TopicImage,
    before: PartitionImage,
    live: LiveBrokers,
    *,
    is_unclean: bool,
) -> Election | None:
    rules = election_rules(topic.config, image.cluster_config)
    if is_unclean:
        anyone = rules._replace(allows_unclean=True, allows_added=True)
        election = settled(before, live, anyone)
        return None if election.state.leader == -1 else election
    state = led_by(before, before.replicas[0], live, rules)
    return None if state is None else Election(state)


def _outcome(
    label: TopicPartition, election: Election | None, *, is_unclean: bool
) -> ElectionOutcome:
    if election is not None:
        return ElectionOutcome(label)
    if is_unclean:
        text = "Eligible topic partition leaders are not available."
        return ElectionOutcome(label, ErrorCode.eligible_leaders_not_available, text)
    text = "The preferred leader was not available."
    return ElectionOutcome(label, ErrorCode.preferred_leader_not_available, text)
