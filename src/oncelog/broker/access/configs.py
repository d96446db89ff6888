"""Asks for the APIs of configs: each resource has a need of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from oncelog.broker.access.asked import Asked, AskedParts
from oncelog.broker.apis.needs import (
    ALTER_CLUSTER_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC_CONFIGS,
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_TOPIC_CONFIGS,
    Need,
)
from oncelog.core.errors import ErrorCode
from oncelog.protocol.messages.alter_configs import AlterConfigsRequest
from oncelog.protocol.messages.describe_configs import DescribeConfigsRequest
from oncelog.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

TOPIC: Final = 2
GROUP: Final = 32
LOGGER: Final = 8
CLUSTER: Final = (4, LOGGER, 16)
"""Brokers, their loggers, and client metrics."""


class _Resource(NamedTuple):
    kind: int
    name: str


def _resource(part: Any) -> _Resource:
    return _Resource(part.resource_type, part.resource_name)


def _needs(topic: Need, group: Need, cluster: Need) -> Mapping[int, Need]:
    return {TOPIC: topic, GROUP: group, **dict.fromkeys(CLUSTER, cluster)}


_DESCRIBE: Final = _needs(DESCRIBE_TOPIC_CONFIGS, DESCRIBE_GROUP_CONFIGS, DESCRIBE_CLUSTER_CONFIGS)
_ALTER: Final = _needs(ALTER_TOPIC_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_CLUSTER_CONFIGS)
_REPLACE: Final = {kind: need for kind, need in _ALTER.items() if kind != LOGGER}
"""AlterConfigs knows no loggers."""
_DESCRIBED: Final = AskedParts("resources", "results", _resource)
_ALTERED: Final = AskedParts("resources", "responses", _resource)


def describe_configs(asked: Asked[DescribeConfigsRequest]) -> object:
    """Each topic, each group, and the cluster for brokers."""
    return asked.serve_but(_DESCRIBED, _refused(asked, _DESCRIBE))


def alter_configs(asked: Asked[AlterConfigsRequest]) -> object:
    """Each topic, each group, and the cluster for brokers."""
    return asked.serve_but(_ALTERED, _refused(asked, _REPLACE))


def incremental_alter_configs(asked: Asked[IncrementalAlterConfigsRequest]) -> object:
    """Each topic, each group, and the cluster for brokers."""
    return asked.serve_but(_ALTERED, _refused(asked, _ALTER))


def _refused(asked: Asked[Any], needs: Mapping[int, Need]) -> dict[_Resource, ErrorCode]:
    """Return the error of each resource; the handler refuses those of an unknown type."""
    refused = {}
    for resource in dict.fromkeys(map(_resource, asked.body.resources)):
        need = needs.get(resource.kind)
        if need is None:
            continue
        is_named = resource.kind not in CLUSTER
        if not (asked.may(need, resource.name) if is_named else asked.may(need)):
            refused[resource] = need.error
    return refused
