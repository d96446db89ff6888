"""An operator who moves replicas, elects leaders, and makes topics, while clients go on.

It gives partitions other replicas (one more, one fewer, another one, another order, all others),
cancels, takes all that a broker has away from it, gives internal topics more replicas, elects
preferred leaders (others where that is allowed), and makes and grows topics with places of its
own choice. Each request is sent once, to any broker, and is recorded before it is sent, its outcome
only with an answer that is final. What cannot be has to be refused.

Parameters: `flavor`, `topics`, `brokers` (3), `fewest` (1) and `most` (3) replicas, `unclean`
(False), `own` (topics that it makes and grows, ()), `pace_ms` (300).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from oncelog.client import requests
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import INTERNAL_TOPICS, TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fields import RequestFor, ResponseT
from oncelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from oncelog.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from oncelog.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from oncelog.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from oncelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from oncelog.protocol.messages.unregister_broker import UnregisterBrokerRequest
from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import TopicChanged, TopicChanging
from oncelog.simulation.history_cluster import (
    BrokerDrained,
    ReassignmentAnswered,
    ReassignmentAsked,
)
from oncelog.simulation.peers.flavors import FLAVORS
from oncelog.simulation.peers.wire import Address, LostError, PeerWire

__all__ = ["run"]

Replicas = tuple[int, ...]
Wanted = dict[TopicPartition, Replicas | None]

NO_BROKER: Final = 99
PREFERRED: Final = 0
UNCLEAN: Final = 1
PARTITIONS_MAX: Final = 4
_FINAL: Final = frozenset(
    {
        ErrorCode.none,
        ErrorCode.no_reassignment_in_progress,
        ErrorCode.invalid_replica_assignment,
        ErrorCode.unknown_topic_or_partition,
    }
)
"""The answers of a controller that has decided; after any other it may still decide."""
_FORGOTTEN: Final = frozenset(
    # It has come back.
    {ErrorCode.none, ErrorCode.invalid_request, ErrorCode.broker_id_not_registered}
)
_EXPECTED: Final = {
    ApiKey.ELECT_LEADERS: {
        ErrorCode.election_not_needed,
        ErrorCode.preferred_leader_not_available,
        ErrorCode.eligible_leaders_not_available,
        ErrorCode.unknown_topic_or_partition,
    },
    ApiKey.CREATE_PARTITIONS: {
        ErrorCode.invalid_partitions,
        ErrorCode.invalid_replica_assignment,
        ErrorCode.unknown_topic_or_partition,
    },
    ApiKey.CREATE_TOPICS: {
        ErrorCode.topic_already_exists,
        ErrorCode.invalid_replica_assignment,
    },
}
"""Errors of requests that can be right, but for a moment or an earlier try."""


async def run(context: ClientContext) -> None:
    """Do one thing after the other until told to stop, then see whether all is described."""
    operator = _Operator(context)
    while not context.stopping():
        await context.pause(0, 2 * float(context.get("pace_ms", 300)))
        await operator.act()
    attempt = 0
    while not (await operator.look() and await operator.forget()):
        await context.back_off(attempt)
        attempt += 1
    operator.close()
    context.progress("settled")


class _Operator:
    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._rng = context.rng
        self._wire = PeerWire(context, FLAVORS[context.get("flavor", "java")])
        self._topics: list[str] = [*sorted(context.get("topics", ("t",))), *sorted(INTERNAL_TOPICS)]
        self._own: Sequence[str] = context.get("own", ())
        self._fewest, self._most = int(context.get("fewest", 1)), int(context.get("most", 3))
        self._brokers: dict[int, Address] = {}
        self._placed: dict[TopicPartition, Replicas] = {}
        self._open: dict[TopicPartition, Replicas] = {}
        """The reassignments that were under way, and their goals."""
        self._acts: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self._move, 8),
            (self._cancel, 4),
            (self._drain, 1),
            (self._grow_internal, 1),
            (self._elect, 3),
            (self._make, 1),
            (self._grow, 2),
            (self._ask_for_the_impossible, 1),
        ]
        self._newcomer: int | None = context.parameters.get("newcomer")
        self._gone: int | None = context.parameters.get("gone")
        if self._newcomer is not None:
            self._acts.append((self._fill, 8))
        self._drains_from_s = context.now_s() + float(context.get("drains_after_s", 0.0))
        self._is_drained = False
        """Whether it has said that its broker has no replica."""

    def close(self) -> None:
        self._wire.close()

    async def act(self) -> None:
        """Look, and do one thing."""
        if not await self.look():
            return
        if self._gone is not None and self._context.now_s() >= self._drains_from_s:
            await self._take_away(self._gone)
            return
        acts, weights = zip(*self._acts, strict=True)
        await self._rng.choices(acts, weights)[0]()

    # --- what there is

    async def look(self) -> bool:
        """Ask for all topics, and for all reassignments; return whether both were told."""
        names = [*self._topics, *self._own]
        answer = await self._ask(ApiKey.METADATA, requests.metadata_request(names, create=False))
        listed = await self._ask(
            ApiKey.LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest(timeout_ms=5_000)
        )
        if answer is None or listed is None or listed.error_code is not ErrorCode.none:
            return False
        self._brokers = {n.node_id: (n.host, n.port) for n in requests.nodes_of(answer)}
        self._placed = {
            TopicPartition(name, part.index): part.replicas
            for name, error, description in requests.topics_of(answer)
            if error is ErrorCode.none
            for part in description.partitions
        }
        self._open = {}
        for topic in listed.topics:
            for part in topic.partitions:
                label = TopicPartition(topic.name, part.partition_index)
                adding, removing = {*part.adding_replicas}, {*part.removing_replicas}
                if not set() < adding | removing <= {*part.replicas}:
                    self._context.stuck(f"a reassignment of {label} is told as {part}")
                self._open[label] = tuple(b for b in part.replicas if b not in removing)
        return bool(self._brokers)

    def _staying(self, label: TopicPartition) -> Replicas:
        return self._open.get(label, self._placed[label])

    # --- moves

    async def _move(self) -> None:
        """Give one to three partitions other replicas."""
        labels = sorted(label for label in self._placed if label.topic not in INTERNAL_TOPICS)
        count = min(self._rng.choice((1, 1, 2, 3)), len(labels))
        chosen = self._rng.sample(labels, count)
        wanted: Wanted = {label: self._drawn(self._staying(label)) for label in chosen}
        await self._reassign(wanted)

    def _drawn(self, replicas: Replicas) -> Replicas:
        rng = self._rng
        all_of_them = range(int(self._context.get("brokers", 3)))
        live = sorted(self._brokers) if rng.random() < 0.9 else [*all_of_them]
        others = [broker for broker in live if broker not in replicas]
        after = list(replicas)
        manner = rng.choice(("another", "another", "more", "fewer", "fewer", "order", "anew"))
        if manner == "another" and others:
            after[rng.randrange(len(after))] = rng.choice(others)
        elif manner == "more" and others and len(after) < self._most:
            after.insert(rng.randint(0, len(after)), rng.choice(others))
        elif manner == "fewer" and len(after) > self._fewest:
            del after[rng.randrange(len(after))]
        elif manner == "anew" and len(live) >= self._fewest:
            count = rng.randint(self._fewest, min(self._most, len(live)))
            after = rng.sample(live, count)
        else:
            rng.shuffle(after)
        return tuple(after)

    async def _cancel(self) -> None:
        """Cancel some of what is under way; now and then where nothing is."""
        labels = sorted(self._open) if self._rng.random() < 0.9 else sorted(self._placed)
        if labels:
            chosen = self._rng.sample(labels, min(self._rng.choice((1, 1, 3)), len(labels)))
            await self._reassign(dict.fromkeys(chosen))

    async def _drain(self) -> None:
        """Take away all that a broker has, where another one can have it."""
        await self._give_away(self._rng.randrange(int(self._context.get("brokers", 3))))

    async def _give_away(self, gone: int) -> None:
        wanted: Wanted = {}
        for label in sorted(self._placed):
            replicas = self._staying(label)
            others = [broker for broker in sorted(self._brokers) if broker not in (*replicas, gone)]
            if gone in replicas and others:
                taken = self._rng.choice(others)
                wanted[label] = tuple(taken if each == gone else each for each in replicas)
        if wanted:
            await self._reassign(wanted)

    async def _fill(self) -> None:
        """Give partitions to the broker that has come late."""
        late = self._newcomer
        if late is None or late not in self._brokers:
            return
        labels = [label for label in sorted(self._placed) if late not in self._staying(label)]
        wanted: Wanted = {}
        for label in self._rng.sample(labels, min(3, len(labels))):
            after = [*self._staying(label)]
            after[self._rng.randrange(len(after))] = late
            wanted[label] = tuple(after)
        if wanted:
            await self._reassign(wanted)

    async def _take_away(self, gone: int) -> None:
        """Drain a broker; say that it is drained, and have it forgotten once it is away."""
        if self._has_replicas(gone) or not self._placed:
            await self._give_away(gone)
        elif gone in self._brokers:
            self._is_drained = True
            self._context.record(BrokerDrained, gone)
        else:
            await self.forget()

    async def forget(self) -> bool:
        """Have the broker that was drained forgotten if it is away; return whether that is done.

        A broker that lags may show it a replica that the drained one has no more: it looks again.
        """
        gone = self._gone
        if gone is None or not self._is_drained or gone in self._brokers:
            return True
        if self._has_replicas(gone):
            return False
        request = UnregisterBrokerRequest(broker_id=gone)
        answer = await self._ask(ApiKey.UNREGISTER_BROKER, request)
        return answer is not None and answer.error_code in _FORGOTTEN

    def _has_replicas(self, broker_id: int) -> bool:
        return any(broker_id in replicas for replicas in self._placed.values())

    async def _grow_internal(self) -> None:
        """Give the internal topics as many replicas as there may be."""
        wanted: Wanted = {}
        for label in sorted(self._placed):
            replicas = self._staying(label)
            others = [broker for broker in sorted(self._brokers) if broker not in replicas]
            missing = min(self._most - len(replicas), len(others))
            if label.topic in INTERNAL_TOPICS and missing > 0:
                wanted[label] = (*replicas, *self._rng.sample(others, missing))
        if wanted:
            await self._reassign(wanted)

    async def _reassign(self, wanted: Wanted) -> None:
        for label, replicas in wanted.items():
            self._context.record(ReassignmentAsked, label, replicas)
        answer = await self._ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, _reassignment(wanted))
        if answer is None or answer.error_code is not ErrorCode.none:
            return
        for topic in answer.responses:
            for part in topic.partitions:
                label = TopicPartition(topic.name, part.partition_index)
                error = part.error_code
                if error in _FINAL:
                    told = "" if error is ErrorCode.none else error.name
                    self._context.record(ReassignmentAnswered, label, wanted[label], told)
                elif not error.retriable:
                    self._context.stuck(f"a reassignment of {label} was answered {error.name}")

    async def _ask_for_the_impossible(self) -> None:
        if not self._placed:
            return
        label = self._rng.choice(sorted(self._placed))
        broker = self._placed[label][0]
        replicas = self._rng.choice(((), (NO_BROKER,), (broker, broker)))
        answer = await self._ask(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS, _reassignment({label: replicas})
        )
        if answer is None or answer.error_code is not ErrorCode.none:
            return
        error = answer.responses[0].partitions[0].error_code
        if error in _FINAL - {ErrorCode.unknown_topic_or_partition} and (
            error is not ErrorCode.invalid_replica_assignment
        ):
            self._context.stuck(f"replicas {replicas} of {label} were answered {error.name}")

    # --- leaders

    async def _elect(self) -> None:
        """Elect leaders in some partitions, or the preferred ones wherever it is needed."""
        is_unclean = bool(self._context.get("unclean", False)) and self._rng.random() < 0.4
        labels = sorted(self._placed)
        asked = None
        if labels and (is_unclean or self._rng.random() < 0.6):
            asked = tuple(
                TopicPartitions(topic=label.topic, partitions=(label.partition,))
                for label in self._rng.sample(labels, min(3, len(labels)))
            )
        request = ElectLeadersRequest(
            election_type=UNCLEAN if is_unclean else PREFERRED,
            topic_partitions=asked,
            timeout_ms=5_000,
        )
        answer = await self._ask(ApiKey.ELECT_LEADERS, request)
        if answer is not None:
            results = [one for t in answer.replica_election_results for one in t.partition_result]
            self._is_done(ApiKey.ELECT_LEADERS, [one.error_code for one in results])

    # --- topics

    def _places(self, count: int) -> list[Replicas]:
        """Draw replicas for new partitions, of one number."""
        live = sorted(self._brokers)
        factor = self._rng.randint(min(self._fewest, len(live)), min(self._most, len(live)))
        return [tuple(self._rng.sample(live, factor)) for _ in range(count)]

    async def _make(self) -> None:
        if not self._own or len(self._brokers) < self._fewest:
            return
        name, count = self._rng.choice(self._own), self._rng.randint(1, 2)
        assignments = tuple(
            CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
            for index, replicas in enumerate(self._places(count))
        )
        topic = CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=assignments
        )
        self._context.record(TopicChanging, name, "create")
        request = CreateTopicsRequest(topics=(topic,), timeout_ms=5_000)
        answer = await self._ask(ApiKey.CREATE_TOPICS, request)
        codes = [] if answer is None else [one.error_code for one in answer.topics]
        if self._is_done(ApiKey.CREATE_TOPICS, codes):
            self._context.record(TopicChanged, name, "create", count)

    async def _grow(self) -> None:
        """Add a partition, in places of its own choice or of the controller's."""
        counts = {
            name: sum(label.topic == name for label in self._placed)
            for name in self._own
            if TopicPartition(name, 0) in self._placed
        }
        small = [name for name, count in counts.items() if count < PARTITIONS_MAX]
        if not small or len(self._brokers) < self._fewest:
            return
        name = self._rng.choice(small)
        places = None
        if self._rng.random() < 0.7:
            places = tuple(CreatePartitionsAssignment(broker_ids=one) for one in self._places(1))
        grown = CreatePartitionsTopic(name=name, count=counts[name] + 1, assignments=places)
        self._context.record(TopicChanging, name, "partitions")
        request = CreatePartitionsRequest(topics=(grown,), timeout_ms=5_000)
        answer = await self._ask(ApiKey.CREATE_PARTITIONS, request)
        codes = [] if answer is None else [one.error_code for one in answer.results]
        if self._is_done(ApiKey.CREATE_PARTITIONS, codes):
            self._context.record(TopicChanged, name, "partitions", counts[name] + 1)

    # --- asking

    async def _ask(self, api: ApiKey, request: RequestFor[ResponseT]) -> ResponseT | None:
        """Ask any broker; None without an answer."""
        known = sorted(self._brokers.values())
        to = self._rng.choice(known) if known and self._rng.random() < 0.7 else None
        try:
            return await self._wire.ask(api, request, to=to)
        except LostError:
            return None

    def _is_done(self, api: ApiKey, codes: Sequence[ErrorCode]) -> bool:
        """Return whether an answer means that the request took effect."""
        failed = [code for code in codes if code is not ErrorCode.none]
        for code in failed:
            if not code.retriable and code not in _EXPECTED[api]:
                self._context.stuck(f"{api.name} was answered {code.name}")
        return bool(codes) and not failed


def _reassignment(wanted: Wanted) -> AlterPartitionReassignmentsRequest:
    topics: dict[str, list[ReassignablePartition]] = {}
    for label, replicas in wanted.items():
        part = ReassignablePartition(partition_index=label.partition, replicas=replicas)
        topics.setdefault(label.topic, []).append(part)
    return AlterPartitionReassignmentsRequest(
        timeout_ms=5_000,
        topics=tuple(
            ReassignableTopic(name=name, partitions=tuple(parts)) for name, parts in topics.items()
        ),
    )
