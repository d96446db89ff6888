"""Brings a metadata store that an earlier version wrote to the present format."""

from __future__ import annotations

import logging

from oncelog.controller import layout
from oncelog.metadata.store import Conflict, MetadataStore, Write

__all__ = ["upgrade_store"]

log = logging.getLogger(__name__)


async def upgrade_store(store: MetadataStore) -> None:
    """Upgrade all values in one atomic step, where there are any of an earlier format.

    A broker that dies before it has changed nothing. Raises `OncelogError` for a newer format, and
    for a value that cannot be read.
    """
    while True:
        format_value = await store.get(layout.FORMAT_PATH)
        if format_value is not None:
            layout.check_format(format_value.value)
            return
        found = await store.list("")
        if not found:
            return  # A new store: its format is written with the cluster's id.
        # Imported here because most stores have the present format.
        from oncelog.controller.upgrade import upgrade_writes

        writes = upgrade_writes({path: stored.value for path, stored in found.items()})
        try:
            await store.write_all(
                [Write(*put, found[put.path].version if put.path in found else 0) for put in writes]
            )
        except Conflict:
            continue  # Another broker has upgraded it, or one of the earlier version has written.
        log.info(
            "upgraded the metadata to format %d: older versions of Oncelog refuse it now",
            layout.FORMAT,
        )
        return
