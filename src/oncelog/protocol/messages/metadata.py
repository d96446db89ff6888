"""Metadata."""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import (
    Boolean,
    Error,
    Int32,
    Nullable,
    RequestFor,
    String,
    Uuid,
    Versions,
)


@message
class MetadataRequestTopic:
    """An element of `topics` in MetadataRequest."""

    topic_id: Annotated[Uuid, Versions(10)] = None
    name: Annotated[String | None, Nullable(10)] = None


@message
class MetadataRequest(RequestFor["MetadataResponse"]):
    """Metadata, versions 0 to 13."""

    topics: Annotated[tuple[MetadataRequestTopic, ...] | None, Nullable(1)] = ()
    allow_auto_topic_creation: Annotated[Boolean, Versions(4)] = True
    include_cluster_authorized_operations: Annotated[Boolean, Versions(8, 10)] = False
    include_topic_authorized_operations: Annotated[Boolean, Versions(8)] = False


@message
class MetadataResponseBroker:
    """An element of `brokers` in MetadataResponse."""

    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: Annotated[String | None, Versions(1)] = None


@message
class MetadataResponsePartition:
    """An element of `partitions` in MetadataResponseTopic."""

    error_code: Error = ErrorCode.none
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Annotated[Int32, Versions(7)] = -1
    replica_nodes: tuple[Int32, ...] = ()
    isr_nodes: tuple[Int32, ...] = ()
    offline_replicas: Annotated[tuple[Int32, ...], Versions(5)] = ()


@message
class MetadataResponseTopic:
    """An element of `topics` in MetadataResponse."""

    error_code: Error = ErrorCode.none
    name: Annotated[String | None, Nullable(12)] = None
    topic_id: Annotated[Uuid, Versions(10)] = None
    is_internal: Annotated[Boolean, Versions(1)] = False
    partitions: tuple[MetadataResponsePartition, ...] = ()
    topic_authorized_operations: Annotated[Int32, Versions(8)] = -2147483648


@message
class MetadataResponse:
    """Metadata's response."""

    throttle_time_ms: Annotated[Int32, Versions(3)] = 0
    brokers: tuple[MetadataResponseBroker, ...] = ()
    cluster_id: Annotated[String | None, Versions(2)] = None
    controller_id: Annotated[Int32, Versions(1)] = -1
    topics: tuple[MetadataResponseTopic, ...] = ()
    cluster_authorized_operations: Annotated[Int32, Versions(8, 10)] = -2147483648
    error_code: Annotated[Error, Versions(13)] = ErrorCode.none
