"""Deletes the offsets of deleted topics, a bounded batch at a time.

Topic ids identify topics (D9): a topic created again under its name inherits no offsets. Every
offset that we write carries its topic's id, so a fetch with the id never returns one of an earlier
topic; deleting them also frees memory and log space.

Three cases delay tombstones, and none leaves an offset behind:

- a crash, or a deletion while the partition was being loaded: the metadata names a deletion until
  no coordinator has an offset of its topic (`find`), and `TopicsDeleted` follows each load.
- more offsets than fit into one append: the next tick continues.
- a failed append, or a commit in flight: the next sweep tries again.

Nothing is deleted by inference (D14): an offset goes only with a topic id that the metadata names
deleted. One with another id than the topic of its name has stays, unused by any other topic: the
metadata may be a change behind, or restored. A record without a topic id (a format before version
4) is deleted with the topic of that name, unless there is a newer one, whose it may be.
"""

from collections.abc import Iterable, Iterator

from oncelog.coordinator.shard import Decision, EventContext, reply_at_once
from oncelog.core.ids import TopicPartition
from oncelog.group.decision import GroupDecision
from oncelog.group.events import (
    ZERO_TOPIC_ID,
    FindDeletedOffsets,
    Leftover,
    RemoveOffsets,
    TopicsDeleted,
)
from oncelog.group.offset_values import CommittedOffset
from oncelog.group.records import BatchBudget, offset_tombstone
from oncelog.group.replies import DeletedOffsetsReply
from oncelog.group.store import GroupStore

RETRIED = (TopicsDeleted, RemoveOffsets)
"""Events that are submitted again with the next sweep if their append failed."""


def decide(
    store: GroupStore,
    event: TopicsDeleted | FindDeletedOffsets | RemoveOffsets,
    context: EventContext,
) -> GroupDecision:
    """Decide an event about the offsets of deleted topics."""
    match event:
        case TopicsDeleted():
            return _remove(store, _leftovers(store, event))
        case FindDeletedOffsets():
            return find(store, event, context)
        case RemoveOffsets():
            return _remove(store, event.leftovers)


def find(store: GroupStore, event: FindDeletedOffsets, context: EventContext) -> GroupDecision:
    """Return the deleted topics of which there are offsets, also in flight."""
    names = set()
    for group_id, partition in _all(store):
        topic_ids = event.topic_ids.get(partition.topic)
        if topic_ids is None or partition.topic in names:
            continue
        in_flight = store.offsets.is_in_flight(group_id, partition)
        values = _values(store, group_id, partition)
        if in_flight or any(value.topic_id in topic_ids for value in values):
            names.add(partition.topic)
    return reply_at_once(context, DeletedOffsetsReply(frozenset(names)))


def _leftovers(store: GroupStore, event: TopicsDeleted) -> Iterator[Leftover]:
    """Yield the offsets of these topics, in all groups; not those of newer topics."""
    for group_id, partition in _all(store):
        topic_ids = event.topic_ids.get(partition.topic)
        if topic_ids is not None:
            yield Leftover(group_id, partition, topic_ids)


def _remove(store: GroupStore, leftovers: Iterable[Leftover]) -> GroupDecision:
    """Write as many tombstones as fit into one append, and plan the rest."""
    batch = BatchBudget(store.config.append_bytes_max)
    tombstones = []
    undecided = []
    remaining = iter(leftovers)
    for leftover in remaining:
        group_id, partition, topic_ids = leftover
        if store.offsets.is_in_flight(group_id, partition):
            # A tombstone would follow that commit in the log and delete it. Without an id the
            # commit may belong to the newer topic.
            undecided.append(leftover._replace(topic_ids=topic_ids - {ZERO_TOPIC_ID}))
            continue
        found = {value.topic_id for value in _values(store, group_id, partition)}
        if found and found <= topic_ids:
            tombstone = offset_tombstone(group_id, partition)
            if not batch.take(tombstone):
                store.due.append(RemoveOffsets((leftover, *remaining)))
                break
            tombstones.append(tombstone)
        elif found & topic_ids:
            # A transaction has an offset of the newer topic, which a tombstone would delete too.
            undecided.append(leftover)
    if undecided:
        store.retries.append(RemoveOffsets(tuple(undecided)))
    return Decision(tuple(tombstones))


def _all(store: GroupStore) -> Iterator[tuple[str, TopicPartition]]:
    for group_id in store.offsets.group_ids():
        for partition in store.offsets.partitions(group_id):
            yield group_id, partition


def _values(store: GroupStore, group_id: str, partition: TopicPartition) -> list[CommittedOffset]:
    """Return the partition's committed offset, and those in open transactions."""
    values = list(store.offsets.pending.values(group_id, partition))
    committed = store.offsets.get(group_id, partition)
    if committed is not None:
        values.append(committed)
    return values
