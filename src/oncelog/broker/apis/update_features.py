"""Handles UpdateFeatures (57), versions 0-2: changes finalized levels, all updates or none.

A refusal is INVALID_UPDATE_VERSION with a message, as from Kafka's controller. Up to version 1 a
success also lists each feature. The metadata and ApiVersions show the new level when the reply is
sent. Gap: `metadata.version` is no feature here, as there is no quorum to agree on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.broker.net.request import Request
from oncelog.controller.events import UpdateFeatures
from oncelog.controller.features import FeatureUpdate, UpgradeType
from oncelog.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]

_LISTS_FEATURES_UNTIL: Final = 1


async def handle(
    context: Context, request: Request[UpdateFeaturesRequest]
) -> UpdateFeaturesResponse:
    """Update the features, or return the error."""
    body = request.body
    wishes = [_wish(update, request.version) for update in body.feature_updates]
    event = UpdateFeatures(tuple(wishes), body.validate_only)
    controller = context.controller
    outcome = await controller.submit(event, controller.due_s(body.timeout_ms))
    names = [] if outcome.error or request.version > _LISTS_FEATURES_UNTIL else wishes
    return UpdateFeaturesResponse(
        error_code=outcome.error,
        error_message=outcome.message,
        results=tuple(UpdatableFeatureResult(feature=wish.name) for wish in names),
    )


def _wish(update: FeatureUpdateKey, version: int) -> FeatureUpdate:
    kind = update.upgrade_type
    if version == 0 and update.allow_downgrade:
        kind = UpgradeType.SAFE_DOWNGRADE
    return FeatureUpdate(update.feature, update.max_version_level, kind)
