"""IncrementalAlterConfigs (44), versions 0-1: set, remove, append to, subtract from settings.

Per resource all or nothing (KIP-339). Topics (resource type 2) change at once; see
`oncelog.broker.apis.config_changes` for brokers. Gap: broker loggers (8), client metrics (16) and
groups (32) are INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.broker.apis.config_changes import ResourceChanges, alter
from oncelog.broker.net.request import Request
from oncelog.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


async def handle(context: Context, request: Request[IncrementalAlterConfigsRequest]) -> Any:
    """Change the settings of each resource."""
    resources = [
        ResourceChanges(
            resource.resource_type,
            resource.resource_name,
            [(entry.name, entry.config_operation, entry.value) for entry in resource.configs],
        )
        for resource in request.body.resources
    ]
    outcomes = await alter(context, resources, validate_only=request.body.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=tuple(
            AlterConfigsResourceResponse(
                error_code=outcome.error,
                error_message=outcome.text,
                resource_type=resource.resource_type,
                resource_name=resource.name,
            )
            for resource, outcome in zip(resources, outcomes, strict=True)
        ),
    )
