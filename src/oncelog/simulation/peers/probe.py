"""A client that describes transactions, groups, producers and logs, and checks the responses.

It changes nothing. Each response must be consistent: known states, partitions named once, leaders
that are brokers, offsets in order.

Parameters: `flavor`, `topics`, `groups` (()), `pace_ms` (700).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from oncelog.client import requests
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fields import RequestFor, ResponseT
from oncelog.protocol.messages import (
    describe_groups,
    describe_producers,
    describe_transactions,
    list_transactions,
)
from oncelog.simulation.context import ClientContext
from oncelog.simulation.peers.fetching import Fetcher
from oncelog.simulation.peers.flavors import FLAVORS
from oncelog.simulation.peers.looking import look_until_told
from oncelog.simulation.peers.wire import GROUP, TRANSACTION, LostError, PeerWire

__all__ = ["run"]

_TRANSACTION_STATES: Final = frozenset(
    {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    }
)
_GROUP_STATES: Final = frozenset(
    {"PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", ""}
)
_FINE: Final = frozenset({ErrorCode.none, ErrorCode.unknown_server_error})


async def run(context: ClientContext) -> None:
    """Describe things at intervals until told to stop, then once more until all have answered."""
    probe = _Probe(context)
    await look_until_told(context, probe.looks, 700)
    probe.close()
    context.progress("settled")


class _Probe:
    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._wire = PeerWire(context, FLAVORS[context.get("flavor", "java")])
        self._fetcher = Fetcher(context, self._wire, committed=False)
        self._topics: Sequence[str] = context.get("topics", ("t",))
        self.looks = (
            self._transactions,
            self._groups,
            partial(self._some_partition, self._producers),
            partial(self._some_partition, self._offsets),
            self._metadata,
        )

    def close(self) -> None:
        """Close the connections."""
        self._wire.close()

    def _expect(self, holds: bool, what: str) -> None:
        if not holds:
            self._context.stuck(what)

    def _is_fine(self, api: ApiKey, code: ErrorCode, *allowed: ErrorCode) -> bool:
        """Return whether a response has content; record error codes that Kafka never returns."""
        self._expect(
            code in _FINE or code in allowed or code.retriable, f"{api.name} answered {code.name}"
        )
        return code is ErrorCode.none

    async def _ask(
        self, api: ApiKey, request: RequestFor[ResponseT], to: tuple[str, int] | None = None
    ) -> ResponseT | None:
        try:
            return await self._wire.ask(api, request, to=to)
        except LostError:
            return None

    # --- what there is to see ---------------------------------------------------------

    async def _transactions(self) -> bool:
        """ListTransactions, and DescribeTransactions of one of them."""
        request = list_transactions.ListTransactionsRequest(
            state_filters=(),
            producer_id_filters=(),
            transactional_id_pattern=None,
        )
        answer = await self._ask(ApiKey.LIST_TRANSACTIONS, request)
        if answer is None or not self._is_fine(ApiKey.LIST_TRANSACTIONS, answer.error_code):
            return False
        listed = [str(state.transactional_id) for state in answer.transaction_states]
        self._expect(len(set(listed)) == len(listed), "ListTransactions named an id twice")
        for state in answer.transaction_states:
            self._expect(
                state.transaction_state in _TRANSACTION_STATES and state.producer_id >= 0,
                f"ListTransactions gave {state}",
            )
        if not listed:
            return True
        return await self._describe_transaction(self._context.rng.choice(listed))

    async def _describe_transaction(self, transactional_id: str) -> bool:
        to = await self._wire.coordinator(TRANSACTION, transactional_id)
        if to is None:
            return False
        request = describe_transactions.DescribeTransactionsRequest(
            transactional_ids=(transactional_id,)
        )
        answer = await self._ask(ApiKey.DESCRIBE_TRANSACTIONS, request, to)
        if answer is None:
            self._wire.forget_coordinator(TRANSACTION, transactional_id)
            return False
        for state in answer.transaction_states:
            gone = ErrorCode.transactional_id_not_found
            if not self._is_fine(ApiKey.DESCRIBE_TRANSACTIONS, state.error_code, gone):
                self._wire.forget_coordinator(TRANSACTION, transactional_id)
                return state.error_code is gone
            named = [(topic.topic, p) for topic in state.topics for p in topic.partitions]
            is_ended = state.transaction_state in ("Empty", "CompleteCommit", "CompleteAbort")
            self._expect(
                state.transaction_state in _TRANSACTION_STATES
                and len(set(named)) == len(named)
                and not (is_ended and named),
                f"DescribeTransactions gave {state}",
            )
        return True

    async def _groups(self) -> bool:
        """DescribeGroups."""
        group_ids: Sequence[str] = self._context.get("groups", ())
        for group_id in group_ids:
            to = await self._wire.coordinator(GROUP, group_id)
            if to is None:
                return False
            request = describe_groups.DescribeGroupsRequest(groups=(group_id,))
            answer = await self._ask(ApiKey.DESCRIBE_GROUPS, request, to)
            if answer is None:
                self._wire.forget_coordinator(GROUP, group_id)
                return False
            for group in answer.groups:
                gone = ErrorCode.group_id_not_found
                if not self._is_fine(ApiKey.DESCRIBE_GROUPS, group.error_code, gone):
                    if group.error_code is gone:
                        continue
                    self._wire.forget_coordinator(GROUP, group_id)
                    return False
                members = [str(member.member_id) for member in group.members]
                self._expect(
                    group.group_state in _GROUP_STATES
                    and len(set(members)) == len(members)
                    and not (group.group_state in ("Empty", "Dead") and members),
                    f"DescribeGroups gave {group}",
                )
        return True

    async def _some_partition(self, look: Callable[[TopicPartition], Awaitable[bool]]) -> bool:
        """Return a random partition, if there is any."""
        if not await self._wire.refresh(self._topics):
            return False
        known = self._wire.partitions(self._topics)
        return not known or await look(self._context.rng.choice(known))

    async def _producers(self, at: TopicPartition) -> bool:
        """DescribeProducers of a partition."""
        topic = describe_producers.DescribeProducersTopic(
            name=at.topic, partition_indexes=(at.partition,)
        )
        request = describe_producers.DescribeProducersRequest(topics=(topic,))
        answer = await self._ask(ApiKey.DESCRIBE_PRODUCERS, request, self._wire.leader(at))
        if answer is None:
            return False
        for partition in (p for topic in answer.topics for p in topic.partitions):
            if not self._is_fine(ApiKey.DESCRIBE_PRODUCERS, partition.error_code):
                return False
            ids = [int(producer.producer_id) for producer in partition.active_producers]
            self._expect(
                len(set(ids)) == len(ids) and all(producer_id >= 0 for producer_id in ids),
                f"DescribeProducers of {at} gave {partition}",
            )
        return True

    async def _offsets(self, at: TopicPartition) -> bool:
        """ListOffsets: the log's start, its last stable offset, its high watermark."""
        try:
            connection = await self._wire.open(self._wire.leader(at))
        except LostError:
            return False
        topic_id = self._wire.topic_id(at.topic)
        first = await self._fetcher.list_offsets({at: requests.EARLIEST})
        stable = await self._fetcher.list_offsets({at: requests.LATEST}, 1)
        last = await self._fetcher.list_offsets({at: requests.LATEST})
        if not (at in first and at in stable and at in last):
            return False
        await self._wire.refresh([at.topic])
        # Another connection may reach a restarted broker with a shorter log, and a topic can be
        # created again between two requests.
        if connection.is_closed or self._wire.topic_id(at.topic) != topic_id or topic_id is None:
            return True
        self._expect(
            first[at] <= last[at] and stable[at] <= last[at],
            f"{at}: start {first[at]}, LSO {stable[at]}, HW {last[at]} (INV-7)",
        )
        return True

    async def _metadata(self) -> bool:
        """Metadata of all topics."""
        answer = await self._ask(ApiKey.METADATA, requests.metadata_request(None, create=False))
        if answer is None:
            return False
        nodes = {node.node_id for node in requests.nodes_of(answer)}
        names = [name for name, _error, _description in requests.topics_of(answer)]
        self._expect(bool(nodes), "Metadata without a broker")
        self._expect(len(set(names)) == len(names), "Metadata named a topic twice")
        for name, error, description in requests.topics_of(answer):
            if not self._is_fine(ApiKey.METADATA, error):
                continue
            indexes = [p.index for p in description.partitions]
            self._expect(
                indexes == list(range(len(indexes))) and bool(indexes),
                f"Metadata of {name} gave partitions {indexes}",
            )
            for p in description.partitions:
                self._expect(
                    (p.leader in nodes or p.leader < 0) and set(p.isr) <= set(p.replicas),
                    f"Metadata of {name} gave {p}",
                )
        return True
