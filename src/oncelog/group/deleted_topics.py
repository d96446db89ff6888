"""The offsets of topics that are gone: found, and deleted a bounded batch at a time.

Topic ids are identity, names are labels (D9): a topic made again under its name inherits nothing.
Every offset that we write carries its topic's id, so a fetch that knows the id never serves one of
an earlier topic; what happens here also frees the memory and the log of it.

Three things may come between a deletion and the tombstones, and none leaves an offset behind:

- a crash, or a deletion while the partition was being loaded: `TopicsKnown`, which comes after each
  load, names the topics that there are, and so proves that an offset of another id under such a
  name is of a topic that was deleted;
- more offsets than fit into one append: the rest goes on with the next tick;
- an append that failed, or a commit that is still on its way to the log: it is tried again with the
  next sweep.

Nothing is deleted by inference (D14): an offset whose topic's name is unknown after a load stays,
unserved to any other topic, since a damaged metadata store looks alike. So does a record without a
topic id (a format before version 4), which goes when the topic of that name is deleted.
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
    """Decide what becomes of the offsets of deleted topics."""
    match event:
        case TopicDeleted():
            return topic_deleted(store, event)
        case TopicsKnown():
            return topics_known(store, event)
        case RemoveOffsets():
            return _remove(store, event.leftovers)


def topic_deleted(store: GroupStore, event: TopicDeleted) -> GroupDecision:
    """Delete the offsets of a topic that is gone, in all groups.

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
    """Look for offsets of topics that are gone. What is found is deleted from the next tick on."""
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
    """Write as many tombstones as one append may hold, and plan the rest."""
    batch = BatchBudget(store.config.append_bytes_max)
    tombstones = []
    undecided = []
    remaining = iter(leftovers)
    for leftover in remaining:
        group_id, partition, topic_ids = leftover
        if store.offsets.is_in_flight(group_id, partition):
            # A tombstone would stand behind that commit and delete it, whosever it is. Without an
            # id it may be of the newer topic.
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
            # A transaction holds an offset of the newer topic, which a tombstone would delete too.
            undecided.append(leftover)
    if undecided:
        store.retries.append(RemoveOffsets(tuple(undecided)))
    return Decision(tuple(tombstones))


def _all(store: GroupStore) -> Iterator[tuple[str, TopicPartition]]:
    for group_id in store.offsets.group_ids():
        for partition in store.offsets.partitions(group_id):
            yield group_id, partition


def _values(store: GroupStore, group_id: str, partition: TopicPartition) -> list[CommittedOffset]:
    """What is committed for the partition, and what open transactions hold."""
    values = list(store.offsets.pending.values(group_id, partition))
    committed = store.offsets.get(group_id, partition)
    if committed is not None:
        values.append(committed)
    return values
