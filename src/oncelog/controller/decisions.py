"""The table of the controller's decisions: one decider for each event.

Pure: `oncelog.broker.controller` writes what is decided. Each decision begins from an image and can
be made again from a newer one, so it may be interrupted anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from oncelog.controller import layout
from oncelog.controller.acls import create_acls, delete_acls
from oncelog.controller.brokers import (
    begin_replicas_again,
    change_brokers,
    fail_directory,
    forget_broker,
    shut_down_broker,
)
from oncelog.controller.changes import (
    decide_config_changes,
    decide_config_replacement,
    decide_partitions,
)
from oncelog.controller.decision import (
    ChangeOutcome,
    ControllerDecision,
    ControllerEvent,
    ControllerNotice,
    Decide,
    DecisionContext,
    Put,
)
from oncelog.controller.deletions import confirm_deletions, delete_topic, listed_again
from oncelog.controller.events import (
    AclDeletion,
    AclOutcome,
    AlterClientQuotas,
    AlterGroupConfigs,
    AlterPartition,
    AlterReassignments,
    AlterScramCredentials,
    AlterTopicConfigs,
    BrokerRegistered,
    BrokersChanged,
    BrokerShuttingDown,
    CreateAcls,
    CreatePartitions,
    CreateTopics,
    DeleteAcls,
    DeleteTopic,
    DeletionsConfirmed,
    DirectoryFailed,
    ElectionOutcome,
    ElectLeaders,
    ForgetBroker,
    IsrOutcome,
    QuotaOutcome,
    ReassignmentOutcome,
    ReplicasMadeAgain,
    ReplicasRemoved,
    ScramOutcome,
    ShutdownOutcome,
    UpdateFeatures,
)
from oncelog.controller.features import decide_update, level_text
from oncelog.controller.group_configs import (
    decide_group_changes,
    decide_group_replacement,
    group_config_warnings,
)
from oncelog.controller.image import MetadataImage, TopicImage
from oncelog.controller.leaders import alter_partition, elect_leaders
from oncelog.controller.placement import known_brokers
from oncelog.controller.quotas import alter_client_quotas
from oncelog.controller.reassignments import alter_reassignments, confirm_removals
from oncelog.controller.registration import register_broker
from oncelog.controller.scram import alter_scram_credentials
from oncelog.controller.states import (
    StateChange,
    changed_rules,
    election_notices,
    state_writes,
)
from oncelog.controller.topics import (
    CreationDefaults,
    TopicOutcome,
    decide_creations,
    few_replicas_warning,
)
from oncelog.controller.writes import group_config_writes, topic_writes
from oncelog.core.config import topic_warnings
from oncelog.core.errors import ErrorCode

__all__ = ["DECIDERS", "decide", "refused"]

ReplyT = TypeVar("ReplyT")


def decide(
    image: MetadataImage, event: ControllerEvent[ReplyT], context: DecisionContext
) -> ControllerDecision[ReplyT]:
    """Return what an event makes of the metadata in `image`, and its reply."""
    decision: ControllerDecision[ReplyT] = DECIDERS[type(event)](image, event, context)
    if image.deleted:
        return replace(decision, writes=tuple(listed_again(image, decision.writes)))
    return decision


def refused(reply: ReplyT, error: ErrorCode, message: str) -> ReplyT:
    """Return the reply to an event whose decision could not be written.

    What the decision refused stays refused for its own reason.
    """
    refusal: Any = _refused(reply, error, message)
    answer: ReplyT = refusal
    return answer


def _refused(reply: object, error: ErrorCode, message: str) -> object:
    match reply:
        case ChangeOutcome(ErrorCode.none):
            return ChangeOutcome(error, message)
        case ShutdownOutcome(ErrorCode.none):
            return ShutdownOutcome(error)
        case IsrOutcome(ErrorCode.none):
            return IsrOutcome(error)
        case ElectionOutcome(label, ErrorCode.none):
            return ElectionOutcome(label, error, message)
        case ReassignmentOutcome(label, ErrorCode.none):
            return ReassignmentOutcome(label, error, message)
        case ScramOutcome(user, ErrorCode.none):
            return ScramOutcome(user, error, message)
        case AclOutcome(ErrorCode.none):
            return AclOutcome(error, message)
        case AclDeletion(ErrorCode.none):
            return AclDeletion(error, message)
        case QuotaOutcome(ErrorCode.none):
            return QuotaOutcome(error, message)
        case TopicOutcome(error=ErrorCode.none):
            return TopicOutcome(reply.name, error, message)
        case ChangeOutcome() | ShutdownOutcome() | IsrOutcome() | ElectionOutcome():
            return reply
        case ReassignmentOutcome() | ScramOutcome() | AclOutcome() | AclDeletion() | QuotaOutcome():
            return reply
        case tuple():
            return tuple(_refused(one, error, message) for one in reply)
    return reply


def _create_topics(
    image: MetadataImage, event: CreateTopics, context: DecisionContext
) -> ControllerDecision[tuple[TopicOutcome, ...]]:
    config = context.config
    defaults = CreationDefaults(
        config.get_int("num.partitions"), config.get_int("default.replication.factor")
    )
    reply = tuple(decide_creations(image, event.topics, context.fresh_ids, defaults))
    if event.validate_only:
        return ControllerDecision(reply)
    if context.no_room is not None:
        return ControllerDecision(refused(reply, ErrorCode.kafka_storage_error, context.no_room))
    writes: list[Put] = []
    notices: list[ControllerNotice] = []
    brokers_count = len(known_brokers(image))
    for topic in (outcome.topic for outcome in reply if outcome.topic is not None):
        writes += topic_writes(None, topic, image.controller_epoch)
        if not topic.is_internal:
            notices += _config_warnings(topic)
        elif (warning := few_replicas_warning(topic, config, brokers_count)) is not None:
            notices.append(ControllerNotice(warning, is_warning=True))
        count = len(topic.partitions)
        notices.append(
            ControllerNotice(f"created topic {topic.name} ({topic.topic_id}), {count} partitions")
        )
    return ControllerDecision(reply, tuple(writes), tuple(notices))


def _create_partitions(
    image: MetadataImage, event: CreatePartitions, context: DecisionContext
) -> ControllerDecision[ChangeOutcome]:
    outcome = decide_partitions(
        image, event.name, image.topic(event.name), event.count, event.assignments
    )
    if outcome.topic is not None and not event.validate_only and context.no_room is not None:
        return ControllerDecision(ChangeOutcome(ErrorCode.kafka_storage_error, context.no_room))
    return _changed(image, outcome, event.validate_only)


def _alter_topic_configs(
    image: MetadataImage, event: AlterTopicConfigs, context: DecisionContext
) -> ControllerDecision[ChangeOutcome]:
    topic = image.topic(event.name)
    if event.replaces:
        config = {change.name: change.value or "" for change in event.changes}
        outcome = decide_config_replacement(event.name, topic, config)
    else:
        outcome = decide_config_changes(event.name, topic, event.changes, context.config)
    elections: list[StateChange] = []
    if topic is not None and outcome.topic is not None:
        elections = changed_rules(image, topic, outcome.topic.config)
    return _changed(image, outcome, event.validate_only, elections)


def _changed(
    image: MetadataImage,
    outcome: TopicOutcome,
    validate_only: bool,
    elections: Sequence[StateChange] = (),
) -> ControllerDecision[ChangeOutcome]:
    reply = ChangeOutcome(outcome.error, outcome.message)
    topic = outcome.topic
    if topic is None or validate_only:
        return ControllerDecision(reply)
    # The states come before the topic's own value: no config is in effect without them.
    writes = (
        *state_writes(image, elections),
        *topic_writes(image.topic(topic.name), topic, image.controller_epoch),
    )
    if not writes:
        return ControllerDecision(reply)
    notice = ControllerNotice(f"changed topic {topic.name}")
    notices = (notice, *_config_warnings(topic), *election_notices(elections))
    return ControllerDecision(reply, writes, notices)


def _config_warnings(topic: TopicImage) -> list[ControllerNotice]:
    warnings = topic_warnings(topic.config)
    return [ControllerNotice(f"topic {topic.name}: {text}", is_warning=True) for text in warnings]


def _alter_group_configs(
    image: MetadataImage, event: AlterGroupConfigs, context: DecisionContext
) -> ControllerDecision[ChangeOutcome]:
    group_id = event.group_id
    present = image.group_configs.get(group_id, {})
    if event.replaces:
        config = {change.name: change.value or "" for change in event.changes}
        outcome = decide_group_replacement(context.config, group_id, config)
    else:
        outcome = decide_group_changes(context.config, group_id, present, event.changes)
    reply = ChangeOutcome(outcome.error, outcome.message)
    if outcome.error or event.validate_only:
        return ControllerDecision(reply)
    writes = group_config_writes(group_id, present, outcome.config)
    if not writes:
        return ControllerDecision(reply)
    warnings = group_config_warnings(context.config, {group_id: outcome.config})
    notices = [ControllerNotice(text, is_warning=True) for text in warnings]
    changed = ControllerNotice(f"changed the settings of group {group_id}")
    return ControllerDecision(reply, writes, (changed, *notices))


def _update_features(
    image: MetadataImage, event: UpdateFeatures, context: DecisionContext
) -> ControllerDecision[ChangeOutcome]:
    chosen = image.chosen_features
    supported = {each.broker_id: each.levels for each in image.brokers.values()}
    update = decide_update(chosen, event.updates, supported)
    reply = ChangeOutcome(update.error, update.message)
    if event.validate_only or update.chosen == chosen:
        return ControllerDecision(reply)
    write = Put(layout.FEATURES_PATH, layout.encode_features(update.chosen))
    notices = tuple(ControllerNotice(level_text(one)) for one in event.updates)
    return ControllerDecision(reply, (write,), notices)


DECIDERS: Final[Mapping[type[ControllerEvent[Any]], Decide[Any, Any]]] = {
    CreateTopics: _create_topics,
    CreatePartitions: _create_partitions,
    AlterTopicConfigs: _alter_topic_configs,
    AlterGroupConfigs: _alter_group_configs,
    DeleteTopic: delete_topic,
    UpdateFeatures: _update_features,
    ElectLeaders: elect_leaders,
    AlterReassignments: alter_reassignments,
    AlterClientQuotas: alter_client_quotas,
    AlterScramCredentials: alter_scram_credentials,
    CreateAcls: create_acls,
    DeleteAcls: delete_acls,
    ForgetBroker: forget_broker,
    BrokerRegistered: register_broker,
    BrokersChanged: change_brokers,
    BrokerShuttingDown: shut_down_broker,
    AlterPartition: alter_partition,
    DirectoryFailed: fail_directory,
    ReplicasMadeAgain: begin_replicas_again,
    DeletionsConfirmed: confirm_deletions,
    ReplicasRemoved: confirm_removals,
}
"""Every event has its decider; nothing else decides on the metadata."""
