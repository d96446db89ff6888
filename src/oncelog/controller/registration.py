"""Decides what begins with a broker's registration.

Only the controller raises leader epochs: a broker says which of its logs may have lost their end.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
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
    Life,
    after_other_rules,
    after_registration,
    live_brokers,
)
from oncelog.controller.events import BrokerRegistered
from oncelog.controller.features import (
    decide_update,
    demanded_updates,
    level_text,
    unsupported_level,
)
from oncelog.controller.image import BrokerImage, MetadataImage, PartitionImage
from oncelog.controller.states import (
    StateChange,
    changed_states,
    election_notices,
    state_writes,
)
from oncelog.controller.writes import deleted_writes
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition

__all__ = ["register_broker"]


def register_broker(
    image: MetadataImage, event: BrokerRegistered, context: DecisionContext
) -> ControllerDecision[ChangeOutcome]:
    """End the life before; note directories, levels and configs of this one."""
    broker = image.brokers.get(event.broker_id)
    if broker is None or event.broker_epoch != broker.broker_epoch:
        text = f"Broker {event.broker_id} has begun another life than {event.broker_epoch}."
        return ControllerDecision(ChangeOutcome(ErrorCode.stale_broker_epoch, text))
    problem = unsupported_level(image.features, broker.levels)
    if problem is not None:
        return ControllerDecision(ChangeOutcome(ErrorCode.unsupported_version, problem))
    updates = demanded_updates(image.chosen_features, event.levels)
    supported = {each.broker_id: each.levels for each in image.brokers.values()}
    update = decide_update(image.chosen_features, updates, supported)
    if update.error:
        return ControllerDecision(ChangeOutcome(update.error, update.message))
    config, warnings = _cluster_config(image, event)
    changes = _states(image, event, config)
    writes = [*state_writes(image, changes), *_notes(image, event, broker)]
    if updates:
        writes.append(Put(layout.FEATURES_PATH, layout.encode_features(update.chosen)))
    if config != image.cluster_config:
        writes.append(Put(layout.CLUSTER_CONFIG_PATH, layout.encode_config(config)))
    notices = [ControllerNotice(level_text(update)) for update in updates]
    led_count = sum(one.election.state.leader == event.broker_id for one in changes)
    if led_count:
        text = f"began a new leader epoch in {led_count} partitions"
        notices.append(ControllerNotice(text))
    notices += [*election_notices(changes), *warnings]
    return ControllerDecision(ChangeOutcome(), tuple(writes), tuple(notices))


def _states(
    image: MetadataImage, event: BrokerRegistered, config: Mapping[str, str]
) -> list[StateChange]:
    me = event.broker_id
    live = live_brokers(image)
    is_alone = not _others(image, me)
    is_changed = config != image.cluster_config

    def change(label: TopicPartition, state: PartitionImage, rules: ElectionRules) -> Election:
        # A lone broker shows what is off line itself: no other has to know.
        is_off_line = not is_alone and label in event.off_line
        is_lone = state.replicas == (me,)
        is_doubtful = label in event.uncertain if is_lone else not event.is_clean
        life = Life(me, is_doubtful, event.uncertain.get(label), is_off_line)
        election = after_registration(state, life, live, rules)
        if not is_changed:
            return election
        before = election_rules(image.topics[label.topic].config, image.cluster_config)
        other = after_other_rules(election.state, live.including(me), before, rules)
        return election.then(other)

    able = live.including(me)
    return changed_states(image, able, lambda one: is_changed or me in one.replicas, change, config)


def _notes(image: MetadataImage, event: BrokerRegistered, broker: BrokerImage) -> list[Put]:
    """Return the writes of what is noted of a broker besides the states of its partitions."""
    me = event.broker_id
    writes = []
    if not broker.is_clean:
        # From now on nothing relies on what it may have lost.
        value = layout.encode_broker(replace(broker, is_clean=True))
        writes.append(Put(layout.broker_path(me), value))
    if event.directory_ids != image.directories.get(me, frozenset()):
        value = layout.encode_directories(event.directory_ids)
        writes.append(Put(layout.directories_path(me), value))
    for name, noted in image.deleted.items():
        # A coordinator on it may have something of a topic in which it has no replica. A note
        # without brokers is of an earlier version: there was one.
        held = {
            topic_id: (*holders, me) if holders and me not in holders else holders
            for topic_id, holders in noted.items()
        }
        if held != noted:
            writes += deleted_writes(name, held)
    return writes


def _others(image: MetadataImage, broker_id: int) -> Set[int]:
    return (image.brokers.keys() | image.directories.keys()) - {broker_id}


def _cluster_config(
    image: MetadataImage, event: BrokerRegistered
) -> tuple[Mapping[str, str], list[ControllerNotice]]:
    """Return the cluster's configs: those of a broker that is alone, else those of the first.

    A broker is alone where no other has noted its log directories, and none of them is live.
    """
    stored = image.cluster_config
    if not _others(image, event.broker_id):
        return {**stored, **event.cluster_config}, []
    warnings = [
        ControllerNotice(
            f"{name}={value} of broker {event.broker_id} has no effect: "
            f"it is {stored[name]} in this cluster",
            is_warning=True,
        )
        for name, value in event.cluster_config.items()
        if stored.get(name, value) != value
    ]
    return {**event.cluster_config, **stored}, warnings
