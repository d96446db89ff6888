"""Brings a metadata store that an earlier version wrote to the present format."""

from __future__ import annotations

import logging

from oncelog.controller import layout
from oncelog.metadata.store import Conflict, MetadataStore, Write
from oncelog.storage.identity import FolderMismatch

__all__ = ["upgrade_store"]

log = logging.getLogger(__name__)


async def upgrade_store(store: MetadataStore, known_id: str | None = None) -> None:
    """Upgrade all values in one atomic step, where there are any of an earlier format.

    A broker that dies before it has changed nothing. Raises `OncelogError` for a newer format, and
    for a value that cannot be read, and `FolderMismatch` for a store of another cluster than
    `known_id`: a broker of an earlier version may be using it, and would refuse it afterwards.
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
        from oncelog.controller.upgrade import cluster_before, upgrade_writes

        values = {path: stored.value for path, stored in found.items()}
        named = cluster_before(values)
        if None not in (named, known_id) and named != known_id:
            raise FolderMismatch(
                f"the log directory belongs to cluster {known_id}, the metadata to {named}"
            )
        writes = upgrade_writes(values)
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
