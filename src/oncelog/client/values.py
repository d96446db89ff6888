"""The values that users of the client give and get.

Frozen; offsets and counts are plain ints, times are milliseconds since the epoch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicId, TopicPartition
from oncelog.core.secret import Secret

__all__ = [
    "ClusterDescription",
    "ConfigEntry",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "DataFolder",
    "FeatureLevels",
    "FetchedPartition",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "NewTopic",
    "Node",
    "OffsetAndMetadata",
    "PartitionDescription",
    "PartitionReassignment",
    "ProducerState",
    "RecordMetadata",
    "ScramCredentialInfo",
    "TopicDescription",
    "TransactionDescription",
    "TransactionListing",
    "TransactionStep",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
]

Headers = tuple[tuple[str, bytes | None], ...]


class RecordMetadata(NamedTuple):
    """Where an acknowledged record stands.

    `offset` is -1 when the broker does not know it: acks=0, or a duplicate of a batch so old that
    it is no longer cached. `timestamp_ms` is the broker's time under
    ``message.timestamp.type=LogAppendTime``, the record's own otherwise.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class OffsetAndMetadata(NamedTuple):
    """A committed position.

    The offset of the next record to read, a string that the committer may use as it likes, and the
    leader epoch of the last record that was read (`ConsumerRecord.leader_epoch`), -1 when unknown.
    With the epoch a consumer that goes on there notices when that record was lost (KIP-320).
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class ConsumerGroupMetadata(NamedTuple):
    """As whom a group's offsets are committed (KIP-447); -1 and "" name no member.

    `generation` is the member epoch under the new protocol.
    """

    group_id: str
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


GroupOrMember = str | ConsumerGroupMetadata
"""A group by its name, or a member of it, whom the coordinator then checks."""


class ConsumerRecord(NamedTuple):
    """One record as read. `timestamp_type` is 0 for CreateTime, 1 for LogAppendTime.

    `leader_epoch` is the epoch of the leader that wrote it, -1 when unknown. Names of headers that
    are not UTF-8 have surrogate escapes for the other bytes (PEP 383): a producer that is given the
    name writes its bytes, and ``name.encode("utf-8", "surrogateescape")`` returns them. A record
    from before Kafka 0.10 has the time -1.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """What one fetch of one partition brought.

    `batches` holds whole record batches (v2) back to back, without control batches and, under
    read_committed, without those of aborted transactions. The first may begin before the offset
    asked for: skip records below it. `next_offset` is where to go on; it moves past what was left
    out, so it can advance while `batches` is empty. `leader_epoch` is that of the last batch
    before it, -1 when unknown.
    """

    topic_partition: TopicPartition
    batches: bytes | bytearray | memoryview
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    `partitions` and `replication_factor` are the broker's defaults where they are -1.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


class Node(NamedTuple):
    """One broker, as it advertises itself."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition. `leader` is -1 while it has none.

    `eligible` are brokers outside the ISR that have every committed record all the same,
    `last_eligible` those that had it and may have lost the end (KIP-966); only
    `Admin.describe_replicas` finds them.
    """

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    eligible: tuple[int, ...] = ()
    last_eligible: tuple[int, ...] = ()


class PartitionReassignment(NamedTuple):
    """A reassignment under way: all replicas, and those that it adds and removes."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic.

    `topic_id` is its identity, None from brokers that do not tell (Metadata before v10).
    """

    name: str
    topic_id: TopicId | None
    partitions: tuple[PartitionDescription, ...]
    is_internal: bool = False


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster; `controller_id` is -1 when unknown."""

    cluster_id: str | None
    controller_id: int
    nodes: tuple[Node, ...]


class ConfigEntry(NamedTuple):
    """One setting of a topic, a broker or a group.

    `source` is where its value comes from: "topic" or "group" (set on it), "broker" (set for the
    whole broker), "dynamic broker", "dynamic default broker", or "default". `value` is None when
    unset, and for sensitive ones.
    """

    name: str
    value: str | None
    source: str
    is_read_only: bool
    is_sensitive: bool


class FeatureLevels(NamedTuple):
    """A feature of the cluster (KIP-584): the levels that a broker supports, and the one in force.

    `finalized` is 0 while the feature is off. `epoch` counts the changes of finalized levels; None
    from brokers that do not tell.
    """

    name: str
    min_supported: int
    max_supported: int
    finalized: int
    epoch: int | None


class ScramCredentialInfo(NamedTuple):
    """A SCRAM credential as far as it is shown: `mechanism` is SCRAM-SHA-256 or SCRAM-SHA-512."""

    mechanism: str
    iterations: int = 4096


class UserScramCredentialUpsertion(NamedTuple):
    """A user's credential to set. A `Secret` password is printed nowhere."""

    user: str
    info: ScramCredentialInfo
    password: Secret | str


class UserScramCredentialDeletion(NamedTuple):
    """A user's credential to delete."""

    user: str
    mechanism: str


class TransactionListing(NamedTuple):
    """One transactional id, and the broker that coordinates it.

    `expires_at_ms` is when the id expires unless it is used; None while its transaction is open,
    and from brokers that do not tell (Apache Kafka).
    """

    transactional_id: str
    coordinator_id: int
    producer_id: int
    state: str
    expires_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TransactionStep:
    """Something that happened to a transactional id; only Oncelog's coordinator remembers it.

    `kind` is one of "producer", "partitions added", "offsets sent", "prepare commit", "prepare
    abort", "marker", "complete commit", "complete abort". `error` is Kafka's name of what a
    partition answered to a marker, None where it was written. `cause` says why, where the client
    did not ask for it. `more_count` partitions are not named in `partitions`.
    """

    at_ms: int
    kind: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    error: str | None
    cause: str
    more_count: int = 0


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """What the coordinator says about a transactional id.

    `state` is Kafka's name for it (CompleteCommit). `start_time_ms` is None before the first
    transaction. `partitions` are those of the open transaction, or those that still owe a marker.
    `life`, `trouble` (what keeps it from ending) and `fenced_because` (why a producer was last
    fenced) are told by Oncelog's coordinators only.
    """

    transactional_id: str
    coordinator_id: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int | None
    partitions: tuple[TopicPartition, ...]
    life: tuple[TransactionStep, ...] = ()
    trouble: str = ""
    fenced_because: str = ""


class ProducerState(NamedTuple):
    """What a partition remembers of a producer.

    `transaction_start_offset` is where its open transaction begins, None when none is open;
    `coordinator_epoch` is that of its last marker, -1 before the first.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int | None


class GroupListing(NamedTuple):
    """A group, as its coordinator lists it.

    `kind` is the protocol: "classic", "consumer" (KIP-848), "share" or "streams". `state` is ""
    from brokers that do not tell (ListGroups before v4).
    """

    group_id: str
    kind: str
    state: str
    protocol_type: str
    coordinator_id: int


class GroupMember(NamedTuple):
    """A member of a group, and the partitions it has. `instance_id` is a static member's name."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group with its members. `assignor` is "" while there is none."""

    group_id: str
    kind: str
    state: str
    assignor: str
    coordinator_id: int
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True)
class DataFolder:
    """A log directory of a broker, with the bytes of each partition's log.

    `error` is not `none` for one that is off line. `total_bytes` and `usable_bytes` of its volume
    are None from brokers that do not tell (DescribeLogDirs before v4).
    """

    path: str
    error: ErrorCode
    total_bytes: int | None
    usable_bytes: int | None
    partition_sizes: Mapping[TopicPartition, int]
