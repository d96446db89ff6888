"""Finds the cluster that a broker's log directories and its metadata store belong to."""

from __future__ import annotations

import logging

from oncelog.controller import layout
from oncelog.metadata.store import Conflict, MetadataStore, Write
from oncelog.storage.identity import FolderMismatch

__all__ = ["find_cluster"]

log = logging.getLogger(__name__)


async def find_cluster(
    store: MetadataStore, known_id: str | None, fresh_id: str, *, has_logs: bool
) -> str:
    """Return the cluster's id: the store decides, and a new store is named.

    `known_id` is what the log directories say; None where they are all new. Raises `FolderMismatch`
    when they are of another cluster, or have logs that the store knows nothing of.
    """
    stored = await store.get(layout.CLUSTER_PATH)
    if stored is None:
        if has_logs:
            raise FolderMismatch(
                "the data folder has logs, but the metadata that names their topics is gone"
            )
        named = (known_id or fresh_id).encode()
        try:
            await store.write_all([Write(layout.CLUSTER_PATH, named, 0)])
        except Conflict:
            log.debug("another broker named the cluster first")
        stored = await store.get(layout.CLUSTER_PATH)
    cluster_id = stored.value.decode() if stored is not None else None
    if cluster_id is None or known_id not in (None, cluster_id):
        raise FolderMismatch(
            f"the data folder belongs to cluster {known_id}, the metadata to {cluster_id}"
        )
    return cluster_id
