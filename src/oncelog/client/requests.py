"""Builds the client's requests and reads their replies, as plain values.

Pure functions. `oncelog.peer.connection` chooses versions when a request is encoded.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar
from uuid import UUID

from oncelog.client.values import (
    ConsumerGroupMetadata,
    GroupOrMember,
    Node,
    OffsetAndMetadata,
    PartitionDescription,
    TopicDescription,
)
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.messages import add_offsets_to_txn as add_offsets
from oncelog.protocol.messages import add_partitions_to_txn as add_partitions
from oncelog.protocol.messages import (
    end_txn,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    txn_offset_commit,
)
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.messages.offset_commit import OffsetCommitRequestPartition
from oncelog.protocol.messages.txn_offset_commit import TxnOffsetCommitRequestPartition

OFFSETS_BY_NAME_MAX = 9
"""OffsetCommit and OffsetFetch name topics up to this version; later ones have their ids."""

CONSUMER_REPLICA_ID = -1
PRODUCE_BY_NAME_MAX = 12
"""The same of Produce."""

PRODUCE_TV1_MAX = 11
"""The last version of Produce that adds no partition to a transaction by itself (KIP-890)."""

TXN_OFFSETS_BY_NAME_MAX = 5
"""The same of TxnOffsetCommit (KIP-1319)."""

TXN_OFFSETS_TV1_MAX = 4
"""The last version of TxnOffsetCommit that adds no group to a transaction by itself (KIP-890)."""

EARLIEST = -2
LATEST = -1


def produce_version_max(topic_ids: Iterable[UUID | None], *, is_tv1: bool) -> int | None:
    """The newest version of Produce that may be used, None for any.

    `is_tv1` is for a transaction whose partitions are added by requests of their own.
    """
    if is_tv1:
        return PRODUCE_TV1_MAX
    return PRODUCE_BY_NAME_MAX if None in topic_ids else None


def txn_offsets_version_max(topic_ids: Iterable[UUID | None], *, is_tv1: bool) -> int | None:
    """The newest version of TxnOffsetCommit that may be used, None for any."""
    if is_tv1:
        return TXN_OFFSETS_TV1_MAX
    return TXN_OFFSETS_BY_NAME_MAX if None in topic_ids else None


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group partitions as every Kafka message does. Topics and partitions come out sorted."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(set(partitions)):
        topics.setdefault(topic, []).append(partition)
    return topics


# --- cluster --------------------------------------------------------------------------


def metadata_request(names: Sequence[str] | None, *, create: bool) -> MetadataRequest:
    """Metadata of `names` (None: all topics)."""
    topics = None
    if names is not None:
        topics = tuple(metadata.MetadataRequestTopic(topic_id=None, name=name) for name in names)
    return MetadataRequest(
        topics=topics,
        allow_auto_topic_creation=create,
        include_topic_authorized_operations=False,
    )


def nodes_of(response: metadata.MetadataResponse) -> list[Node]:
    """The brokers of a Metadata answer."""
    return [
        Node(broker.node_id, broker.host, broker.port, broker.rack) for broker in response.brokers
    ]


def topics_of(
    response: metadata.MetadataResponse,
) -> Iterator[tuple[str, ErrorCode, TopicDescription]]:
    """(name, error, description) of each topic of a Metadata answer."""
    for topic in response.topics:
        partitions = tuple(
            PartitionDescription(
                p.partition_index,
                p.leader_id,
                p.leader_epoch,
                tuple(p.replica_nodes),
                tuple(p.isr_nodes),
            )
            for p in sorted(topic.partitions, key=lambda p: int(p.partition_index))
        )
        name = str(topic.name)
        yield (
            name,
            topic.error_code,
            TopicDescription(name, topic.topic_id, partitions, topic.is_internal),
        )


def list_offsets_request(
    timestamps: Mapping[TopicPartition, int],
    isolation_level: int,
    timeout_ms: float,
    replica_id: int = CONSUMER_REPLICA_ID,
) -> list_offsets.ListOffsetsRequest:
    """ListOffsets; a timestamp is milliseconds, `EARLIEST` or `LATEST`."""
    return list_offsets.ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation_level,
        topics=tuple(
            list_offsets.ListOffsetsTopic(
                name=name,
                partitions=tuple(
                    list_offsets.ListOffsetsPartition(
                        partition_index=index,
                        timestamp=timestamps[TopicPartition(name, index)],
                    )
                    for index in indexes
                ),
            )
            for name, indexes in by_topic(timestamps).items()
        ),
        timeout_ms=int(timeout_ms),
    )


def offset_for_leader_epoch_request(
    epochs: Mapping[TopicPartition, tuple[int, int]],
) -> offset_for_leader_epoch.OffsetForLeaderEpochRequest:
    """OffsetForLeaderEpoch of a consumer; (current leader epoch, epoch to look up) of each."""
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(
        replica_id=CONSUMER_REPLICA_ID,
        topics=tuple(
            offset_for_leader_epoch.OffsetForLeaderTopic(
                topic=name,
                partitions=tuple(
                    offset_for_leader_epoch.OffsetForLeaderPartition(
                        partition=index,
                        current_leader_epoch=epochs[TopicPartition(name, index)][0],
                        leader_epoch=epochs[TopicPartition(name, index)][1],
                    )
                    for index in indexes
                ),
            )
            for name, indexes in by_topic(epochs).items()
        ),
    )


def find_coordinator_request(kind: int, key: str) -> find_coordinator.FindCoordinatorRequest:
    """FindCoordinator for one key."""
    return find_coordinator.FindCoordinatorRequest(key_type=kind, coordinator_keys=(key,))


def coordinator_of(
    response: find_coordinator.FindCoordinatorResponse,
) -> tuple[ErrorCode, Node, str | None]:
    """(error, broker, message) of a FindCoordinator answer for one key."""
    found = response.coordinators[0]
    return found.error_code, Node(found.node_id, found.host, found.port), found.error_message


# --- transactions ---------------------------------------------------------------------


def init_producer_id_request(
    transactional_id: str | None,
    timeout_ms: int,
    producer_id: int,
    producer_epoch: int,
    *,
    is_administrator: bool = False,
) -> init_producer_id.InitProducerIdRequest:
    """InitProducerId.

    With a producer id and epoch it asks for the next epoch of exactly that producer (KIP-360).
    `is_administrator` is told to Oncelog's coordinators only.
    """
    return init_producer_id.InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=int(timeout_ms),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_administrator=is_administrator,
    )


def add_partitions_request(
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Iterable[TopicPartition],
) -> add_partitions.AddPartitionsToTxnRequest:
    """AddPartitionsToTxn for one transaction."""
    return add_partitions.AddPartitionsToTxnRequest(
        transactions=(
            add_partitions.AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                topics=tuple(
                    add_partitions.AddPartitionsToTxnTopic(name=name, partitions=tuple(p))
                    for name, p in by_topic(partitions).items()
                ),
            ),
        ),
    )


def add_offsets_request(
    transactional_id: str, producer_id: int, producer_epoch: int, group_id: str
) -> add_offsets.AddOffsetsToTxnRequest:
    """AddOffsetsToTxn."""
    return add_offsets.AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        group_id=group_id,
    )


def end_txn_request(
    transactional_id: str, producer_id: int, producer_epoch: int, commit: bool
) -> end_txn.EndTxnRequest:
    """EndTxn."""
    return end_txn.EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        committed=commit,
    )


def txn_offset_commit_request(
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    group: GroupOrMember,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    topic_ids: Mapping[str, UUID | None],
) -> txn_offset_commit.TxnOffsetCommitRequest:
    """TxnOffsetCommit, with both names and ids, for any version.

    The coordinator checks the member, if one is named (KIP-447).
    """
    who = as_member(group)
    return txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=who.group_id,
        generation_id_or_member_epoch=who.generation,
        member_id=who.member_id,
        group_instance_id=who.group_instance_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        topics=tuple(
            txn_offset_commit.TxnOffsetCommitRequestTopic(
                name=name, topic_id=topic_ids.get(name), partitions=partitions
            )
            for name, partitions in _committed(TxnOffsetCommitRequestPartition, offsets)
        ),
    )


# --- groups ---------------------------------------------------------------------------


def as_member(group: GroupOrMember) -> ConsumerGroupMetadata:
    """The member that is named, or the group without a member."""
    return ConsumerGroupMetadata(group) if isinstance(group, str) else group


def offset_commit_request(
    group: GroupOrMember, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> offset_commit.OffsetCommitRequest:
    """OffsetCommit of a member, or of a client that is none."""
    who = as_member(group)
    return offset_commit.OffsetCommitRequest(
        group_id=who.group_id,
        generation_id_or_member_epoch=who.generation,
        member_id=who.member_id,
        group_instance_id=who.group_instance_id,
        topics=tuple(
            offset_commit.OffsetCommitRequestTopic(name=name, partitions=partitions)
            for name, partitions in _committed(OffsetCommitRequestPartition, offsets)
        ),
    )


def offset_fetch_request(
    group: GroupOrMember,
    partitions: Iterable[TopicPartition] | None,
    require_stable: bool,
) -> offset_fetch.OffsetFetchRequest:
    """OffsetFetch for one group (None: everything it committed)."""
    who = as_member(group)
    topics = None
    if partitions is not None:
        topics = tuple(
            offset_fetch.OffsetFetchRequestTopics(name=name, partition_indexes=tuple(p))
            for name, p in by_topic(partitions).items()
        )
    return offset_fetch.OffsetFetchRequest(
        groups=(
            offset_fetch.OffsetFetchRequestGroup(
                group_id=who.group_id,
                member_id=who.member_id or None,
                member_epoch=who.generation,
                topics=topics,
            ),
        ),
        require_stable=require_stable,
    )


def offsets_of(
    response: offset_fetch.OffsetFetchResponse,
) -> tuple[ErrorCode, dict[TopicPartition, OffsetAndMetadata]]:
    """(first error, offsets) of an OffsetFetch answer for one group.

    Partitions without an offset are left out.
    """
    group = response.groups[0]
    if group.error_code is not ErrorCode.none:
        return group.error_code, {}
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    for topic in group.topics:
        for p in topic.partitions:
            if p.error_code is not ErrorCode.none:
                return p.error_code, {}
            if p.committed_offset >= 0:
                offsets[TopicPartition(str(topic.name), int(p.partition_index))] = (
                    OffsetAndMetadata(
                        int(p.committed_offset), p.metadata or "", int(p.committed_leader_epoch)
                    )
                )
    return ErrorCode.none, offsets


def partition_errors(
    response: offset_commit.OffsetCommitResponse | txn_offset_commit.TxnOffsetCommitResponse,
    topic_ids: Mapping[str, UUID | None] = MappingProxyType({}),
) -> list[tuple[TopicPartition, ErrorCode]]:
    """Every partition's error of an OffsetCommit or TxnOffsetCommit answer, `none` left out.

    `topic_ids` are those of the request, for an answer that names topics by id.
    """
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    return [
        (TopicPartition(topic.name or names[topic.topic_id], p.partition_index), p.error_code)
        for topic in response.topics
        for p in topic.partitions
        if p.error_code is not ErrorCode.none
    ]


def add_partitions_errors(
    response: add_partitions.AddPartitionsToTxnResponse,
) -> list[tuple[TopicPartition, ErrorCode]]:
    """The failed partitions of an AddPartitionsToTxn answer for one transaction."""
    return [
        (TopicPartition(str(topic.name), int(p.partition_index)), p.partition_error_code)
        for transaction in response.results_by_transaction
        for topic in transaction.topic_results
        for p in topic.results_by_partition
        if p.partition_error_code is not ErrorCode.none
    ]


_Partition = TypeVar("_Partition", OffsetCommitRequestPartition, TxnOffsetCommitRequestPartition)


def _committed(
    cls: type[_Partition], offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> Iterator[tuple[str, tuple[_Partition, ...]]]:
    """(topic, offsets to commit), as OffsetCommit and TxnOffsetCommit both carry them."""
    for name, indexes in by_topic(offsets).items():
        found = [(index, offsets[TopicPartition(name, index)]) for index in indexes]
        yield (
            name,
            tuple(
                cls(
                    partition_index=index,
                    committed_offset=offset.offset,
                    committed_leader_epoch=offset.leader_epoch,
                    committed_metadata=offset.metadata,
                )
                for index, offset in found
            ),
        )
