"""Watches what the brokers of a cluster say of replicated partitions, and how it goes on.

It asks any broker for Metadata and DescribeTopicPartitions, and leaders for their ends. On one
connection a partition's leader epoch never goes back; a leader is a member of its ISR, the ISR are
replicas, and who is eligible is in none. Where nothing committed may be lost (`strict`), the end
that leaders tell never goes back either, from one leader to the next (KIP-207).

Parameters: `flavor`, `topics`, `strict` (False), `pace_ms` (100).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from oncelog.client import requests
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.peer.connection import Connection
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopic,
)
from oncelog.simulation.context import ClientContext
from oncelog.simulation.peers.fetching import Fetcher
from oncelog.simulation.peers.flavors import FLAVORS
from oncelog.simulation.peers.looking import look_until_told
from oncelog.simulation.peers.wire import Address, LostError, PeerWire

__all__ = ["run"]

NONE: Final = -1


async def run(context: ClientContext) -> None:
    """Look at intervals until told to stop, then once more until all have answered."""
    observer = _Observer(context)
    await look_until_told(context, observer.looks, 100)
    observer.close()
    context.progress("settled")


class _Observer:
    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._wire = PeerWire(context, FLAVORS[context.get("flavor", "java")])
        self._fetcher = Fetcher(context, self._wire, committed=False)
        self._topics: list[str] = sorted(context.get("topics", ("t",)))
        self._brokers: list[Address] = []
        self._epochs: dict[tuple[Connection, TopicPartition], int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self.looks = (self._metadata, self._descriptions, self._latest)

    def close(self) -> None:
        self._wire.close()

    def _any_broker(self) -> Address:
        known = self._brokers
        return self._context.rng.choice(known) if known else self._context.bootstrap

    async def _metadata(self) -> bool:
        try:
            to = self._any_broker()
            connection = await self._wire.open(to)
            request = requests.metadata_request(self._topics, create=False)
            answer = await self._wire.ask(ApiKey.METADATA, request, to=to)
        except LostError:
            return False
        self._brokers = sorted((node.host, node.port) for node in requests.nodes_of(answer))
        has_all = bool(self._brokers)
        for name, error, description in requests.topics_of(answer):
            for p in () if error else description.partitions:
                at = TopicPartition(name, p.index)
                has_all &= self._is_right(
                    connection, at, p.leader, p.leader_epoch, p.replicas, p.isr, ()
                )
            has_all &= error is ErrorCode.none
        return has_all

    async def _descriptions(self) -> bool:
        request = DescribeTopicPartitionsRequest(
            topics=tuple(DescribeTopicPartitionsTopic(name=name) for name in self._topics)
        )
        try:
            to = self._any_broker()
            connection = await self._wire.open(to)
            answer = await self._wire.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, request, to=to)
        except LostError:
            return False
        has_all = True
        for topic in answer.topics:
            has_all &= topic.error_code is ErrorCode.none
            for p in topic.partitions:
                has_all &= self._is_right(
                    connection,
                    TopicPartition(str(topic.name), p.partition_index),
                    p.leader_id,
                    p.leader_epoch,
                    p.replica_nodes,
                    p.isr_nodes,
                    p.eligible_leader_replicas or (),
                )
        return has_all

    def _is_right(
        self,
        connection: Connection,
        at: TopicPartition,
        leader: int,
        epoch: int,
        replicas: Collection[int],
        isr: Collection[int],
        eligible: Collection[int],
    ) -> bool:
        """Compare what is said with the rules; return whether there is a leader."""
        said = f"{at} leader {leader} epoch {epoch} replicas {replicas} ISR {isr} ELR {eligible}"
        fits = set(isr) | set(eligible) <= set(replicas) and not set(isr) & set(eligible)
        self._expect(fits, f"a cluster named {said}")
        self._expect(leader in isr or leader == NONE, f"a leader outside its ISR: {said}")
        before = self._epochs.get((connection, at), NONE)
        if epoch != NONE:
            self._expect(epoch >= before, f"a leader epoch went back from {before}: {said}")
            self._epochs[connection, at] = max(before, epoch)
        return leader != NONE

    async def _latest(self) -> bool:
        """ListOffsets of the end, which is told only where it is known."""
        if not await self._wire.refresh(self._topics):
            return False
        known = self._wire.partitions(self._topics)
        if not known:
            return False
        at = self._context.rng.choice(known)
        before = self._ends.get(at, NONE)
        found = await self._fetcher.list_offsets({at: requests.LATEST})
        if at not in found:
            return False
        if self._context.get("strict", False):
            self._expect(found[at] >= before, f"{at}: the end went from {before} to {found[at]}")
        self._ends[at] = max(before, found[at])
        return True

    def _expect(self, holds: bool, what: str) -> None:
        if not holds:
            self._context.stuck(what)
