"""Changes one value of the store by compare-and-set, as several brokers may at once."""

from __future__ import annotations

from collections.abc import Callable

from oncelog.core.errors import OncelogError
from oncelog.core.limits import METADATA_WRITE_ATTEMPTS_MAX
from oncelog.metadata.store import CONTROLLER_EPOCH_PATH, Conflict, MetadataStore

__all__ = ["change_value", "claim_controller"]


async def change_value(
    store: MetadataStore,
    path: str,
    change: Callable[[bytes | None], bytes | None],
    *,
    controller_epoch: int | None = None,
) -> None:
    """Replace the value at `path` by the result of `change`; None, or the same value: no write.

    `change` is pure; it is called again with the new value after another writer changed it. Raises
    `ControllerFenced`, and `OncelogError` after too many such conflicts.
    """
    for _ in range(METADATA_WRITE_ATTEMPTS_MAX):
        stored = await store.get(path)
        before = None if stored is None else stored.value
        value = change(before)
        if value is None or value == before:
            return
        try:
            if stored is None:
                await store.create(path, value, controller_epoch=controller_epoch)
            else:
                await store.compare_and_set(
                    path, value, stored.version, controller_epoch=controller_epoch
                )
        except Conflict:
            continue
        return
    raise OncelogError(f"{path} could not be written: too many brokers try")


async def claim_controller(store: MetadataStore) -> int:
    """Become the controller, which fences every earlier one. Returns the new epoch."""
    epoch = 0

    def next_epoch(value: bytes | None) -> bytes:
        nonlocal epoch
        epoch = 1 if value is None else int(value) + 1
        return str(epoch).encode()

    await change_value(store, CONTROLLER_EPOCH_PATH, next_epoch)
    return epoch
