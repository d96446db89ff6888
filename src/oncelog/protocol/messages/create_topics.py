"""CreateTopics."""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import (
    Boolean,
    Error,
    Int8,
    Int16,
    Int32,
    RequestFor,
    String,
    Tag,
    Uuid,
    Versions,
)


@message
class CreatableReplicaAssignment:
    """An element of `assignments` in CreatableTopic."""

    partition_index: Int32 = 0
    broker_ids: tuple[Int32, ...] = ()


@message
class CreatableTopicConfig:
    """An element of `configs` in CreatableTopic."""

    name: String = ""
    value: String | None = None


@message
class CreatableTopic:
    """An element of `topics` in CreateTopicsRequest."""

    name: String = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: tuple[CreatableReplicaAssignment, ...] = ()
    configs: tuple[CreatableTopicConfig, ...] = ()


@message
class CreateTopicsRequest(RequestFor["CreateTopicsResponse"]):
    """CreateTopics, versions 2 to 7."""

    topics: tuple[CreatableTopic, ...] = ()
    timeout_ms: Int32 = 60000
    validate_only: Boolean = False


@message
class CreatableTopicConfigs:
    """An element of `configs` in CreatableTopicResult."""

    name: String = ""
    value: String | None = None
    read_only: Boolean = False
    config_source: Int8 = -1
    is_sensitive: Boolean = False


@message
class CreatableTopicResult:
    """An element of `topics` in CreateTopicsResponse."""

    name: String = ""
    topic_id: Annotated[Uuid, Versions(7)] = None
    error_code: Error = ErrorCode.none
    error_message: String | None = None
    topic_config_error_code: Annotated[Error, Versions(5), Tag(0)] = ErrorCode.none
    num_partitions: Annotated[Int32, Versions(5)] = -1
    replication_factor: Annotated[Int16, Versions(5)] = -1
    configs: Annotated[tuple[CreatableTopicConfigs, ...] | None, Versions(5)] = ()


@message
class CreateTopicsResponse:
    """CreateTopics's response."""

    throttle_time_ms: Int32 = 0
    topics: tuple[CreatableTopicResult, ...] = ()
