"""Takes the controller's role."""

from __future__ import annotations

from oncelog.controller import layout
from oncelog.metadata.changes import change_value
from oncelog.metadata.store import Check, MetadataStore

__all__ = ["claim_controller"]


async def claim_controller(store: MetadataStore) -> Check:
    """Become the controller; every write with the returned fence fails once another has.

    Raises `OncelogError` when too many brokers try.
    """
    path = layout.CONTROLLER_EPOCH_PATH

    def next_epoch(value: bytes | None) -> bytes:
        return layout.encode_number(layout.decode_number(value) + 1)

    return Check(path, await change_value(store, path, next_epoch))
