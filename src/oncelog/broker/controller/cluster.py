"""Finds the cluster that a broker's log directories and its metadata store belong to."""

from __future__ import annotations

import logging

from oncelog.broker.controller.upgrade import upgrade_store
from oncelog.controller import layout
from oncelog.metadata.store import Conflict, MetadataStore, StoreFailure, Write
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
    await upgrade_store(store, known_id)
    stored = await store.get(layout.CLUSTER_PATH)
    if stored is None:
        if has_logs:
            raise FolderMismatch(
                "the log directory has logs, but the metadata that names their topics is gone"
            )
        named = layout.encode_cluster_id(known_id or fresh_id)
        layout_format = layout.encode_number(layout.FORMAT)
        try:
            await store.write_all(
                [Write(layout.CLUSTER_PATH, named, 0), Write(layout.FORMAT_PATH, layout_format, 0)]
            )
        except Conflict:
            log.debug("another broker named the cluster first")
        stored = await store.get(layout.CLUSTER_PATH)
    try:
        cluster_id = None if stored is None else layout.decode_cluster_id(stored.value)
    except (ValueError, LookupError, TypeError) as error:
        raise StoreFailure(f"the metadata at {layout.CLUSTER_PATH} is damaged ({error})") from error
    if cluster_id is None or known_id not in (None, cluster_id):
        raise FolderMismatch(
            f"the log directory belongs to cluster {known_id}, the metadata to {cluster_id}"
        )
    return cluster_id
