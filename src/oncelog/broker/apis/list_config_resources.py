"""Handles ListConfigResources (74), versions 0-1: lists what has configs, by type (KIP-1142).

Version 0 asks for client metrics (16), of which there are none. In version 1 an empty list asks for
all types: topics (2), brokers (4), broker loggers (8), client metrics (16), groups (32). An unknown
type gets UNSUPPORTED_VERSION. Only groups with configs of their own are listed. Gap: client metrics
have no configs here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32


def handle(
    context: Context, request: Request[ListConfigResourcesRequest]
) -> ListConfigResourcesResponse:
    """List the resources of each type from the metadata image."""
    supported: tuple[int, ...] = (CLIENT_METRICS,)
    if request.version > 0:
        supported = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)
    wanted = set(request.body.resource_types or supported)
    if not wanted <= set(supported):
        return ListConfigResourcesResponse(error_code=ErrorCode.unsupported_version)
    found: list[tuple[int, str]] = []
    if GROUP in wanted:
        found += [(GROUP, group_id) for group_id in context.image.group_configs]
    for kind in (BROKER_LOGGER, BROKER):
        if kind in wanted:
            found += [(kind, str(broker_id)) for broker_id in context.image.brokers]
    if TOPIC in wanted:
        found += [(TOPIC, name) for name in context.image.topics]
    return ListConfigResourcesResponse(
        error_code=ErrorCode.none,
        config_resources=tuple(
            ConfigResource(resource_name=name, resource_type=kind) for kind, name in found
        ),
    )
