"""Handles AlterConfigs (33), versions 0-2: replaces all configs that a topic or group overrides.

A key that the request does not name returns to the broker's value; IncrementalAlterConfigs avoids
that (KIP-339). Topics (resource type 2) and groups (32) change at once;
`oncelog.broker.apis.config_changes` describes brokers. Gap: configs of client metrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.apis.config_changes import ResourceChanges, alter
from oncelog.broker.net.request import Request
from oncelog.controller.changes import ConfigOperation
from oncelog.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


async def handle(context: Context, request: Request[AlterConfigsRequest]) -> AlterConfigsResponse:
    """Replace the configs of each resource."""
    resources = [
        ResourceChanges(
            resource.resource_type,
            resource.resource_name,
            [(entry.name, ConfigOperation.SET, entry.value) for entry in resource.configs],
            replaces=True,
        )
        for resource in request.body.resources
    ]
    outcomes = await alter(context, resources, validate_only=request.body.validate_only)
    return AlterConfigsResponse(
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
