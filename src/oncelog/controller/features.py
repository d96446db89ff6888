"""Decides finalized features: the levels that all brokers of the cluster use (KIP-584).

The rules and errors are those of Kafka's `FeatureControlManager`. A feature at level 0 is disabled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import VersionRange

__all__ = [
    "FEATURES",
    "GROUP_VERSION",
    "SUPPORTED_LEVELS",
    "TRANSACTION_VERSION",
    "Feature",
    "FeatureUpdate",
    "UpdateOutcome",
    "UpgradeType",
    "all_levels",
    "decide_update",
    "demanded_updates",
    "level_text",
    "unsupported_level",
]

TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"


class Feature(NamedTuple):
    """A feature's supported levels. `default` is the level while none was chosen."""

    levels: VersionRange
    default: int


FEATURES: Final[Mapping[str, Feature]] = {
    TRANSACTION_VERSION: Feature(VersionRange(0, 2), 2),
    GROUP_VERSION: Feature(VersionRange(0, 1), 1),
}
"""By name. A setting of transaction.version's name finalizes a level at each start."""


SUPPORTED_LEVELS: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {name: (feature.levels.min, feature.levels.max) for name, feature in FEATURES.items()}
)
"""The lowest and the highest level by name, as a registration has them."""
_OFF: Final = (0, 0)
"""The levels of a feature that a broker does not know."""
_NOTHING: Final[Mapping[int, Mapping[str, tuple[int, int]]]] = MappingProxyType({})


class UpgradeType(IntEnum):
    """The permitted direction of a change (Kafka's `FeatureUpdate.UpgradeType`)."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """One update of an UpdateFeatures request; `upgrade_type` as received."""

    name: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE


def all_levels(chosen: Mapping[str, int]) -> dict[str, int]:
    """Return the level of every feature: the chosen one, else its default."""
    return {name: chosen.get(name, feature.default) for name, feature in FEATURES.items()}


class UpdateOutcome(NamedTuple):
    """The result of a request: the chosen levels after it, or the error."""

    chosen: Mapping[str, int]
    error: ErrorCode = ErrorCode.none
    message: str | None = None


def decide_update(
    chosen: Mapping[str, int],
    updates: Iterable[FeatureUpdate],
    supported: Mapping[int, Mapping[str, tuple[int, int]]] = _NOTHING,
) -> UpdateOutcome:
    """Decide on all updates together: all of them, or none.

    `supported` has the lowest and highest levels of each registered broker, by its id.
    """
    after = dict(chosen)
    levels = all_levels(chosen)
    for update in updates:
        problem = _problem(levels.get(update.name, 0), update, supported)
        if problem is not None:
            text = (
                "The update failed for all features since the following feature had an error: "
                f"Invalid update version {update.level} for feature {update.name}. {problem}"
            )
            return UpdateOutcome(chosen, ErrorCode.invalid_update_version, text)
        after[update.name] = update.level
    return UpdateOutcome(after)


def level_text(update: FeatureUpdate) -> str:
    """Return what the log says of an update that was written."""
    return f"the level of {update.name} is {update.level} from now on"


def unsupported_level(
    finalized: Mapping[str, int], supported: Mapping[str, tuple[int, int]]
) -> str | None:
    """Return why a broker that supports these levels cannot register; None if it can."""
    for name, level in finalized.items():
        low, high = supported.get(name, _OFF)
        if level and not low <= level <= high:
            return (
                f"Unable to register because the broker does not support finalized version {level}"
                f" of {name}. The broker wants a version between {low} and {high}, inclusive."
            )
    return None


def demanded_updates(chosen: Mapping[str, int], levels: Mapping[str, int]) -> list[FeatureUpdate]:
    """Return the updates that bring features to the levels in the configs."""
    updates = []
    for name, current in all_levels(chosen).items():
        level = levels.get(name)
        if level is not None and level != current:
            kind = UpgradeType.UPGRADE if level > current else UpgradeType.SAFE_DOWNGRADE
            updates.append(FeatureUpdate(name, level, kind))
    return updates


def _problem(
    current: int,
    update: FeatureUpdate,
    supported: Mapping[int, Mapping[str, tuple[int, int]]],
) -> str | None:
    if update.upgrade_type not in set(UpgradeType):
        return "The controller does not support the given upgrade type."
    if update.level < 0:
        return "A feature version cannot be less than 0."
    feature = FEATURES.get(update.name)
    if feature is None:
        return "The controller does not support this feature."
    if update.level not in feature.levels:
        low, high = feature.levels
        return f"The controller only supports versions {low}-{high}"
    is_upgrade = update.upgrade_type == UpgradeType.UPGRADE
    if update.level < current and is_upgrade:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade."
        )
    if update.level > current and not is_upgrade:
        return "Can't downgrade to a newer version."
    for broker_id, levels in sorted(supported.items()):
        low, high = levels.get(update.name, _OFF)
        if not low <= update.level <= high:
            only = (
                f"only supports versions {low}-{high}" if high else "does not support this feature."
            )
            return f"Broker {broker_id} {only}"
    return None
