"""Settings of groups on their way into the metadata store.

`oncelog.controller.group_configs` decides; the controller's shell follows the store afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from oncelog.controller import layout
from oncelog.controller.group_configs import GroupConfigOutcome
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode
from oncelog.core.group_keys import group_warnings
from oncelog.core.limits import METADATA_WRITE_ATTEMPTS_MAX
from oncelog.metadata.store import Check, Conflict, Fenced, MetadataStore, Write

__all__ = ["GroupConfigDecision", "warn_of", "write_group_config"]

log = logging.getLogger(__name__)

GroupConfigDecision = Callable[[Mapping[str, str]], GroupConfigOutcome]
"""What becomes of a group's settings; pure, and called again when another writer was faster."""


async def write_group_config(
    store: MetadataStore, group_id: str, decide: GroupConfigDecision, fence: Check | None
) -> GroupConfigOutcome:
    """Write what `decide` makes of the settings in the store; a group without any has no entry."""
    path = layout.group_config_path(group_id)
    for _ in range(METADATA_WRITE_ATTEMPTS_MAX):
        stored = await store.get(path)
        present = {} if stored is None else layout.decode_group_config(stored.value)
        outcome = decide(present)
        if outcome.error is not ErrorCode.none or outcome.config == present:
            return outcome
        value = layout.encode_group_config(outcome.config) if outcome.config else None
        write = Write(path, value, 0 if stored is None else stored.version)
        try:
            await store.write_all([write], fence=fence)
        except Conflict:
            continue
        except Fenced as error:
            return GroupConfigOutcome(ErrorCode.not_controller, str(error))
        log.info("changed the settings of group %s", group_id)
        return outcome
    text = "Too many brokers change this group at once."
    return GroupConfigOutcome(ErrorCode.request_timed_out, text)


def warn_of(broker: BrokerConfig, group_configs: Mapping[str, Mapping[str, str]]) -> None:
    """Log the settings of groups that are in effect with another value, or with none."""
    for group_id, config in group_configs.items():
        for warning in group_warnings(broker, config):
            log.warning("group %s: %s", group_id, warning)
