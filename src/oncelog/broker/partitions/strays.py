"""Compares the folders found at the start with the metadata (D14).

`report_logs` returns what the controller has to know of the logs before the broker serves.

A folder is deleted only if the metadata records that its topic was deleted, or its replica removed:
the broker crashed before it had renamed it, or was away. Any other folder that the metadata does
not know is a stray and is set aside.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Set
from typing import NamedTuple

from oncelog.controller.events import RemovedReplica
from oncelog.controller.image import MetadataImage, PartitionImage, TopicImage
from oncelog.core.ids import NO_LEADER_EPOCH, TopicId, TopicPartition
from oncelog.runtime.disk import StorageFailure
from oncelog.storage.log import PartitionLog
from oncelog.storage.log_manager import LogManager

__all__ = [
    "LogReport",
    "confirmable",
    "miss_directories",
    "not_waited_for",
    "off_line",
    "removals",
    "report_logs",
    "sort_out",
]

log = logging.getLogger(__name__)


def sort_out(logs: LogManager, image: MetadataImage, broker_id: int) -> None:
    """Finish recorded deletions and set strays aside, before any log is opened. Blocking."""
    deleted = {topic_id for ids in image.deleted.values() for topic_id in ids}
    for topic_partition in logs:
        try:
            _sort(logs, image, deleted, topic_partition, broker_id)
        except StorageFailure as failure:
            logs.take_off_line(failure)
            if not logs.online:
                raise


def _sort(
    logs: LogManager,
    image: MetadataImage,
    deleted: Set[TopicId],
    topic_partition: TopicPartition,
    broker_id: int,
) -> None:
    topic_id = logs.topic_id(topic_partition)
    if topic_id in deleted:
        log.info("removing the folder of %s: topic %s was deleted", topic_partition, topic_id)
        logs.delete(topic_partition)
        return
    reason = _stray_reason(image, topic_partition, topic_id)
    partition = image.partition(*topic_partition)
    if reason is None and partition is not None and broker_id not in partition.replicas:
        if topic_id is not None and broker_id in partition.removed:
            log.info("removing the folder of %s: its replica was removed", topic_partition)
            logs.delete(topic_partition)
            return
        reason = "the metadata knows no replica of it on this broker"
    if reason is not None:
        logs.set_aside(topic_partition, reason)


def confirmable(logs: LogManager, image: MetadataImage, broker_id: int) -> frozenset[TopicId]:
    """Return the deleted topics of which this broker may have had a folder, and has none."""
    if not image.deleted or logs.lost or logs.missing:
        return frozenset()
    if any(folder.loses_names for folder in logs.folders):
        return frozenset()
    held = {logs.topic_id(topic_partition) for topic_partition in logs}
    return frozenset(
        topic_id
        for noted in image.deleted.values()
        for topic_id, brokers in noted.items()
        # Without brokers it is the note of an earlier version.
        if (not brokers or broker_id in brokers) and topic_id not in held
    )


def removals(logs: LogManager, image: MetadataImage, broker_id: int) -> tuple[RemovedReplica, ...]:
    """Return the replicas that were removed from this broker, and of which it has no folder."""
    if logs.lost or logs.missing or any(folder.loses_names for folder in logs.folders):
        return ()
    return tuple(
        RemovedReplica(topic.topic_id, label.partition, partition.leader_epoch)
        for topic in image.topics.values()
        for label, partition in zip(topic.topic_partitions(), topic.partitions, strict=True)
        if broker_id in partition.removed and logs.topic_id(label) != topic.topic_id
    )


class LogReport(NamedTuple):
    """What a registration says of the logs: see `BrokerRegistered`."""

    unclean_because: str | None
    """Why acknowledged records of earlier lives may be lost; None if none is."""
    uncertain: dict[TopicPartition, tuple[int, int]]
    """The last leader epoch, -1 without one, and the log end of each log that may have lost it."""


def report_logs(
    logs: LogManager, image: MetadataImage, broker_id: int, last_epoch: int
) -> LogReport:
    """Return whether records may be lost, and where. Called once the logs are open.

    `last_epoch` is the last life of this broker that the store knows. After a life that may have
    lost records all logs with other replicas are uncertain. Else, and of those without, it is the
    ones that begin a new leader epoch here, because they were not closed cleanly or are ahead of
    the metadata, and those that the controller asks for.
    """
    reason = logs.unclean_because(last_epoch)
    shared: dict[TopicPartition, tuple[int, int]] = {}
    found: dict[TopicPartition, tuple[int, int]] = {}
    for topic in image.topics.values():
        for label, partition in zip(topic.topic_partitions(), topic.partitions, strict=True):
            if broker_id not in partition.replicas:
                continue
            held = logs.get(label)
            if held is None and _is_away(logs, label, partition, broker_id):
                continue
            latest = held.latest_epoch if held is not None else NO_LEADER_EPOCH
            end = latest, held.log_end_offset if held is not None else 0
            reason = reason or _lost_in(label, partition, broker_id, held)
            is_sure = logs.is_whole(label) and logs.is_of_life(label, last_epoch)
            is_ahead = latest > partition.leader_epoch
            begins_epoch = _may_lead(partition, broker_id) and not is_sure
            if is_ahead or begins_epoch or broker_id in partition.suspects:
                found[label] = end
            elif len(partition.replicas) > 1:
                shared[label] = end
    if reason is None:
        return LogReport(None, found)
    log.info("registering as unclean: %s", reason)
    return LogReport(reason, found | shared)


def _may_lead(partition: PartitionImage, broker_id: int) -> bool:
    if partition.leader >= 0:
        return partition.leader == broker_id
    return broker_id in partition.isr or broker_id in partition.eligible


def _lost_in(
    label: TopicPartition, partition: PartitionImage, broker_id: int, held: PartitionLog | None
) -> str | None:
    """Why the broker may lack records that other replicas rely on."""
    members = {*partition.isr, *partition.eligible}
    if len(partition.replicas) == 1 or broker_id not in members:
        return None
    if held is None:
        return f"{label} has no folder any more"
    if held.recovery.lost_tail:
        return f"{label} has lost records that were synced"
    if held.recovery.sync_had_failed:
        return f"{label} may have lost records in a failed fsync"
    return None


def off_line(logs: LogManager, image: MetadataImage, broker_id: int) -> list[TopicPartition]:
    """Return partitions that must not be created.

    They may be in a log directory that is off line, or their log has another format.
    """
    if logs.has_all and not logs.unread_count:
        return []
    found = []
    for topic in image.topics.values():
        for label, partition in zip(topic.topic_partitions(), topic.partitions, strict=True):
            is_here = broker_id in partition.replicas
            if is_here and logs.get(label) is None and _is_away(logs, label, partition, broker_id):
                found.append(label)
    return found


def not_waited_for(
    logs: LogManager,
    image: MetadataImage,
    broker_id: int,
    partitions: Iterable[TopicPartition],
) -> Iterator[tuple[TopicPartition, TopicImage, PartitionImage]]:
    """Return those partitions off line whose replicas may be made again here, by this image."""
    for label in partitions:
        topic, partition = image.topic(label.topic), image.partition(*label)
        if topic is None or partition is None or broker_id not in partition.replicas:
            continue
        if logs.get(label) is None and not _is_away(logs, label, partition, broker_id):
            yield label, topic, partition


def _is_away(
    logs: LogManager, label: TopicPartition, partition: PartitionImage, broker_id: int
) -> bool:
    """Whether a partition without a log here may have one, so that it must not be made again.

    One whose disk was exchanged is made again where others have all its committed records.
    """
    if logs.is_unread(label) or logs.has_all:
        return logs.is_unread(label)
    return not logs.has_replacements or not {*partition.isr, *partition.eligible} - {broker_id}


def miss_directories(logs: LogManager, image: MetadataImage, broker_id: int) -> None:
    """Say which log directories are missing; one without partitions may be removed.

    A partition of a missing directory must not be created again in another.
    """
    absent = off_line(logs, image, broker_id)
    if logs.missing and not logs.lost and not absent:
        logs.missing = frozenset()
    for directory_id in sorted(logs.missing):
        log.error(
            "the log directory with directory.id=%s is not in log.dirs: %d partitions are off "
            "line until it is, or their topics are deleted",
            *(directory_id, len(absent)),
        )


def _stray_reason(
    image: MetadataImage, topic_partition: TopicPartition, topic_id: TopicId | None
) -> str | None:
    """Return why the folder is a stray; None if it is not. `topic_id` None means unknown."""
    name, index = topic_partition
    topic = image.topic(name)
    if topic is None:
        return f"the metadata knows no topic {name}"
    if topic_id not in (None, topic.topic_id):
        return f"it is of topic id {topic_id}, and the topic {name} has the id {topic.topic_id}"
    if index >= len(topic.partitions):
        return f"the topic {name} has {len(topic.partitions)} partitions"
    return None
