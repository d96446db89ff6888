"""Takes the controller's role."""

from __future__ import annotations

from oncelog.controller import layout
from oncelog.core.errors import OncelogError
from oncelog.core.limits import METADATA_WRITE_ATTEMPTS_MAX
from oncelog.metadata.store import Check, Conflict, MetadataStore, Write

__all__ = ["claim_controller"]


async def claim_controller(store: MetadataStore, broker_id: int) -> Check:
    """Become the controller; every write with the returned fence fails once another has.

    Raises `OncelogError` when too many brokers try.
    """
    named = layout.encode_controller(broker_id)
    for _ in range(METADATA_WRITE_ATTEMPTS_MAX):
        epoch = await store.get(layout.CONTROLLER_EPOCH_PATH)
        before, version = (None, 0) if epoch is None else epoch
        number = layout.encode_number(layout.decode_number(before) + 1)
        writes = [Write(layout.CONTROLLER_EPOCH_PATH, number, version)]
        holder = await store.get(layout.CONTROLLER_PATH)
        if holder is None or holder.value != named:
            held_version = 0 if holder is None else holder.version
            writes.append(Write(layout.CONTROLLER_PATH, named, held_version))
        try:
            await store.write_all(writes)
        except Conflict:
            continue
        return Check(layout.CONTROLLER_EPOCH_PATH, version + 1)
    raise OncelogError("the controller's role could not be taken: too many brokers try")
