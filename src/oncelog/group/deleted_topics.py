"""Deletes the offsets of deleted topics, a bounded batch at a time.

Topic ids identify topics (D9): a topic created again under its name inherits no offsets. Every
offset that we write carries its topic's id, so a fetch with the id never returns one of an earlier
topic; deleting them also frees memory and log space.

Three cases delay tombstones, and none leaves an offset behind:

- a crash, or a deletion while the partition was being loaded: `TopicsKnown`, which follows each
  load, lists the existing topics. An offset with another id under such a name belongs to a deleted
  topic.
- more offsets than fit into one append: the next tick continues.
- a failed append, or a commit in flight: the next sweep tries again.

Nothing is deleted by inference (D14): an offset whose topic name is unknown after a load stays,
unused by any other topic, since a damaged metadata store looks alike. So does a record without a
topic id (a format before version 4); it is deleted with the topic of that name.
"""

from collections.abc import Iterable, Iterator

from oncelog.coordinator.shard import NOTHING, Decision
from oncelog.core.ids import TopicPartition
from oncelog.group.decision import GroupDecision
from oncelog.group.events import ZERO_TOPIC_ID, Leftover, RemoveOffsets, TopicDeleted, TopicsKnown
from oncelog.group.offset_values import CommittedOffset
from oncelog.group.records import BatchBudget, offset_tombstone
from oncelog.group.store import GroupStore

RETRIED = (TopicDeleted, RemoveOffsets)
"""Events that are submitted again with the next sweep if their append failed."""


def decide(store: GroupStore, event: TopicDeleted | TopicsKnown | RemoveOffsets) -> GroupDecision:
    """Decide an event about the offsets of deleted topics."""
    match event:
        case TopicDeleted():
            return topic_deleted(store, event)
        case TopicsKnown():
            return topics_known(store, event)
        case RemoveOffsets():
            return _remove(store, event.leftovers)


def topic_deleted(store: GroupStore, event: TopicDeleted) -> GroupDecision:
    """Delete the offsets of a deleted topic, in all groups.

    Not those of a newer topic of that name.
    """
    topic_ids = frozenset((event.topic_id, ZERO_TOPIC_ID))
    leftovers = (
        Leftover(group_id, partition, topic_ids)
        for group_id, partition in _all(store)
        if partition.topic == event.topic
    )
    return _remove(store, leftovers)


def topics_known(store: GroupStore, event: TopicsKnown) -> GroupDecision:
    """Find offsets of deleted topics. The next ticks delete them."""
    found = []
    for group_id, partition in _all(store):
        current = event.topics.get(partition.topic)
        if current is None:
            continue
        known = {current, ZERO_TOPIC_ID}
        gone = {value.topic_id for value in _values(store, group_id, partition)} - known
        if gone:
            found.append(Leftover(group_id, partition, frozenset(gone)))
    if found:
        store.due.append(RemoveOffsets(tuple(found)))
    return NOTHING


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
