"""Asks for one client's topics by Metadata and its kin, and compares the answers with the model.

Every field of every answer is compared. Leader epochs are learnt: they never go back, and are the
same as long as the connection is. So is the epoch of finalized features.

Parameters: those of `exact_asking`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode
from oncelog.peer.connection import Connection
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import describe_topic_partitions, metadata
from oncelog.simulation.context import ClientContext
from oncelog.simulation.peers.exact_asking import ExactAnswer, ExactAsker
from oncelog.simulation.peers.exact_topics import KnownTopic, TopicsModel, bad_name
from oncelog.simulation.peers.wire import LostError, PeerWire

__all__ = ["CLUSTER_OPERATIONS", "NOT_ASKED", "TopicsSeen", "page_of"]

NOT_ASKED: Final = -(2**31)
_TOPIC_OPERATIONS: Final = 0b1101_1111_1000
CLUSTER_OPERATIONS: Final = 0b1_1111_1010_0000
"""Authorized operations as bits (KIP-430): all of them, as there is no authorizer."""


class TopicsSeen(ExactAsker):
    """A client with topics of its own, and what Metadata has to say of them."""

    def __init__(self, context: ClientContext, wire: PeerWire) -> None:
        super().__init__(context, wire)
        self.prefix = f"own-{context.name.replace('.', '-')}-"
        self.settings = BrokerConfig(context.settings)
        self.node = self.settings.get_int("node.id")
        self.cluster_id: str | None = None
        self.model = TopicsModel(self.node)
        self.deleted_ids: list[UUID | None] = []
        self._epochs: dict[tuple[str, UUID | None, int], tuple[Connection, int]] = {}

    def close(self) -> None:
        """Close the connections."""
        self.wire.close()

    def unknown_id(self) -> UUID:
        """Return the id of a deleted topic, or one that no topic ever had."""
        known = [each for each in self.deleted_ids if each is not None]
        fresh = UUID(int=self.context.rng.getrandbits(128) | 1)
        return self.context.rng.choice([*known[-2:], fresh])

    def lacks_ids(self) -> bool:
        """Whether the id of a topic has not been told yet."""
        return any(topic.topic_id is None for topic in self.model.topics.values())

    async def is_ready(self) -> bool:
        """Learn the name of the cluster; return whether it is known."""
        try:
            request = metadata.MetadataRequest(topics=())
            answer = await self.ask(ApiKey.METADATA, request, least=2)
        except LostError:
            return False
        self.cluster_id = answer.response.cluster_id
        return True

    async def look_at_topics(self) -> None:
        """Ask for all topics; each of ours is as the model has it. Raises `LostError`."""
        chance = self.context.chance
        request = metadata.MetadataRequest(
            topics=None,
            allow_auto_topic_creation=chance(0.5),
            include_cluster_authorized_operations=chance(0.5),
            include_topic_authorized_operations=chance(0.5),
        )
        # Version 0 has no null. Ids come with version 10.
        least = 10 if self.lacks_ids() else 1
        answer = await self.ask(ApiKey.METADATA, request, least=least)
        response = answer.response
        ours = {str(t.name): t for t in response.topics if str(t.name).startswith(self.prefix)}
        others = [t for t in response.topics if t.name not in ours]
        self.expect(
            len(ours) + len(others) == len(response.topics),
            lambda: f"Metadata named a topic twice: {[t.name for t in response.topics]}",
        )
        wanted = []
        for name in sorted({*ours, *self.model.topics}):
            told = ours.get(name)
            known = self._possible(name, told)
            if known is not None:
                wanted.append(self._described(answer, known, told))
        self._compare_metadata(answer, [ours[name] for name in sorted(ours)], wanted)
        self._learn_ids(ours.values())

    async def name_topics(self) -> None:
        """Ask for some topics by name and by id, known and unknown ones. Raises `LostError`."""
        rng, chance = self.context.rng, self.context.chance
        asked: dict[tuple[str | None, UUID | None], KnownTopic | None] = {}
        by_id = chance(0.4)
        for topic in rng.sample(list(self.model.topics.values()), min(3, len(self.model.topics))):
            if by_id and topic.topic_id is not None:
                asked[None, topic.topic_id] = topic
            else:
                asked[topic.name, None] = topic
        if by_id and chance(0.5):
            asked[None, self.unknown_id()] = None
        if chance(0.4):
            asked[rng.choice((f"{self.prefix}none", "..", "a b")), None] = None
        if not asked:
            return
        entries = [metadata.MetadataRequestTopic(name=n, topic_id=i) for n, i in asked]
        request = metadata.MetadataRequest(
            topics=(*entries, *entries[: rng.choice((0, 0, 1))]),
            allow_auto_topic_creation=chance(0.5),
            include_cluster_authorized_operations=chance(0.5),
            include_topic_authorized_operations=chance(0.5),
        )
        answer = await self.ask(ApiKey.METADATA, request, least=12 if by_id else 0)
        told: dict[tuple[str | None, UUID | None], metadata.MetadataResponseTopic] = {}
        for each in answer.response.topics:
            told[each.name, None] = told[None, each.topic_id] = each
        wanted = []
        for (name, topic_id), known in asked.items():
            if known is not None:
                wanted.append(self._described(answer, known, told.get((name, topic_id))))
            else:
                wanted.append(self._missing(answer, name, topic_id))
        self._compare_metadata(answer, list(answer.response.topics), wanted)

    def _possible(
        self, name: str | None, told: metadata.MetadataResponseTopic | None
    ) -> KnownTopic | None:
        """Return the topic as it must be; of two possibilities the one that was told."""
        if name in self.model.doubtful:
            before, after = self.model.doubtful[name]
            if told is None:
                gone = before is None or after is None
                return None if gone else before
            count = len(told.partitions)
            fitting = [t for t in (before, after) if t is not None and t.partitions == count]
            return fitting[0] if fitting else before or after
        return self.model.topics.get(str(name))

    def _described(
        self,
        answer: ExactAnswer[metadata.MetadataResponse],
        known: KnownTopic,
        told: metadata.MetadataResponseTopic | None,
    ) -> metadata.MetadataResponseTopic:
        """Return what Metadata has to say of a topic."""
        topic_id = known.topic_id
        if topic_id is None and told is not None:
            topic_id = told.topic_id
        epochs = (
            {} if told is None else {p.partition_index: p.leader_epoch for p in told.partitions}
        )
        partitions = []
        for index in range(known.partitions):
            epoch = epochs.get(index, -1)
            if answer.version >= 7 and index in epochs:
                self.see_epoch(answer.connection, known.name, topic_id, index, epoch)
            partitions.append(
                metadata.MetadataResponsePartition(
                    partition_index=index,
                    leader_id=self.node,
                    leader_epoch=epoch,
                    replica_nodes=(self.node,),
                    isr_nodes=(self.node,),
                )
            )
        return metadata.MetadataResponseTopic(
            name=known.name,
            topic_id=topic_id,
            partitions=tuple(partitions),
            topic_authorized_operations=self._operations(answer),
        )

    def _missing(
        self,
        answer: ExactAnswer[metadata.MetadataResponse],
        name: str | None,
        topic_id: UUID | None,
    ) -> metadata.MetadataResponseTopic:
        if topic_id is not None:
            return metadata.MetadataResponseTopic(
                error_code=ErrorCode.unknown_topic_id, topic_id=topic_id
            )
        is_bad = bad_name(str(name))
        return metadata.MetadataResponseTopic(
            error_code=ErrorCode.invalid_topic_exception
            if is_bad
            else ErrorCode.unknown_topic_or_partition,
            name=name,
            topic_authorized_operations=self._operations(answer),
        )

    def _operations(self, answer: ExactAnswer[metadata.MetadataResponse]) -> int:
        is_asked = answer.request.include_topic_authorized_operations
        return _TOPIC_OPERATIONS if is_asked else NOT_ASKED

    def _compare_metadata(
        self,
        answer: ExactAnswer[metadata.MetadataResponse],
        told: Sequence[metadata.MetadataResponseTopic],
        wanted: Sequence[metadata.MetadataResponseTopic],
    ) -> None:
        host, port = self.context.bootstrap
        is_asked = answer.request.include_cluster_authorized_operations
        broker = metadata.MetadataResponseBroker(node_id=self.node, host=host, port=port)
        self.compare(
            answer._replace(response=replace(answer.response, topics=tuple(told))),
            metadata.MetadataResponse(
                brokers=(broker,),
                cluster_id=self.cluster_id,
                controller_id=self.node,
                topics=tuple(wanted),
                cluster_authorized_operations=CLUSTER_OPERATIONS if is_asked else NOT_ASKED,
            ),
        )

    def _learn_ids(self, told: Iterable[metadata.MetadataResponseTopic]) -> None:
        for topic in told:
            known = self.model.topics.get(str(topic.name))
            if known is not None and known.topic_id is None and topic.topic_id is not None:
                self.model.topics[known.name] = replace(known, topic_id=topic.topic_id)

    def see_epoch(
        self, connection: Connection, name: str, topic_id: UUID | None, index: int, epoch: int
    ) -> None:
        """A leader epoch was told: it is not below a former one, and equal on one connection."""
        key = name, topic_id, index
        before = self._epochs.get(key)
        self._epochs[key] = connection, epoch
        if before is None:
            self.expect(epoch >= 0, lambda: f"{name}-{index} has leader epoch {epoch}")
            return
        is_same = before[0] is connection
        self.expect(
            epoch == before[1] if is_same else epoch >= before[1],
            lambda: f"the leader epoch of {name}-{index} went from {before[1]} to {epoch}",
        )

    # --- page by page -----------------------------------------------------------------

    async def turn_pages(self) -> None:
        """Ask for topics page by page; each page is as long as it may be. Raises `LostError`."""
        rng = self.context.rng
        if self.lacks_ids():
            return
        names = [*self.model.names(), f"{self.prefix}none"]
        asked = rng.sample(names, rng.randint(1, len(names)))
        limit = rng.choice((0, 1, 2, 3, 2000))
        cursor: describe_topic_partitions.Cursor | None = None
        rows = self._rows(asked)
        while True:
            request = describe_topic_partitions.DescribeTopicPartitionsRequest(
                topics=tuple(
                    describe_topic_partitions.DescribeTopicPartitionsTopic(name=name)
                    for name in asked
                ),
                response_partition_limit=limit,
                cursor=cursor,
            )
            answer = await self.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, request)
            page, rows = page_of(rows, max(limit, 1))
            cursor = None
            if rows:
                name, index = rows[0]
                cursor = describe_topic_partitions.Cursor(
                    topic_name=name, partition_index=max(index, 0)
                )
            self.compare(
                answer,
                describe_topic_partitions.DescribeTopicPartitionsResponse(
                    topics=tuple(self._topics_of(page, answer)), next_cursor=cursor
                ),
            )
            if cursor is None:
                return

    def _rows(self, names: Iterable[str]) -> list[tuple[str, int]]:
        """Return (topic, partition) of all, in order; partition -1 stands for a missing topic."""
        rows = []
        for name in sorted(names):
            topic = self.model.topics.get(name)
            rows += [(name, -1)] if topic is None else [(name, i) for i in range(topic.partitions)]
        return rows

    def _topics_of(
        self, page: Sequence[tuple[str, int]], answer: ExactAnswer[Any]
    ) -> Iterable[describe_topic_partitions.DescribeTopicPartitionsResponseTopic]:
        told = {
            (t.name, p.partition_index): p for t in answer.response.topics for p in t.partitions
        }
        for name in dict.fromkeys(name for name, _ in page):
            known = self.model.topics.get(name)
            if known is None:
                yield describe_topic_partitions.DescribeTopicPartitionsResponseTopic(
                    error_code=ErrorCode.unknown_topic_or_partition,
                    name=name,
                    topic_authorized_operations=_TOPIC_OPERATIONS,
                )
                continue
            partitions = []
            for index in (index for other, index in page if other == name):
                epoch = told[name, index].leader_epoch if (name, index) in told else -1
                self.see_epoch(answer.connection, name, known.topic_id, index, epoch)
                partitions.append(
                    describe_topic_partitions.DescribeTopicPartitionsResponsePartition(
                        partition_index=index,
                        leader_id=self.node,
                        leader_epoch=epoch,
                        replica_nodes=(self.node,),
                        isr_nodes=(self.node,),
                        eligible_leader_replicas=(),
                        last_known_elr=(),
                    )
                )
            yield describe_topic_partitions.DescribeTopicPartitionsResponseTopic(
                name=name,
                topic_id=known.topic_id,
                partitions=tuple(partitions),
                topic_authorized_operations=_TOPIC_OPERATIONS,
            )


def page_of(
    rows: Sequence[tuple[str, int]], limit: int
) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Return the rows of one page, and those that are left; missing topics take no space."""
    taken = 0
    for place, (_, index) in enumerate(rows):
        if taken == limit:
            return list(rows[:place]), list(rows[place:])
        taken += index >= 0
    return list(rows), []
