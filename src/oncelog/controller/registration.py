"""Decides what begins with a broker's registration, and what its failed log directory changes.

Only the controller raises leader epochs: a broker says which of its logs may have lost their end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from oncelog.controller import layout
from oncelog.controller.decision import (
    ChangeOutcome,
    ControllerDecision,
    ControllerNotice,
    DecisionContext,
    Put,
)
from oncelog.controller.epochs import raise_epochs, without_replica
from oncelog.controller.events import BrokerRegistered, DirectoryFailed
from oncelog.controller.features import decide_update, demanded_updates, level_text
from oncelog.controller.image import MetadataImage
from oncelog.controller.writes import topic_writes
from oncelog.core.ids import TopicPartition

__all__ = ["fail_directory", "register_broker"]


def register_broker(
    image: MetadataImage, event: BrokerRegistered, context: DecisionContext
) -> ControllerDecision[ChangeOutcome]:
    """Raise the epochs of logs that may have lost records; note directories, levels and configs."""
    writes: list[Put] = []
    notices: list[ControllerNotice] = []
    led = _led(image, event)
    for name in sorted({partition.topic for partition in led}):
        topic = image.topics[name]
        writes += topic_writes(topic, raise_epochs(topic, led))
    if led:
        notices.append(ControllerNotice(f"began a new leader epoch in {len(led)} partitions"))
    if event.directory_ids != image.directories.get(event.broker_id, frozenset()):
        path = layout.directories_path(event.broker_id)
        writes.append(Put(path, layout.encode_directories(event.directory_ids)))
    updates = demanded_updates(image.chosen_features, event.levels)
    if updates:
        update = decide_update(image.chosen_features, updates)
        if update.error:
            return ControllerDecision(ChangeOutcome(update.error, update.message))
        writes.append(Put(layout.FEATURES_PATH, layout.encode_features(update.chosen)))
        notices += [ControllerNotice(level_text(update)) for update in updates]
    config, warnings = _cluster_config(image, event)
    if config != image.cluster_config:
        writes.append(Put(layout.CLUSTER_CONFIG_PATH, layout.encode_config(config)))
    return ControllerDecision(ChangeOutcome(), tuple(writes), (*notices, *warnings))


def _led(image: MetadataImage, event: BrokerRegistered) -> dict[TopicPartition, int]:
    found = {}
    for label, (latest_epoch, _) in event.uncertain.items():
        partition = image.partition(*label)
        if partition is not None and partition.leader == event.broker_id:
            found[label] = latest_epoch
    return found


def _cluster_config(
    image: MetadataImage, event: BrokerRegistered
) -> tuple[Mapping[str, str], list[ControllerNotice]]:
    """Return the cluster's configs: those of a broker that is alone, else those of the first."""
    stored = image.cluster_config
    others = image.brokers.keys() - {event.broker_id}
    if not others:
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


def fail_directory(
    image: MetadataImage, event: DirectoryFailed, context: DecisionContext
) -> ControllerDecision[ChangeOutcome]:
    """Take the broker out of the ISRs of these partitions, as far as others are in them.

    The last member stays in the ISR, as in Kafka; that it cannot lead is known to its broker, which
    shows the partition without a leader until its next start.
    """
    failed = set(event.partitions)
    writes: list[Put] = []
    for name in sorted({partition.topic for partition in failed}):
        topic = image.topics.get(name)
        if topic is None:
            continue
        partitions = tuple(
            without_replica(partition, event.broker_id, image.brokers.keys())
            if label in failed
            else partition
            for label, partition in zip(topic.topic_partitions(), topic.partitions, strict=True)
        )
        writes += topic_writes(topic, replace(topic, partitions=partitions))
    return ControllerDecision(ChangeOutcome(), tuple(writes))
