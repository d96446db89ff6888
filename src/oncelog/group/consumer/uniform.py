"""The `uniform` assignor: balance first, then as few moves as possible.

Where all members subscribe to the same topics, their partition counts differ by one at most.
Otherwise a partition moves as long as that narrows the gap between two members that both subscribe
to its topic. Chains of moves over several topics are not searched, so the result may be worse than
the optimum, as Kafka's is.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final
from uuid import UUID

from oncelog.group.consumer.members import Partitions, TopicIdPartition

_ROUNDS_MAX: Final = 16
"""Rounds of balancing over all topics; usually one round, and another without moves."""

Topics = frozenset[UUID]


def assign_uniformly(
    wanted: Mapping[str, Topics],
    current: Mapping[str, Partitions],
    partition_counts: Mapping[UUID, int],
) -> dict[str, Partitions]:
    """Return each member's partitions, from its subscription and its previous target."""
    if len(set(wanted.values())) == 1:
        return _assign_equals(current, next(iter(wanted.values())), partition_counts)
    return _Mixed(wanted, current, partition_counts).assign()


def _assign_equals(
    current: Mapping[str, Partitions], topics: Topics, partition_counts: Mapping[UUID, int]
) -> dict[str, Partitions]:
    """Assign equal shares to members with equal subscriptions; each keeps what it can."""
    everything = sorted(
        TopicIdPartition(topic_id, number)
        for topic_id in topics
        for number in range(partition_counts[topic_id])
    )
    share, extra = divmod(len(everything), len(current))
    valid = frozenset(everything)
    kept: dict[str, list[TopicIdPartition]] = {}
    taken: set[TopicIdPartition] = set()
    # Members above the share keep one of the extra partitions, while there are any.
    quotas = {}
    for member_id in sorted(current):
        mine = sorted((current[member_id] & valid) - taken)
        quotas[member_id] = share
        if len(mine) > share and extra > 0:
            quotas[member_id] += 1
            extra -= 1
        kept[member_id] = mine[: quotas[member_id]]
        taken.update(kept[member_id])
    for member_id in kept:
        if quotas[member_id] == share and extra > 0:
            quotas[member_id] += 1
            extra -= 1
    free = iter([each for each in everything if each not in taken])
    for member_id, mine in kept.items():
        missing = quotas[member_id] - len(mine)
        mine.extend(each for _, each in zip(range(missing), free, strict=False))
    return {member_id: frozenset(mine) for member_id, mine in kept.items()}


class _Mixed:
    """Assigns partitions to members with different subscriptions."""

    def __init__(
        self,
        wanted: Mapping[str, Topics],
        current: Mapping[str, Partitions],
        partition_counts: Mapping[UUID, int],
    ) -> None:
        self._counts = partition_counts
        self._load = dict.fromkeys(sorted(wanted), 0)
        self._subscribers: dict[UUID, list[str]] = defaultdict(list)
        for member_id in self._load:
            for topic_id in wanted[member_id]:
                self._subscribers[topic_id].append(member_id)
        self._owners: dict[TopicIdPartition, str] = {}
        for member_id in self._load:
            for partition in sorted(current[member_id]):
                topic_id, number = partition
                if topic_id in wanted[member_id] and number < partition_counts[topic_id]:
                    self._give(partition, member_id)

    def assign(self) -> dict[str, Partitions]:
        topics = sorted(self._subscribers, key=self._rank)
        for topic_id in topics:
            self._fill(topic_id)
        for _ in range(_ROUNDS_MAX):
            # Every topic is processed, so `any`, which stops at the first, does not fit.
            if not sum(self._balance(topic_id) for topic_id in topics):
                break
        mine: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in self._load}
        for partition, member_id in self._owners.items():
            mine[member_id].add(partition)
        return {member_id: frozenset(partitions) for member_id, partitions in mine.items()}

    def _rank(self, topic_id: UUID) -> tuple[float, int, UUID]:
        """Return a topic's rank: most partitions per subscriber first: they have least choice."""
        subscriber_count = len(self._subscribers[topic_id])
        return -self._counts[topic_id] / subscriber_count, subscriber_count, topic_id

    def _give(self, partition: TopicIdPartition, member_id: str) -> None:
        """Make the member the owner, and subtract the partition from the previous owner."""
        before = self._owners.get(partition)
        if before is not None:
            self._load[before] -= 1
        self._owners[partition] = member_id
        self._load[member_id] += 1

    def _partitions(self, topic_id: UUID) -> Iterable[TopicIdPartition]:
        return (TopicIdPartition(topic_id, number) for number in range(self._counts[topic_id]))

    def _fill(self, topic_id: UUID) -> None:
        """Assign each partition without an owner to the subscriber with the fewest."""
        least = [(self._load[each], each) for each in self._subscribers[topic_id]]
        heapify(least)
        for partition in self._partitions(topic_id):
            if partition not in self._owners:
                load, member_id = heappop(least)
                self._give(partition, member_id)
                heappush(least, (load + 1, member_id))

    def _balance(self, topic_id: UUID) -> int:
        """Move partitions from subscribers with most to those with fewest; return how many."""
        owned: dict[str, list[TopicIdPartition]] = defaultdict(list)
        for partition in self._partitions(topic_id):
            owned[self._owners[partition]].append(partition)
        least = [(self._load[each], each) for each in self._subscribers[topic_id]]
        most = [(-self._load[each], each) for each in owned]
        heapify(least)
        heapify(most)
        moved = 0
        while most:
            _, giver = heappop(most)
            _, taker = least[0]
            if self._load[giver] - self._load[taker] <= 1:
                break
            # Loads only come closer: who has given never takes, nor the other way round.
            self._give(owned[giver].pop(), taker)
            moved += 1
            heapreplace(least, (self._load[taker], taker))
            if owned[giver]:
                heappush(most, (-self._load[giver], giver))
        return moved
