"""Builds and reads the messages that only `Admin` sends: topics, configs, and the cluster.

Pure functions from plain values to messages and back, as in `oncelog.client.requests`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from oncelog.client.values import ConfigEntry, NewTopic
from oncelog.core.errors import ErrorCode
from oncelog.protocol.messages import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
)
from oncelog.protocol.messages import incremental_alter_configs as alter_configs

RESOURCE_TYPES: Final = {"topic": 2, "broker": 4, "client metrics": 16, "group": 32}
"""Kafka's `ConfigResource.Type`."""

_SET: Final = 0
_DELETE: Final = 1
"""Kafka's `AlterConfigOp.OpType`."""

_SOURCES: Final = {
    1: "topic",
    2: "dynamic broker",
    3: "dynamic default broker",
    4: "broker",
    5: "default",
    7: "client metrics",
    8: "group",
}
"""`DescribeConfigsResponse.ConfigSource` in words."""


def create_topics_request(
    topics: Sequence[NewTopic], timeout_ms: float
) -> create_topics.CreateTopicsRequest:
    """CreateTopics with the broker choosing replicas."""
    return create_topics.CreateTopicsRequest(
        topics=tuple(
            create_topics.CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                assignments=(),
                configs=tuple(
                    create_topics.CreatableTopicConfig(name=key, value=str(value))
                    for key, value in topic.configs.items()
                ),
            )
            for topic in topics
        ),
        timeout_ms=int(timeout_ms),
    )


def delete_topics_request(
    names: Sequence[str], timeout_ms: float
) -> delete_topics.DeleteTopicsRequest:
    """DeleteTopics by name."""
    return delete_topics.DeleteTopicsRequest(
        topics=tuple(delete_topics.DeleteTopicState(name=name, topic_id=None) for name in names),
        timeout_ms=int(timeout_ms),
    )


def create_partitions_request(
    counts: Mapping[str, int], timeout_ms: float
) -> create_partitions.CreatePartitionsRequest:
    """CreatePartitions to these totals per topic; the broker chooses replicas."""
    return create_partitions.CreatePartitionsRequest(
        topics=tuple(
            create_partitions.CreatePartitionsTopic(name=name, count=count, assignments=None)
            for name, count in counts.items()
        ),
        timeout_ms=int(timeout_ms),
        validate_only=False,
    )


def describe_configs_request(
    kind: str, names: Iterable[str]
) -> describe_configs.DescribeConfigsRequest:
    """DescribeConfigs of resources of one kind, every key."""
    return describe_configs.DescribeConfigsRequest(
        resources=tuple(
            describe_configs.DescribeConfigsResource(
                resource_type=RESOURCE_TYPES[kind],
                resource_name=name,
                configuration_keys=None,
            )
            for name in names
        ),
        include_synonyms=False,
        include_documentation=False,
    )


def configs_of(
    response: describe_configs.DescribeConfigsResponse,
) -> Iterator[tuple[str, ErrorCode, str, dict[str, ConfigEntry]]]:
    """Yield (name, error, error message, entries by key) of each resource of a response."""
    for result in response.results:
        entries = {
            str(entry.name): ConfigEntry(
                str(entry.name),
                entry.value,
                _SOURCES.get(int(entry.config_source), "unknown"),
                bool(entry.read_only),
                bool(entry.is_sensitive),
            )
            for entry in result.configs
        }
        yield str(result.resource_name), result.error_code, result.error_message or "", entries


def alter_configs_request(
    kind: str, name: str, to_set: Mapping[str, str], to_delete: Sequence[str]
) -> alter_configs.IncrementalAlterConfigsRequest:
    """IncrementalAlterConfigs of one resource."""
    return alter_configs.IncrementalAlterConfigsRequest(
        resources=(
            alter_configs.IncrementalAlterConfigsResource(
                resource_type=RESOURCE_TYPES[kind],
                resource_name=name,
                configs=(
                    *(_operation(key, _SET, value) for key, value in to_set.items()),
                    *(_operation(key, _DELETE, None) for key in to_delete),
                ),
            ),
        ),
        validate_only=False,
    )


def _operation(
    key: str, operation: int, value: str | None
) -> alter_configs.IncrementalAlterableConfig:
    return alter_configs.IncrementalAlterableConfig(
        name=key, config_operation=operation, value=value
    )
