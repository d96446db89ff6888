"""Handles ApiVersions (18), versions 0-5: lists the APIs served and the finalized features.

A request in an unknown version gets UNSUPPORTED_VERSION and the ranges, in version 0 (KIP-511).
From version 5 on a client may name the cluster and the broker that it means; if this is another
one, it gets REBOOTSTRAP_REQUIRED and nothing else (KIP-1242).
Where `transaction.version` is finalized at 2, Java and franz-go clients use KIP-890's protocol. As
in Kafka a feature at level 0 is not listed. The epoch of the features is the metadata image's
revision, which never decreases. Gap: none known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.broker.apis import HANDLERS
from oncelog.broker.net.request import Request
from oncelog.controller.features import FEATURES
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ADVERTISED, PRIVATE, is_software_name
from oncelog.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

_LEVEL_ZERO_SINCE: Final = 4
"""Clients below this version may fail to read a feature whose lowest level is 0 (KAFKA-17492)."""

_NO_NODE: Final = -1


def handle(context: Context, request: Request[ApiVersionsRequest | None]) -> ApiVersionsResponse:
    """Reply with the ranges and features, or with the error."""
    body = request.body
    if body is None:
        return _response(context, request, ErrorCode.unsupported_version)
    if request.version >= 3:
        names = (body.client_software_name, body.client_software_version)
        # A client names both the cluster and the broker, or neither.
        is_half = (body.cluster_id is None) is not (body.node_id == _NO_NODE)
        if is_half or not all(map(is_software_name, names)):
            return ApiVersionsResponse(error_code=ErrorCode.invalid_request)
        request.connection.client_software = " ".join(names)
    meant = body.cluster_id, body.node_id
    if body.cluster_id is not None and meant != (context.image.cluster_id, context.broker_id):
        return ApiVersionsResponse(error_code=ErrorCode.rebootstrap_required)
    return _response(context, request, ErrorCode.none)


def _response(
    context: Context, request: Request[ApiVersionsRequest | None], error: ErrorCode
) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=error,
        api_keys=tuple(
            ApiVersion(
                api_key=api.value,
                min_version=ADVERTISED[api].min,
                max_version=ADVERTISED[api].max,
            )
            for api in sorted(HANDLERS.keys() - PRIVATE)
        ),
        supported_features=tuple(
            SupportedFeatureKey(name=name, min_version=levels.min, max_version=levels.max)
            for name, (levels, _) in FEATURES.items()
            if levels.min > 0 or request.version >= _LEVEL_ZERO_SINCE
        ),
        finalized_features_epoch=context.image.revision,
        finalized_features=tuple(
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in context.image.features.items()
            if level > 0
        ),
    )
