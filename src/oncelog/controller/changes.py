"""Decides changes of existing topics: more partitions, other configs.

Each function takes the current topic (None: there is none) and returns an outcome with the changed
topic, or Kafka's error (`ReplicationControlManager`, `ConfigurationControlManager`,
`ControllerConfigurationValidator`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import NamedTuple

from oncelog.controller.image import MetadataImage, TopicImage
from oncelog.controller.placement import (
    known_brokers,
    new_partition,
    place_partitions,
    placeable_brokers,
)
from oncelog.controller.topics import TopicOutcome, name_problem
from oncelog.core.config import BrokerConfig, check_topic_overrides
from oncelog.core.config_definition import ConfigError, ConfigType, format_value
from oncelog.core.config_keys import TOPIC_KEYS
from oncelog.core.errors import ErrorCode
from oncelog.core.limits import CONFIG_VALUE_LENGTH_MAX, TOPIC_PARTITIONS_COUNT_MAX

__all__ = [
    "ConfigChange",
    "ConfigOperation",
    "decide_config_changes",
    "decide_config_replacement",
    "decide_partitions",
    "length_problem",
]


class ConfigOperation(IntEnum):
    """The operation on a config; the numbers are IncrementalAlterConfigs' (`AlterConfigOp`)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """One config to change; DELETE ignores `value`."""

    name: str
    operation: ConfigOperation
    value: str | None


def decide_partitions(
    image: MetadataImage,
    name: str,
    topic: TopicImage | None,
    count: int,
    assignments: Sequence[Sequence[int]] | None = None,
) -> TopicOutcome:
    """Return the topic with `count` partitions, placed by `assignments` or round robin."""
    if topic is None:
        text = "This server does not host this topic-partition."
        return TopicOutcome(name, ErrorCode.unknown_topic_or_partition, text)
    problem = _count_problem(topic, count)
    if problem is not None:
        return TopicOutcome(name, ErrorCode.invalid_partitions, problem)
    additional = count - len(topic.partitions)
    if additional > TOPIC_PARTITIONS_COUNT_MAX:
        text = f"Excessively many partitions: {additional}, at most {TOPIC_PARTITIONS_COUNT_MAX}"
        return TopicOutcome(name, ErrorCode.policy_violation, text)
    factor = len(topic.partitions[0].replicas)
    if assignments is not None:
        problem = _assignment_problem(image, assignments, additional, factor)
        if problem is not None:
            return TopicOutcome(name, ErrorCode.invalid_replica_assignment, problem)
        able = placeable_brokers(image)
        added = [new_partition(tuple(replicas), able) for replicas in assignments]
        if None in added:
            text = "All brokers of a partition in the manual assignment are away or shutting down."
            return TopicOutcome(name, ErrorCode.invalid_replica_assignment, text)
        grown = tuple(filter(None, added))
    else:
        start = image.partitions_count - len(topic.partitions)
        placed = place_partitions(image, start, range(len(topic.partitions), count), factor)
        if isinstance(placed, str):
            return TopicOutcome(name, ErrorCode.invalid_replication_factor, placed)
        grown = placed
    return TopicOutcome(name, topic=replace(topic, partitions=topic.partitions + grown))


def _count_problem(topic: TopicImage, count: int) -> str | None:
    present = len(topic.partitions)
    if count == present:
        return f"Topic already has {present} partition(s)."
    if count < present:
        return (
            f"The topic {topic.name} currently has {present} partition(s); "
            f"{count} would not be an increase."
        )
    if topic.is_internal:
        # D9: ids would map to other partitions, and their records would not be found.
        return f"The partition count of {topic.name} is fixed: ids are found by it."
    return None


def _assignment_problem(
    image: MetadataImage, assignments: Sequence[Sequence[int]], additional: int, factor: int
) -> str | None:
    if len(assignments) != additional:
        return (
            f"Attempted to add {additional} additional partition(s), but only "
            f"{len(assignments)} assignment(s) were specified."
        )
    for replicas in assignments:
        if not replicas:
            return "The manual partition assignment includes an empty replica list."
        if len(set(replicas)) != len(replicas):
            return "The manual partition assignment names a broker more than once."
        unknown = [broker for broker in replicas if broker not in known_brokers(image)]
        if unknown:
            return (
                f"The manual partition assignment includes broker {unknown[0]}, "
                "but no such broker is registered."
            )
        if len(replicas) != factor:
            return (
                f"The manual partition assignment includes a partition with {len(replicas)} "
                f"replica(s), but this is not consistent with the {factor} replica(s) of the topic."
            )
    return None


def decide_config_replacement(
    name: str, topic: TopicImage | None, config: Mapping[str, str]
) -> TopicOutcome:
    """Return the topic with exactly these config overrides (AlterConfigs)."""
    if not name:
        text = "Default topic resources are not allowed."
        return TopicOutcome(name, ErrorCode.invalid_request, text)
    problem = name_problem(name)
    if problem is not None:
        text = f"Topic name is invalid: {problem}"
        return TopicOutcome(name, ErrorCode.invalid_topic_exception, text)
    problem = length_problem(config)
    if problem is not None:
        return TopicOutcome(name, ErrorCode.invalid_config, problem)
    try:
        check_topic_overrides(config)
    except ConfigError as error:
        return TopicOutcome(name, ErrorCode.invalid_config, str(error))
    if topic is None:
        text = f"The topic '{name}' does not exist."
        return TopicOutcome(name, ErrorCode.unknown_topic_or_partition, text)
    return TopicOutcome(name, topic=replace(topic, config=dict(config)))


def decide_config_changes(
    name: str,
    topic: TopicImage | None,
    changes: Sequence[ConfigChange],
    broker: BrokerConfig,
) -> TopicOutcome:
    """Return the topic with some configs changed (IncrementalAlterConfigs).

    APPEND and SUBTRACT change the list of `broker` where the topic has no override.
    """
    config = dict(topic.config) if topic is not None else {}
    for key, operation, value in changes:
        if operation is ConfigOperation.DELETE:
            config.pop(key, None)
        elif operation is ConfigOperation.SET:
            config[key] = value or ""
        else:
            if key not in TOPIC_KEYS or TOPIC_KEYS[key][0].type is not ConfigType.LIST:
                text = f"Can't {operation.name} to key {key} because its type is not LIST."
                return TopicOutcome(name, ErrorCode.invalid_config, text)
            present = config[key] if key in config else _effective(broker, key)
            config[key] = _edited(present, operation, value or "")
    return decide_config_replacement(name, topic, config)


def _effective(broker: BrokerConfig, key: str) -> str:
    return format_value(broker.topic_value({}, key)) or ""


def _edited(present: str, operation: ConfigOperation, value: str) -> str:
    parts = [part.strip() for part in present.split(",")] if present else []
    for part in (part.strip() for part in value.split(",")):
        if operation is ConfigOperation.APPEND and part not in parts:
            parts.append(part)
        elif operation is ConfigOperation.SUBTRACT and part in parts:
            parts.remove(part)
    return ",".join(parts)


def length_problem(config: Mapping[str, str]) -> str | None:
    """Return why a config's value is too long to be stored; None if none is."""
    if any(len(value) > CONFIG_VALUE_LENGTH_MAX for value in config.values()):
        return (
            "The configuration value cannot be added because it exceeds the maximum value size "
            f"of {CONFIG_VALUE_LENGTH_MAX} bytes."
        )
    return None
