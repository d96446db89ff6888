"""Defines and checks the configs that a group may override (resource type GROUP).

Names, checks and messages are those of Kafka's `GroupConfig`. Each key overrides the broker's key
of that name with the prefix `group.`. A group may have configs before it exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from oncelog.core.config import BrokerConfig, ConfigSource, SynonymValue
from oncelog.core.config_definition import (
    ConfigError,
    ConfigSupport,
    ConfigType,
    ConfigValue,
    Definition,
    as_int,
    format_value,
)
from oncelog.core.config_keys import BROKER_KEYS

__all__ = [
    "GROUP_KEYS",
    "check_group_overrides",
    "group_interval_ms",
    "group_synonyms",
    "group_value",
    "group_warnings",
    "unknown_group_key",
]

_SESSION: Final = "consumer.session.timeout.ms"
_HEARTBEAT: Final = "consumer.heartbeat.interval.ms"
_ASSIGNMENT: Final = "consumer.assignment.interval.ms"
_OFFLOAD: Final = "consumer.assignor.offload.enable"

_INTERVALS: Final = (_HEARTBEAT, _SESSION, _ASSIGNMENT)
"""In the order in which Kafka checks them."""

GROUP_KEYS: Final[Mapping[str, Definition]] = {
    _SESSION: replace(BROKER_KEYS["group." + _SESSION], name=_SESSION),
    _HEARTBEAT: replace(BROKER_KEYS["group." + _HEARTBEAT], name=_HEARTBEAT),
    _ASSIGNMENT: replace(BROKER_KEYS["group." + _ASSIGNMENT], name=_ASSIGNMENT),
    _OFFLOAD: Definition(
        _OFFLOAD,
        ConfigType.BOOLEAN,
        None,
        "Has no effect: assignors have no thread of their own.",
        support=ConfigSupport.NO_EFFECT,
    ),
}

_UNSUPPORTED: Final = {
    "share.": "share groups",
    "errors.deadletterqueue.": "share groups",
    "streams.": "streams groups",
}
"""Kafka's keys for other kinds of groups, by the prefix of their names."""


def _limit_key(name: str, bound: str) -> str:
    """The broker's key that limits a group's key: `bound` is "min" or "max"."""
    return f"group.consumer.{bound}.{name.removeprefix('consumer.')}"


def group_value(config: BrokerConfig, overrides: Mapping[str, str], name: str) -> ConfigValue:
    """A group's value of `name`: its own, else the broker's."""
    if name in overrides:
        return GROUP_KEYS[name].parse(overrides[name])
    return config.get(f"group.{name}")


def group_interval_ms(config: BrokerConfig, overrides: Mapping[str, str], name: str) -> int:
    """Return the effective value of `name`: the group's, within the broker's present limits."""
    value = as_int(group_value(config, overrides, name))
    low = config.get_int(_limit_key(name, "min"))
    return min(max(value, low), config.get_int(_limit_key(name, "max")))


def group_synonyms(
    config: BrokerConfig, overrides: Mapping[str, str], name: str
) -> tuple[SynonymValue, ...]:
    """Return the possible sources of a group's value, best first."""
    found = config.broker_synonyms(f"group.{name}")
    if name not in overrides:
        return found
    own = format_value(GROUP_KEYS[name].parse(overrides[name]))
    return (SynonymValue(name, own, ConfigSource.GROUP), *found)


def check_group_overrides(config: BrokerConfig, overrides: Mapping[str, str]) -> None:
    """Check the configs that a group overrides. Raises `ConfigError` for an invalid one."""
    for name in overrides:
        if name not in GROUP_KEYS:
            raise ConfigError(unknown_group_key(name))
    values = {name: as_int(group_value(config, overrides, name)) for name in _INTERVALS}
    group_value(config, overrides, _OFFLOAD)
    for name, value in values.items():
        low, high = (config.get_int(_limit_key(name, bound)) for bound in ("min", "max"))
        if not low <= value <= high:
            raise ConfigError(f"{name} must be in the range {low} to {high} inclusive.")
    if values[_SESSION] <= values[_HEARTBEAT]:
        raise ConfigError(f"{_SESSION} must be greater than {_HEARTBEAT}")


def unknown_group_key(name: str) -> str:
    """Say what is wrong with a name that is no key of a consumer group."""
    for prefix, kind in _UNSUPPORTED.items():
        if name.startswith(prefix):
            return f"{name} is a key of {kind}, which Oncelog does not support"
    return f"Unknown group config name: {name}"


def group_warnings(config: BrokerConfig, overrides: Mapping[str, str]) -> list[str]:
    """Return one sentence per config of a group whose effective value differs, or has no effect."""
    warnings = []
    for name, text in overrides.items():
        if GROUP_KEYS[name].support is not ConfigSupport.YES:
            warnings.append(f"{name} {GROUP_KEYS[name].support.value}")
            continue
        effective_ms = group_interval_ms(config, overrides, name)
        if effective_ms != as_int(GROUP_KEYS[name].parse(text)):
            warnings.append(f"{name}={text} is outside the broker's limits: {effective_ms} is used")
    return warnings
