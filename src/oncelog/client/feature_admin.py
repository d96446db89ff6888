"""Describes and updates features and their finalized levels for `Admin` (KIP-584)."""

from collections.abc import Mapping
from typing import Final, Literal

from oncelog.client.cluster import Cluster
from oncelog.client.errors import FatalError
from oncelog.client.values import FeatureLevels
from oncelog.core.errors import ErrorCode
from oncelog.peer.connection import Connection
from oncelog.peer.negotiation import versions_request
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

__all__ = ["FeatureChange", "describe_features", "require_versions", "update_request"]

FeatureChange = Literal["upgrade", "downgrade", "unsafe downgrade"]
"""The permitted change. An unsafe downgrade may lose metadata of the higher level."""

_UPGRADE_TYPES: Final[Mapping[FeatureChange, int]] = {
    "upgrade": 1,
    "downgrade": 2,
    "unsafe downgrade": 3,
}
_CHANGE_AND_DRY_RUN_SINCE: Final = 1
"""The UpdateFeatures version with types of downgrade and a dry run."""


async def describe_features(cluster: Cluster, node_id: int | None) -> dict[str, FeatureLevels]:
    """Every feature that the broker supports, by name."""
    request = versions_request()
    if node_id is None:
        response = await cluster.request_any(ApiKey.API_VERSIONS, request)
    else:
        if node_id not in cluster.metadata.nodes:
            await cluster.refresh([])
        if node_id not in cluster.metadata.nodes:
            raise FatalError(ErrorCode.broker_not_available, f"there is no broker {node_id}")
        response = await cluster.request_node(node_id, ApiKey.API_VERSIONS, request)
    finalized = {f.name: f.max_version_level for f in response.finalized_features}
    epoch = response.finalized_features_epoch
    return {
        feature.name: FeatureLevels(
            feature.name,
            feature.min_version,
            feature.max_version,
            finalized.get(feature.name, 0),
            epoch if epoch >= 0 else None,
        )
        for feature in sorted(response.supported_features, key=lambda feature: feature.name)
    }


def update_request(
    levels: Mapping[str, int], change: FeatureChange, timeout_ms: float, *, dry_run: bool
) -> UpdateFeaturesRequest:
    """UpdateFeatures to these levels."""
    return UpdateFeaturesRequest(
        timeout_ms=int(timeout_ms),
        feature_updates=tuple(
            FeatureUpdateKey(
                feature=name,
                max_version_level=level,
                allow_downgrade=change != "upgrade",
                upgrade_type=_UPGRADE_TYPES[change],
            )
            for name, level in levels.items()
        ),
        validate_only=dry_run,
    )


def require_versions(connection: Connection, change: FeatureChange, *, dry_run: bool) -> None:
    """Refuse options that the request's version lacks: the broker would ignore them.

    Raises `FatalError` (unsupported_version).
    """
    if not (dry_run or change == "unsafe downgrade"):
        return
    if not connection.supports(ApiKey.UPDATE_FEATURES, _CHANGE_AND_DRY_RUN_SINCE):
        wish = "dry run" if dry_run else "unsafe downgrade"
        text = f"{connection.peer} knows no {wish} of features (UpdateFeatures before v1)"
        raise FatalError(ErrorCode.unsupported_version, text)
