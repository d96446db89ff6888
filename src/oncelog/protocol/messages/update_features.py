"""UpdateFeatures."""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import (
    Boolean,
    Error,
    Int8,
    Int16,
    Int32,
    RequestFor,
    String,
    Versions,
)


@message
class FeatureUpdateKey:
    """An element of `feature_updates` in UpdateFeaturesRequest."""

    feature: String = ""
    max_version_level: Int16 = 0
    allow_downgrade: Annotated[Boolean, Versions(0, 0)] = False
    upgrade_type: Annotated[Int8, Versions(1)] = 1


@message
class UpdateFeaturesRequest(RequestFor["UpdateFeaturesResponse"]):
    """UpdateFeatures, versions 0 to 2."""

    timeout_ms: Int32 = 60000
    feature_updates: tuple[FeatureUpdateKey, ...] = ()
    validate_only: Annotated[Boolean, Versions(1)] = False


@message
class UpdatableFeatureResult:
    """An element of `results` in UpdateFeaturesResponse."""

    feature: String = ""
    error_code: Error = ErrorCode.none
    error_message: String | None = None


@message
class UpdateFeaturesResponse:
    """UpdateFeatures's response."""

    throttle_time_ms: Int32 = 0
    error_code: Error = ErrorCode.none
    error_message: String | None = None
    results: Annotated[tuple[UpdatableFeatureResult, ...], Versions(0, 1)] = ()
