"""Handles DescribeConfigs (32), versions 1-4: returns configs of topics, groups and this broker.

Each config carries its source. Topic resources (2) list every supported topic key. Broker resources
(4) must name this broker, or be empty for the cluster-wide defaults, of which there are none. A key
of Kafka's that has no effect here is listed only if it was set. All broker configs are read-only:
they are fixed at start. Groups (32) list every key of consumer groups, whether the group exists or
not. Client metrics (16) have none. Gap: broker loggers (8) get
INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from oncelog.broker.apis.responses import each_once
from oncelog.broker.net.request import Request
from oncelog.controller.cluster_config import CLUSTER_KEYS
from oncelog.controller.topics import name_problem
from oncelog.core.config import ConfigSource, SynonymValue
from oncelog.core.config_definition import (
    ConfigSupport,
    ConfigType,
    ConfigValue,
    Definition,
    format_value,
)
from oncelog.core.config_keys import BROKER_KEYS, TOPIC_KEYS
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.group_keys import GROUP_KEYS, group_synonyms, group_value
from oncelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
CLIENT_METRICS_RESOURCE: Final = 16
GROUP_RESOURCE: Final = 32


def handle(context: Context, request: Request[DescribeConfigsRequest]) -> DescribeConfigsResponse:
    """Describe each resource independently."""
    resources = each_once(
        request.body.resources, lambda resource: (resource.resource_type, resource.resource_name)
    )
    return DescribeConfigsResponse(
        results=tuple(_describe(context, request, resource) for resource in resources),
    )


def _describe(
    context: Context, request: Request[DescribeConfigsRequest], resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    try:
        configs = _configs(context, request, resource)
    except ProtocolError as error:
        return DescribeConfigsResult(
            error_code=error.code,
            error_message=error.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=(),
        )
    return DescribeConfigsResult(
        error_code=ErrorCode.none,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=tuple(configs),
    )


def _configs(
    context: Context, request: Request[DescribeConfigsRequest], resource: DescribeConfigsResource
) -> list[DescribeConfigsResourceResult]:
    config = context.config
    keys = resource.configuration_keys
    name = resource.resource_name
    if resource.resource_type == TOPIC_RESOURCE:
        problem = name_problem(name)
        if problem is not None:
            raise ProtocolError(ErrorCode.invalid_topic_exception, problem)
        topic = context.image.topic(name)
        if topic is None:
            raise ProtocolError(
                ErrorCode.unknown_topic_or_partition, "This server does not host this topic."
            )
        entries = []
        for key in _chosen(TOPIC_KEYS, keys):
            value, synonyms = (
                config.topic_value(topic.config, key),
                config.topic_synonyms(topic.config, key),
            )
            ours = _of_cluster(context, key)
            if ours is not None:
                synonyms = tuple(s for s in synonyms if s.source is ConfigSource.DYNAMIC_TOPIC)
                synonyms = (*synonyms, ours, *config.topic_synonyms({}, key)[-1:])
                value = TOPIC_KEYS[key][0].parse(synonyms[0].value or "")
            entries.append(_entry(request, TOPIC_KEYS[key][0], value, synonyms, read_only=False))
        return entries
    if resource.resource_type == BROKER_RESOURCE:
        if name == "":
            return []
        if name != str(context.broker_id):
            raise ProtocolError(
                ErrorCode.invalid_request,
                f"Unexpected broker id, expected {context.broker_id} or empty string, "
                f"but received {name}",
            )
        entries = []
        for key in _chosen(BROKER_KEYS, keys):
            value, synonyms = config.get(key), config.broker_synonyms(key)
            if BROKER_KEYS[key].support is ConfigSupport.NO_EFFECT and value is None:
                continue
            ours = _of_cluster(context, key)
            if ours is not None:
                synonyms = (ours, *synonyms)
                value = BROKER_KEYS[key].parse(ours.value or "")
            entries.append(_entry(request, BROKER_KEYS[key], value, synonyms, read_only=True))
        return entries
    if resource.resource_type == CLIENT_METRICS_RESOURCE:
        # There are none; Kafka's tools request them nevertheless.
        _require_name(name, "Client metrics subscription")
        return []
    if resource.resource_type == GROUP_RESOURCE:
        _require_name(name, "Group")
        return _group_configs(context, request, resource)
    text = f"Unsupported resource type: {resource.resource_type}"
    raise ProtocolError(ErrorCode.invalid_request, text)


def _of_cluster(context: Context, key: str) -> SynonymValue | None:
    """Return the cluster's value of a config that is not each broker's own.

    None for other configs, and where this broker is alone: then it is the value of its file.
    """
    text = context.image.cluster_config.get(key) if key in CLUSTER_KEYS else None
    if text is None or len(context.image.brokers) == 1:
        return None
    return SynonymValue(key, text, ConfigSource.DYNAMIC_DEFAULT_BROKER)


def _require_name(name: str, kind: str) -> None:
    if not name:
        raise ProtocolError(ErrorCode.invalid_request, f"{kind} name must not be empty")


def _group_configs(
    context: Context, request: Request[DescribeConfigsRequest], resource: DescribeConfigsResource
) -> list[DescribeConfigsResourceResult]:
    overrides = context.image.group_configs.get(resource.resource_name, {})
    return [
        _entry(
            request,
            GROUP_KEYS[key],
            group_value(context.config, overrides, key),
            group_synonyms(context.config, overrides, key),
            read_only=False,
        )
        for key in _chosen(GROUP_KEYS, resource.configuration_keys)
        if GROUP_KEYS[key].support is not ConfigSupport.NO_EFFECT or key in overrides
    ]


def _chosen(table: Mapping[str, object], keys: Iterable[str] | None) -> list[str]:
    # No list asks for all keys; so does an empty one, from clients that cannot send null.
    wanted = frozenset(keys) if keys else table.keys()
    return [key for key in sorted(table) if key in wanted]


def _entry(
    request: Request[DescribeConfigsRequest],
    definition: Definition,
    value: ConfigValue,
    synonyms: tuple[SynonymValue, ...],
    *,
    read_only: bool,
) -> DescribeConfigsResourceResult:
    sensitive = definition.type is ConfigType.PASSWORD
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    listed = synonyms if request.body.include_synonyms and not sensitive else ()
    return DescribeConfigsResourceResult(
        name=definition.name,
        value=None if sensitive else format_value(value),
        read_only=read_only,
        config_source=source.value,
        is_sensitive=sensitive,
        synonyms=tuple(
            DescribeConfigsSynonym(name=s.name, value=s.value, source=s.source.value)
            for s in listed
        ),
        config_type=definition.type.value,
        documentation=definition.doc if request.body.include_documentation else None,
    )
