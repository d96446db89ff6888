"""Finalized levels of features on their way into the metadata store.

`oncelog.controller.features` decides; the controller's shell follows the store afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from oncelog.controller import layout
from oncelog.controller.features import FeatureUpdate, UpdateOutcome, decide_update
from oncelog.core.errors import ErrorCode
from oncelog.metadata.changes import change_value
from oncelog.metadata.store import Check, Fenced, MetadataStore

__all__ = ["finalize"]

log = logging.getLogger(__name__)


async def finalize(
    store: MetadataStore, updates: Sequence[FeatureUpdate], fence: Check | None
) -> UpdateOutcome:
    """Write all updates or none, by what stands in the store then."""
    outcome = UpdateOutcome({})

    def change(value: bytes | None) -> bytes | None:
        nonlocal outcome
        outcome = decide_update(layout.decode_features(value), updates)
        return None if outcome.error else layout.encode_features(outcome.chosen)

    try:
        await change_value(store, layout.FEATURES_PATH, change, fence=fence)
    except Fenced as error:
        return UpdateOutcome({}, ErrorCode.not_controller, str(error))
    for update in () if outcome.error else updates:
        log.info("the level of %s is %d from now on", update.name, update.level)
    return outcome
