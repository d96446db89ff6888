"""Handles IncrementalAlterConfigs (44), versions 0-1: sets, deletes, appends to or subtracts.

Each resource changes wholly or not at all (KIP-339). Topics (resource type 2) and groups (32)
change at once; `oncelog.broker.apis.config_changes` describes brokers. Gap: broker loggers (8) and
client metrics (16) get INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.apis.config_changes import ResourceChanges, alter
from oncelog.broker.net.request import Request
from oncelog.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


async def handle(
    context: Context, request: Request[IncrementalAlterConfigsRequest]
) -> IncrementalAlterConfigsResponse:
    """Change the configs of each resource."""
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
            IncrementalAlterConfigsResourceResponse(
                error_code=outcome.error,
                error_message=outcome.text,
                resource_type=resource.resource_type,
                resource_name=resource.name,
            )
            for resource, outcome in zip(resources, outcomes, strict=True)
        ),
    )
