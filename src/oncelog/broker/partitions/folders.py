"""Makes the folders of new partitions, deletes those of old ones. Blocking but for one function."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from oncelog.broker.partitions.partition import Partition
from oncelog.controller.image import TopicImage
from oncelog.core.ids import TopicId, TopicPartition
from oncelog.runtime.disk import Disk, StorageFailure
from oncelog.storage import LogConfig, PartitionLog
from oncelog.storage.log_manager import LogManager

__all__ = [
    "FolderWork",
    "Intake",
    "Made",
    "delete_logs",
    "make_in_turn",
    "make_logs",
    "removed_logs",
]

Made: TypeAlias = dict[TopicPartition, PartitionLog]


class Intake(NamedTuple):
    """A topic with partitions that are to be served here."""

    topic: TopicImage
    config: LogConfig
    new: list[TopicPartition]


class FolderWork(NamedTuple):
    """What a step of the metadata leaves to do in the folders."""

    deleted: list[TopicImage]
    wanted: dict[TopicId, frozenset[int]]
    """By topic the numbers of the partitions that are not served yet."""
    removed: dict[TopicId, frozenset[int]]
    """By topic the numbers of the partitions that have no replica here any more, but a log."""
    cut: list[Partition]
    """Those that this broker leads once their logs are cut."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.deleted or self.wanted or self.removed or self.cut)

    @property
    def unserved(self) -> dict[TopicId, frozenset[int]]:
        """By topic the numbers of all that is not served before this is done."""
        numbers = dict(self.wanted)
        for partition in self.cut:
            topic_id, number = partition.state.topic_id, partition.topic_partition.partition
            numbers[topic_id] = numbers.get(topic_id, frozenset()) | {number}
        return numbers


def removed_logs(
    logs: LogManager, broker_id: int, topic: TopicImage, numbers: Iterable[int]
) -> list[TopicPartition]:
    """Return those of these partitions that are noted as removed from a broker, and have a log."""
    labels = [topic.label(n) for n in numbers if broker_id in topic.partitions[n].removed]
    return [label for label in labels if logs.topic_id(label) == topic.topic_id]


async def make_in_turn(
    logs: LogManager,
    intakes: Sequence[Intake],
    disk: Disk,
    now_ms: int,
    on_failure: Callable[[StorageFailure], None],
) -> list[Made | StorageFailure]:
    """Make the logs in the executor, each topic's in a log directory that has not failed."""
    made: list[Made | StorageFailure] = [{} for _ in intakes]
    wanted = [index for index, one in enumerate(intakes) if one.new]
    while wanted:
        work = partial(make_logs, logs, [intakes[index] for index in wanted])
        results = await disk.run(partial(work, now_ms))
        again = []
        for index, result in zip(wanted, results, strict=True):
            made[index] = result
            if isinstance(result, StorageFailure) and not result.refused and logs.online:
                on_failure(result)
                if not any(map(logs.is_off_line, intakes[index].new)):
                    again.append(index)
        wanted = again
    return made


def make_logs(
    logs: LogManager, intakes: Iterable[Intake], now_ms: int
) -> list[Made | StorageFailure]:
    """Return the logs of each topic's new partitions, or why they are not made."""
    results: list[Made | StorageFailure] = []
    for one in intakes:
        try:
            results.append(_of_topic(logs, one, now_ms))
        except StorageFailure as failure:
            results.append(failure)
    return results


def _of_topic(logs: LogManager, intake: Intake, now_ms: int) -> Made:
    """Find or create the logs of the partitions: all of them, or none."""
    topic_id = intake.topic.topic_id
    made: Made = {}
    fresh: list[TopicPartition] = []
    try:
        for label in intake.new:
            held = logs.get(label)
            if held is not None and logs.topic_id(label) not in (None, topic_id):
                logs.set_aside(label, f"it is of another topic, {logs.topic_id(label)}")
                held = None
            made[label] = logs.create(label, topic_id, intake.config, now_ms)
            if held is None:
                fresh.append(label)
    except StorageFailure:
        for label in fresh:
            with contextlib.suppress(StorageFailure):
                logs.undo(label)
        raise
    return made


def delete_logs(
    logs: LogManager, doomed: Iterable[TopicPartition]
) -> tuple[list[str], list[StorageFailure]]:
    """Rename folders as deleted; return their new paths, and why others could not be renamed.

    The next start finds these: the metadata keeps the note of their deletion.
    """
    paths: list[str] = []
    failures: list[StorageFailure] = []
    for label in doomed:
        try:
            path = logs.delete(label)
        except StorageFailure as failure:
            failures.append(failure)
        else:
            paths += [] if path is None else [path]
    return paths, failures
