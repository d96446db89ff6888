"""Decides changes of the configs that one group overrides.

Each function takes the present configs and returns an outcome with the new ones, or Kafka's error
(`ConfigurationControlManager`, `ControllerConfigurationValidator`). The group itself need not
exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from oncelog.controller.changes import ConfigChange, ConfigOperation, length_problem
from oncelog.core.config import BrokerConfig
from oncelog.core.config_definition import ConfigError
from oncelog.core.errors import ErrorCode
from oncelog.core.group_keys import check_group_overrides, group_warnings

__all__ = [
    "GroupConfigOutcome",
    "decide_group_changes",
    "decide_group_replacement",
    "group_config_warnings",
]

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class GroupConfigOutcome(NamedTuple):
    """The configs after a change, or the error that refuses it."""

    error: ErrorCode = ErrorCode.none
    message: str | None = None
    config: Mapping[str, str] = _NOTHING


def decide_group_changes(
    broker: BrokerConfig,
    group_id: str,
    present: Mapping[str, str],
    changes: Sequence[ConfigChange],
) -> GroupConfigOutcome:
    """Return a group's configs with some of them changed (IncrementalAlterConfigs)."""
    config = dict(present)
    for key, operation, value in changes:
        if operation is ConfigOperation.DELETE:
            config.pop(key, None)
        elif operation is ConfigOperation.SET:
            config[key] = value or ""
        else:
            text = f"Can't {operation.name} to key {key} because its type is not LIST."
            return GroupConfigOutcome(ErrorCode.invalid_config, text)
    return decide_group_replacement(broker, group_id, config)


def decide_group_replacement(
    broker: BrokerConfig, group_id: str, config: Mapping[str, str]
) -> GroupConfigOutcome:
    """Return exactly these config overrides for a group (AlterConfigs)."""
    if not group_id:
        text = "Default group resources are not allowed."
        return GroupConfigOutcome(ErrorCode.invalid_request, text)
    problem = length_problem(config)
    if problem is not None:
        return GroupConfigOutcome(ErrorCode.invalid_config, problem)
    try:
        check_group_overrides(broker, config)
    except ConfigError as error:
        return GroupConfigOutcome(ErrorCode.invalid_config, str(error))
    return GroupConfigOutcome(config=config)


def group_config_warnings(
    broker: BrokerConfig, group_configs: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """Return which configs of groups are in effect with another value, or with none."""
    return [
        f"group {group_id}: {warning}"
        for group_id, config in group_configs.items()
        for warning in group_warnings(broker, config)
    ]
