"""The client's requests, and what it takes from the answers.

Plain values on one side, kio's newest classes on the other.

Pure functions. Versions are chosen when a request is encoded (`oncelog.peer.connection`), not
here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from kio.schema.add_offsets_to_txn.v4 import request as add_offsets
from kio.schema.add_partitions_to_txn.v5 import request as add_partitions
from kio.schema.create_topics.v7 import request as create_topics
from kio.schema.delete_topics.v6 import request as delete_topics
from kio.schema.describe_cluster.v2 import request as describe_cluster
from kio.schema.end_txn.v5 import request as end_txn
from kio.schema.find_coordinator.v6 import request as find_coordinator
from kio.schema.init_producer_id.v5 import request as init_producer_id
from kio.schema.list_offsets.v11 import request as list_offsets
from kio.schema.metadata.v13 import request as metadata
from kio.schema.offset_for_leader_epoch.v4 import request as offset_for_leader_epoch
from kio.schema.txn_offset_commit.v5 import request as txn_offset_commit

from oncelog.client.values import (
    NewTopic,
    Node,
    OffsetAndMetadata,
    PartitionDescription,
    TopicDescription,
)
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol import canonical
from oncelog.protocol.messages import message
from oncelog.protocol.metadata_messages import MetadataRequest

OFFSETS_BY_NAME_MAX = 9
"""OffsetCommit and OffsetFetch name topics up to this version; later ones give their ids."""

CONSUMER_REPLICA_ID = -1
NO_GENERATION = -1
EARLIEST = -2
LATEST = -1


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group partitions as every Kafka message does. Topics and partitions come out sorted."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(set(partitions)):
        topics.setdefault(topic, []).append(partition)
    return topics


# --- cluster --------------------------------------------------------------------------


def metadata_request(names: Sequence[str] | None, *, create: bool) -> object:
    """Metadata of `names` (None: all topics)."""
    topics = None
    if names is not None:
        topics = tuple(
            message(metadata.MetadataRequestTopic, topic_id=None, name=name) for name in names
        )
    return message(
        MetadataRequest,
        topics=topics,
        allow_auto_topic_creation=create,
        include_topic_authorized_operations=False,
    )


def nodes_of(response: Any) -> list[Node]:
    """The brokers of a Metadata answer."""
    return [Node(broker.node_id, broker.host, broker.port) for broker in response.brokers]


def topics_of(response: Any) -> Iterator[tuple[str, ErrorCode, TopicDescription]]:
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


def describe_cluster_request() -> object:
    """DescribeCluster, brokers only."""
    return message(
        describe_cluster.DescribeClusterRequest,
        include_cluster_authorized_operations=False,
        include_fenced_brokers=False,
    )


def create_topics_request(topics: Sequence[NewTopic], timeout_ms: float) -> object:
    """CreateTopics with the broker choosing replicas."""
    return message(
        create_topics.CreateTopicsRequest,
        topics=tuple(
            message(
                create_topics.CreatableTopic,
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                assignments=(),
                configs=tuple(
                    message(create_topics.CreatableTopicConfig, name=key, value=str(value))
                    for key, value in topic.configs.items()
                ),
            )
            for topic in topics
        ),
        timeout=timedelta(milliseconds=timeout_ms),
    )


def delete_topics_request(names: Sequence[str], timeout_ms: float) -> object:
    """DeleteTopics by name."""
    return message(
        delete_topics.DeleteTopicsRequest,
        topics=tuple(
            message(delete_topics.DeleteTopicState, name=name, topic_id=None) for name in names
        ),
        timeout=timedelta(milliseconds=timeout_ms),
    )


def list_offsets_request(
    timestamps: Mapping[TopicPartition, int], isolation_level: int, timeout_ms: float
) -> object:
    """ListOffsets; a timestamp is milliseconds, `EARLIEST` or `LATEST`."""
    return message(
        list_offsets.ListOffsetsRequest,
        replica_id=CONSUMER_REPLICA_ID,
        isolation_level=isolation_level,
        topics=tuple(
            message(
                list_offsets.ListOffsetsTopic,
                name=name,
                partitions=tuple(
                    message(
                        list_offsets.ListOffsetsPartition,
                        partition_index=index,
                        timestamp=timestamps[TopicPartition(name, index)],
                    )
                    for index in indexes
                ),
            )
            for name, indexes in by_topic(timestamps).items()
        ),
        timeout=timedelta(milliseconds=timeout_ms),
    )


def offset_for_leader_epoch_request(
    epochs: Mapping[TopicPartition, tuple[int, int]],
) -> object:
    """OffsetForLeaderEpoch of a consumer; (current leader epoch, epoch to look up) of each."""
    return message(
        offset_for_leader_epoch.OffsetForLeaderEpochRequest,
        replica_id=CONSUMER_REPLICA_ID,
        topics=tuple(
            message(
                offset_for_leader_epoch.OffsetForLeaderTopic,
                topic=name,
                partitions=tuple(
                    message(
                        offset_for_leader_epoch.OffsetForLeaderPartition,
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


def find_coordinator_request(kind: int, key: str) -> object:
    """FindCoordinator for one key."""
    return message(find_coordinator.FindCoordinatorRequest, key_type=kind, coordinator_keys=(key,))


def coordinator_of(response: Any) -> tuple[ErrorCode, Node, str | None]:
    """(error, broker, message) of a FindCoordinator answer for one key."""
    found = response.coordinators[0]
    return found.error_code, Node(found.node_id, found.host, found.port), found.error_message


# --- transactions ---------------------------------------------------------------------


def init_producer_id_request(
    transactional_id: str | None, timeout_ms: int, producer_id: int, producer_epoch: int
) -> object:
    """InitProducerId.

    With a producer id and epoch it asks for the next epoch of exactly that producer (KIP-360).
    """
    return message(
        init_producer_id.InitProducerIdRequest,
        transactional_id=transactional_id,
        transaction_timeout=timedelta(milliseconds=timeout_ms),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def add_partitions_request(
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Iterable[TopicPartition],
) -> object:
    """AddPartitionsToTxn for one transaction."""
    return message(
        add_partitions.AddPartitionsToTxnRequest,
        transactions=(
            message(
                add_partitions.AddPartitionsToTxnTransaction,
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                topics=tuple(
                    message(add_partitions.AddPartitionsToTxnTopic, name=name, partitions=tuple(p))
                    for name, p in by_topic(partitions).items()
                ),
            ),
        ),
    )


def add_offsets_request(
    transactional_id: str, producer_id: int, producer_epoch: int, group_id: str
) -> object:
    """AddOffsetsToTxn."""
    return message(
        add_offsets.AddOffsetsToTxnRequest,
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        group_id=group_id,
    )


def end_txn_request(
    transactional_id: str, producer_id: int, producer_epoch: int, commit: bool
) -> object:
    """EndTxn."""
    return message(
        end_txn.EndTxnRequest,
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        committed=commit,
    )


def txn_offset_commit_request(
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> object:
    """TxnOffsetCommit of somebody who is no member of the group (generation -1)."""
    return message(
        txn_offset_commit.TxnOffsetCommitRequest,
        transactional_id=transactional_id,
        group_id=group_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        topics=_committed_topics(
            txn_offset_commit.TxnOffsetCommitRequestTopic,
            txn_offset_commit.TxnOffsetCommitRequestPartition,
            offsets,
        ),
    )


# --- groups ---------------------------------------------------------------------------


def offset_commit_request(
    group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> object:
    """OffsetCommit of somebody who is no member of the group."""
    return message(
        canonical.OffsetCommitRequest,
        group_id=group_id,
        generation_id_or_member_epoch=NO_GENERATION,
        member_id="",
        topics=_committed_topics(
            canonical.OffsetCommitRequestTopic, canonical.OffsetCommitRequestPartition, offsets
        ),
    )


def offset_fetch_request(
    group_id: str, partitions: Iterable[TopicPartition] | None, require_stable: bool
) -> object:
    """OffsetFetch for one group (None: everything it committed)."""
    topics = None
    if partitions is not None:
        topics = tuple(
            message(canonical.OffsetFetchRequestTopics, name=name, partition_indexes=tuple(p))
            for name, p in by_topic(partitions).items()
        )
    return message(
        canonical.OffsetFetchRequest,
        groups=(message(canonical.OffsetFetchRequestGroup, group_id=group_id, topics=topics),),
        require_stable=require_stable,
    )


def offsets_of(
    response: Any,
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
    response: Any,
) -> list[tuple[TopicPartition, ErrorCode]]:
    """Every partition's error of an OffsetCommit or TxnOffsetCommit answer, `none` left out."""
    return [
        (TopicPartition(str(topic.name), int(p.partition_index)), p.error_code)
        for topic in response.topics
        for p in topic.partitions
        if p.error_code is not ErrorCode.none
    ]


def add_partitions_errors(response: Any) -> list[tuple[TopicPartition, ErrorCode]]:
    """The failed partitions of an AddPartitionsToTxn answer for one transaction."""
    return [
        (TopicPartition(str(topic.name), int(p.partition_index)), p.partition_error_code)
        for transaction in response.results_by_transaction
        for topic in transaction.topic_results
        for p in topic.results_by_partition
        if p.partition_error_code is not ErrorCode.none
    ]


def _committed_topics(
    topic_class: type, partition_class: type, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> tuple[object, ...]:
    """Offsets to commit, as OffsetCommit and TxnOffsetCommit both carry them."""
    return tuple(
        message(
            topic_class,
            name=name,
            partitions=tuple(
                _committed(partition_class, index, offsets[TopicPartition(name, index)])
                for index in indexes
            ),
        )
        for name, indexes in by_topic(offsets).items()
    )


def _committed(cls: type, index: int, offset: OffsetAndMetadata) -> object:
    return message(
        cls,
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )
