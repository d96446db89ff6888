"""Compares the folders found at the start with the metadata (D14).

`uncertain_logs` returns where a new leader epoch has to begin before the broker serves.

A folder is deleted only if the metadata records that its topic was deleted: the broker crashed
before it had renamed it. Any other folder that the metadata does not know is a stray and is set
aside.
"""

from __future__ import annotations

import logging
from collections.abc import Set

from oncelog.controller.image import MetadataImage
from oncelog.core.ids import NO_LEADER_EPOCH, TopicId, TopicPartition
from oncelog.runtime.disk import StorageFailure
from oncelog.storage.log_manager import LogManager

__all__ = ["confirmable", "off_line", "sort_out", "uncertain_logs"]

log = logging.getLogger(__name__)


def sort_out(logs: LogManager, image: MetadataImage) -> None:
    """Finish recorded deletions and set strays aside, before any log is opened. Blocking."""
    deleted = {topic_id for ids in image.deleted.values() for topic_id in ids}
    for topic_partition in logs:
        try:
            _sort(logs, image, deleted, topic_partition)
        except StorageFailure as failure:
            logs.take_off_line(failure)
            if not logs.online:
                raise


def _sort(
    logs: LogManager, image: MetadataImage, deleted: Set[TopicId], topic_partition: TopicPartition
) -> None:
    topic_id = logs.topic_id(topic_partition)
    if topic_id in deleted:
        log.info("removing the folder of %s: topic %s was deleted", topic_partition, topic_id)
        logs.delete(topic_partition)
        return
    reason = _stray_reason(image, topic_partition, topic_id)
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


def uncertain_logs(
    logs: LogManager, image: MetadataImage, broker_id: int
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the partitions led here that may have lost acknowledged records.

    Called once the logs are open. Maps them to the newest leader epoch of each log, -1 where there
    is none, and to the log's end.
    """
    found = {}
    for topic in image.topics.values():
        for label, partition in zip(topic.topic_partitions(), topic.partitions, strict=True):
            if partition.leader == broker_id:
                held = logs.get(label)
                if held is None and (logs.is_unread(label) or not logs.has_all):
                    continue
                latest = held.latest_epoch if held is not None else NO_LEADER_EPOCH
                if not logs.is_whole(label) or latest > partition.leader_epoch:
                    found[label] = latest, 0 if held is None else held.log_end_offset
    return found


def off_line(logs: LogManager, image: MetadataImage, broker_id: int) -> list[TopicPartition]:
    """Return partitions that must not be created.

    They may be in a log directory that is off line, or their log has another format.
    """
    has_all = logs.has_all
    if has_all and not logs.unread_count:
        return []
    found = []
    for topic in image.topics.values():
        for label, partition in zip(topic.topic_partitions(), topic.partitions, strict=True):
            is_here = broker_id in partition.replicas
            if is_here and logs.get(label) is None and (logs.is_unread(label) or not has_all):
                found.append(label)
    return found


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
