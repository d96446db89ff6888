"""Compares a broker whose clients have all gone with what must have become of it.

`described` is what a stop in order and a start must not change. `late` is asked after a week in
which the machine was suspended: everything that expires has to be gone by then, and the small files
of the log directory say what the logs do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from oncelog.broker.partitions.partition import Partition
from oncelog.core.ids import TopicPartition
from oncelog.simulation.components.log_checks import expired_count
from oncelog.simulation.disk import SimulatedDisk
from oncelog.simulation.observe import ObservedBroker
from oncelog.simulation.oracle.history import RawLog
from oncelog.storage.folder_names import STRAY_SUFFIX

__all__ = ["SLACK_MS", "Described", "changed_by_a_restart", "described", "late", "unfinished_in"]

SLACK_MS = 4_000
"""Longer than any interval of the background work of simulated brokers."""
BACK_FOR_MS = 60_000
"""Longer than a machine that came back after a week is watched."""
NONE = -1
LEFTOVERS = (".deleted", ".cleaned", ".swap", ".tmp", "-delete", "-future")
Described = Mapping[TopicPartition, tuple[tuple[object, ...], tuple[object, ...]]]
"""Of each partition: the extent of its log, and what follows from it."""


def described(broker: ObservedBroker) -> Described:
    """Describe all partitions that are in use and have no other replica, which goes on alone."""
    return {
        partition.topic_partition: (_extent(partition), _meaning(partition))
        for partition in broker.partitions
        if partition.log.failure is None and len(partition.state.replicas) < 2
    }


def _extent(partition: Partition) -> tuple[object, ...]:
    held = partition.log
    bases = tuple(held.segment_base_offsets)
    return held.log_start_offset, held.log_end_offset, bases, held.size_bytes


def _meaning(partition: Partition) -> tuple[object, ...]:
    held = partition.log
    end = held.log_end_offset
    producers = [
        (e.producer_id, e.epoch, e.coordinator_epoch, e.transaction_first_offset, tuple(e.batches))
        for e in held.producers.entries()
    ]
    return (
        partition.state.topic_id,
        partition.state.high_watermark,
        partition.last_stable_offset,
        sorted(producers, key=lambda each: each[0]),
        held.aborted_transactions(0, end),
        held.offset_for_timestamp(None),
    )


def changed_by_a_restart(
    before: Described, after: Described
) -> Iterator[tuple[TopicPartition, str, str]]:
    """Yield what a stop and a start changed; a log may have grown or been cleaned since."""
    for label, (extent, meaning) in before.items():
        now = after.get(label)
        if now is None:
            continue  # Its topic was deleted, or its folder is off line: others look for that.
        if now[0] == extent and now[1] != meaning:
            yield label, "what a clean stop kept", f"{now[1]}, not {meaning}"
        elif now[0] != extent and now[0][:2] < extent[:2]:
            yield label, "what a clean stop kept", f"the log is {now[0]}, not {extent}"


def unfinished_in(disk: SimulatedDisk, directory: str) -> frozenset[str]:
    """Return the paths whose names say that something is under way with them.

    What stands aside as a stray is left as it was found (D14).
    """
    names = [name for name in disk.names(directory) if not name.endswith(STRAY_SUFFIX)]
    folders = [f"{directory}/{name}" for name in names]
    paths = [*folders, *(f"{folder}/{name}" for folder in folders for name in disk.names(folder))]
    return frozenset(path for path in paths if path.endswith(LEFTOVERS))


def late(
    broker: ObservedBroker,
    disk: SimulatedDisk,
    directory: str,
    now_ms: int,
    unfinished: frozenset[str],
) -> Iterator[tuple[TopicPartition, str, str]]:
    """Yield what should be gone, and what the small files have wrong.

    `unfinished` is what was under way before the week and at each look since. A cleaner that may
    copy few bytes a second is at work still.
    """
    cleaned = tuple(f"{held.directory}/" for held in broker.partitions.cleaner.in_progress)
    partitions = [p for p in broker.partitions if p.log.failure is None]
    for partition in partitions:
        held, label = partition.log, partition.topic_partition
        for entry in held.producers.entries():
            # A transaction that was open, or owed a marker, ends when the machine is back.
            is_idle = entry.last_timestamp_ms < now_ms - BACK_FOR_MS
            if entry.transaction_first_offset == NONE and is_idle:
                yield label, "a producer's expiry", f"{entry.producer_id} is still known"
        raw = RawLog()
        path = held.directory
        raw.read(disk.names(path), lambda name, path=path: disk.peek(f"{path}/{name}") or b"")  # type: ignore[misc]
        high_watermark = partition.state.high_watermark
        if expired_count(raw, held, now_ms - SLACK_MS, high_watermark):
            yield label, "retention", f"{held.segment_base_offsets} are older than {held.config}"
    for name in sorted(name for name in unfinished if not name.startswith(cleaned)):
        yield TopicPartition("", NONE), "a file", f"{name} should be gone"
    yield from _checkpoints(partitions, lambda name: disk.peek(f"{directory}/{name}") or b"")


def _checkpoints(
    partitions: Iterable[Partition], read: Callable[[str], bytes]
) -> Iterator[tuple[TopicPartition, str, str]]:
    """Compare the checkpoints, which have been written since anything changed."""
    noted = {
        name: _offsets(read(f"{name}-offset-checkpoint"))
        for name in ("recovery-point", "log-start", "replication")
    }
    for partition in partitions:
        held, label = partition.log, partition.topic_partition
        for name, offset in (
            ("recovery-point", held.recovery_point),
            ("log-start", held.log_start_offset),
            ("replication", partition.state.high_watermark),
        ):
            if noted[name].get(label, 0) != offset:
                yield label, "a checkpoint", f"{name} is {noted[name].get(label)}, not {offset}"
        active = held.segment_base_offsets[-1]
        if held.recovery_point < active:
            yield label, "a checkpoint", f"{held.recovery_point} is synced, sealed below {active}"


def _offsets(content: bytes) -> dict[TopicPartition, int]:
    lines = (line.split() for line in content.decode().split("\n")[2:] if line)
    return {TopicPartition(topic, int(index)): int(offset) for topic, index, offset in lines}
