"""Asks for the APIs of transactions and their producers."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from oncelog.broker.access.asked import Asked, AskedParts
from oncelog.broker.apis.needs import (
    ALTER_CLUSTER,
    CLUSTER_ACTION,
    DESCRIBE_TOPIC,
    DESCRIBE_TRANSACTIONAL_ID,
    IDEMPOTENT_WRITE,
    READ_GROUP,
    WRITE_TOPIC,
    WRITE_TRANSACTIONAL_ID,
)
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import INTERNAL_TOPICS
from oncelog.core.pending import unchanged
from oncelog.protocol.messages import add_partitions_to_txn as add
from oncelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.protocol.messages.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    LifeStep,
)
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from oncelog.protocol.messages.write_txn_markers import WriteTxnMarkersRequest

TopicsT = TypeVar("TopicsT", DescribedTransaction, LifeStep)

_BROKERS_SINCE = 4
"""From this version on brokers add partitions and verify them, by AddPartitionsToTxn."""


def init_producer_id(asked: Asked[InitProducerIdRequest]) -> object:
    """The first with a transactional id; without one the second, or the third on any topic."""
    transactional_id = asked.body.transactional_id
    if transactional_id is not None:
        may = asked.may(WRITE_TRANSACTIONAL_ID, transactional_id)
        return asked.serve() if may else asked.refuse(WRITE_TRANSACTIONAL_ID)
    if asked.may(IDEMPOTENT_WRITE, is_filter=True) or asked.may_any(WRITE_TOPIC):
        return asked.serve()
    asked.may(IDEMPOTENT_WRITE)  # It is written to the audit log now that it is refused.
    return asked.refuse(IDEMPOTENT_WRITE)


def add_partitions_to_txn(asked: Asked[add.AddPartitionsToTxnRequest]) -> object:
    """Clients: the first, and the second for each topic, or none is added; brokers: the third.

    A client never adds an internal topic.
    """
    if asked.request.version >= _BROKERS_SINCE:
        return asked.serve() if asked.may(CLUSTER_ACTION) else asked.refuse(CLUSTER_ACTION)
    wanted = asked.body.transactions[0]
    if not asked.may(WRITE_TRANSACTIONAL_ID, wanted.transactional_id):
        return asked.refuse(WRITE_TRANSACTIONAL_ID)
    names = [topic.name for topic in wanted.topics for _ in topic.partitions]
    internal = INTERNAL_TOPICS & set(names)
    denied = internal | asked.denied(WRITE_TOPIC, (name for name in names if name not in internal))
    return _nothing_added(asked, wanted, denied) if denied else asked.serve()


def _nothing_added(
    asked: Asked[add.AddPartitionsToTxnRequest],
    wanted: add.AddPartitionsToTxnTransaction,
    denied: frozenset[str],
) -> add.AddPartitionsToTxnResponse:
    """Return the errors of the partitions at fault; the others were not attempted."""
    image = asked.context.image

    def error(name: str, index: int) -> ErrorCode:
        if name in denied:
            return WRITE_TOPIC.error
        if image.partition(name, index) is None:
            return ErrorCode.unknown_topic_or_partition
        return ErrorCode.operation_not_attempted

    topics = tuple(
        add.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=tuple(
                add.AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=error(topic.name, index)
                )
                for index in topic.partitions
            ),
        )
        for topic in wanted.topics
    )
    result = add.AddPartitionsToTxnResult(
        transactional_id=wanted.transactional_id, topic_results=topics
    )
    return add.AddPartitionsToTxnResponse(results_by_transaction=(result,))


def add_offsets_to_txn(asked: Asked[AddOffsetsToTxnRequest]) -> object:
    """Both."""
    body = asked.body
    if not asked.may(WRITE_TRANSACTIONAL_ID, body.transactional_id):
        return asked.refuse(WRITE_TRANSACTIONAL_ID)
    return asked.serve() if asked.may(READ_GROUP, body.group_id) else asked.refuse(READ_GROUP)


def write_txn_markers(asked: Asked[WriteTxnMarkersRequest]) -> object:
    """One of them; who sends it as a broker of Oncelog needs the second."""
    is_broker = asked.body.sender_id >= 0
    if not is_broker and asked.may(ALTER_CLUSTER, is_filter=True):
        return asked.serve()
    return asked.serve() if asked.may(CLUSTER_ACTION) else asked.refuse(CLUSTER_ACTION)


def describe_transactions(asked: Asked[DescribeTransactionsRequest]) -> object:
    """Each id needs the first; topics without the second are left out."""

    def shown(response: DescribeTransactionsResponse) -> DescribeTransactionsResponse:
        states = tuple(_shown(asked, each) for each in response.transaction_states)
        return replace(response, transaction_states=states)

    denied = asked.denied(DESCRIBE_TRANSACTIONAL_ID, asked.body.transactional_ids)
    parts = AskedParts(
        "transactional_ids", "transaction_states", unchanged, lambda one: one.transactional_id
    )
    return asked.serve_but(parts, dict.fromkeys(denied, DESCRIBE_TRANSACTIONAL_ID.error), shown)


def _shown(
    asked: Asked[DescribeTransactionsRequest], state: DescribedTransaction
) -> DescribedTransaction:
    parts: tuple[DescribedTransaction | LifeStep, ...] = (state, *state.life)
    named = {one.topic for part in parts for one in part.topics}
    hidden = asked.denied(DESCRIBE_TOPIC, named, is_filter=True)
    if not hidden:
        return state
    life = tuple(_without(step, hidden) for step in state.life)
    # What keeps it from ending names the partition.
    return replace(_without(state, hidden), life=life, trouble="")


def _without(part: TopicsT, hidden: frozenset[str]) -> TopicsT:
    kept = tuple(topic for topic in part.topics if topic.topic not in hidden)
    return replace(part, topics=kept)


def list_transactions(asked: Asked[ListTransactionsRequest]) -> object:
    """Ids without it are left out."""

    def shown(response: ListTransactionsResponse) -> ListTransactionsResponse:
        states = response.transaction_states
        hidden = asked.denied(
            DESCRIBE_TRANSACTIONAL_ID, (one.transactional_id for one in states), is_filter=True
        )
        kept = tuple(one for one in states if one.transactional_id not in hidden)
        return replace(response, transaction_states=kept)

    return asked.serve(shown)
