"""Decides what follows when a broker ends, shuts down, loses a log directory, or is forgotten."""

from __future__ import annotations

from dataclasses import replace

from oncelog.controller import layout
from oncelog.controller.cluster_config import election_rules
from oncelog.controller.decision import (
    ChangeOutcome,
    ControllerDecision,
    ControllerNotice,
    DecisionContext,
    Put,
)
from oncelog.controller.elections import (
    Election,
    ElectionRules,
    after_failure,
    after_renewal,
    live_brokers,
    without_broker,
)
from oncelog.controller.events import (
    BrokersChanged,
    BrokerShuttingDown,
    DirectoryFailed,
    ForgetBroker,
    ReplicasMadeAgain,
    ShutdownOutcome,
)
from oncelog.controller.image import MetadataImage, PartitionImage
from oncelog.controller.states import (
    StateChange,
    changed_states,
    election_notices,
    leaders_checked,
    listed,
    state_writes,
    without_removed,
)
from oncelog.controller.writes import deleted_writes
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition

__all__ = ["change_brokers", "fail_directory", "forget_broker", "shut_down_broker"]


def change_brokers(
    image: MetadataImage, event: BrokersChanged, context: DecisionContext
) -> ControllerDecision[ChangeOutcome]:
    """Bring every partition in order that relies on a broker which is not live.

    States that no topic names are of a creation or a deletion that another controller began: they
    are removed. Decided again it writes nothing.
    """
    changes = leaders_checked(image, live_brokers(image))
    left_over = [
        Put(layout.state_path(name, number), None)
        for name, numbers in image.leftovers.items()
        for number in numbers
    ]
    notices = [*_moved_notice(changes), *election_notices(changes)]
    writes = (*state_writes(image, changes), *left_over)
    return ControllerDecision(ChangeOutcome(), writes, tuple(notices))


def _moved_notice(changes: list[StateChange]) -> list[ControllerNotice]:
    moved = [one for one in changes if one.before.leader != one.election.state.leader]
    if not moved:
        return []
    waiting_count = sum(one.election.state.leader == -1 for one in moved)
    text = f"{len(moved)} partitions have another leader, {waiting_count} of them none"
    return [ControllerNotice(text)]


def shut_down_broker(
    image: MetadataImage, event: BrokerShuttingDown, context: DecisionContext
) -> ControllerDecision[ShutdownOutcome]:
    """Have others lead what a broker leads, and take it out of ISRs, as far as others are in them.

    It leads on where no other can. That it shuts down is noted in its registration, so that the
    next controller elects it neither.
    """
    broker = image.brokers.get(event.broker_id)
    if broker is None or broker.broker_epoch != event.broker_epoch:
        return ControllerDecision(ShutdownOutcome(ErrorCode.stale_broker_epoch))
    live = live_brokers(image).without(event.broker_id)
    changes = leaders_checked(image, live)
    writes = state_writes(image, changes)
    if not broker.is_shutting_down:
        value = layout.encode_broker(replace(broker, is_shutting_down=True))
        writes = (*writes, Put(layout.broker_path(event.broker_id), value))
    before = sum(
        state.leader == event.broker_id
        for topic in image.topics.values()
        for state in topic.partitions
    )
    given_count = sum(one.before.leader == event.broker_id for one in changes)
    notices = [*_moved_notice(changes), *election_notices(changes)]
    reply = ShutdownOutcome(remaining_count=before - given_count)
    return ControllerDecision(reply, writes, tuple(notices))


def fail_directory(
    image: MetadataImage, event: DirectoryFailed, context: DecisionContext
) -> ControllerDecision[ChangeOutcome]:
    """Have others lead these partitions, as far as others are in their ISRs.

    A broker that is alone shows them without a leader until its next start; nothing is stored.
    """
    if image.is_alone(event.broker_id):
        return ControllerDecision(ChangeOutcome())
    failed = set(event.partitions)
    live = live_brokers(image)

    def change(label: TopicPartition, state: PartitionImage, rules: ElectionRules) -> Election:
        if label in failed:
            return after_failure(state, event.broker_id, live, rules)
        return Election(state)

    changes = changed_states(image, live, lambda state: event.broker_id in state.replicas, change)
    notices = (*_moved_notice(changes), *election_notices(changes))
    return ControllerDecision(ChangeOutcome(), state_writes(image, changes), notices)


def begin_replicas_again(
    image: MetadataImage, event: ReplicasMadeAgain, context: DecisionContext
) -> ControllerDecision[ChangeOutcome]:
    """Take the broker off those that have these partitions off line, where no state is newer.

    The broker receives a newer one too, and judges again.
    """
    live = live_brokers(image)
    changes = []
    for topic_id, number, epoch in event.replicas:
        topic = image.topic_by_id(topic_id)
        before = None if topic is None else image.partition(topic.name, number)
        if topic is None or before is None or before.partition_epoch != epoch:
            continue
        rules = election_rules(topic.config, image.cluster_config)
        election = after_renewal(before, event.broker_id, live, rules)
        if election.state is not before:
            changes.append(StateChange(topic.label(number), before, election))
    notices = tuple(election_notices(changes))
    return ControllerDecision(ChangeOutcome(), state_writes(image, changes), notices)


def forget_broker(
    image: MetadataImage, event: ForgetBroker, context: DecisionContext
) -> ControllerDecision[ChangeOutcome]:
    """Take a broker that is gone for good off all that waits for it.

    That are notes of deletions and removals, the states of partitions (but for their assignments),
    and its directories. It is refused while the broker alone may have records of a partition
    (INV-1). Should it come back, what it still holds of what was deleted or removed is set aside as
    strays. The number of its last life stays: it begins no life twice.
    """
    gone = event.broker_id
    if gone in image.brokers:
        text = f"Broker {gone} is registered: stop it first."
        return ControllerDecision(ChangeOutcome(ErrorCode.invalid_request, text))
    live = live_brokers(image)
    needed: list[TopicPartition] = []

    def change(label: TopicPartition, state: PartitionImage, rules: ElectionRules) -> Election:
        election = without_broker(without_removed(state, gone), gone, live, rules)
        if election is None:
            needed.append(label)
        return election or Election(state)

    def concerns(state: PartitionImage) -> bool:
        return gone in state.replicas or gone in state.removed

    changes = changed_states(image, live, concerns, change)
    if needed:
        text = (
            f"Broker {gone} alone may have records of {listed(needed)}. To give them up, elect "
            "other leaders by an unclean election, or delete the topic."
        )
        return ControllerDecision(ChangeOutcome(ErrorCode.invalid_request, text))
    writes = list(state_writes(image, changes))
    for name, noted in image.deleted.items():
        held = {
            topic_id: tuple(broker for broker in holders if broker != gone)
            for topic_id, holders in noted.items()
            if holders != (gone,)
        }
        if held != noted:
            writes += deleted_writes(name, held)
    if gone in image.directories:
        writes.append(Put(layout.directories_path(gone), None))
    if not writes and gone not in image.broker_epochs:
        text = f"Broker {gone} was never registered."
        return ControllerDecision(ChangeOutcome(ErrorCode.broker_id_not_registered, text))
    notices = [ControllerNotice(f"forgot broker {gone}")] if writes else []
    return ControllerDecision(
        ChangeOutcome(), tuple(writes), (*notices, *election_notices(changes))
    )
