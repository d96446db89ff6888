"""Changes one value of the store by compare-and-set, as several brokers may at once."""

from __future__ import annotations

from collections.abc import Callable

from oncelog.core.errors import OncelogError
from oncelog.core.limits import METADATA_WRITE_ATTEMPTS_MAX
from oncelog.metadata.store import Check, Conflict, MetadataStore, Write

__all__ = ["change_value"]


async def change_value(
    store: MetadataStore,
    path: str,
    change: Callable[[bytes | None], bytes | None],
    *,
    fence: Check | None = None,
) -> int:
    """Replace the value at `path` by the result of `change`; None, or the same value: no write.

    Returns the version of the value that is there then. `change` is pure; it is called again with
    the new value after another writer changed it. Raises `Fenced`, and `OncelogError` after too
    many conflicts.
    """
    for _ in range(METADATA_WRITE_ATTEMPTS_MAX):
        stored = await store.get(path)
        before, version = (None, 0) if stored is None else stored
        value = change(before)
        if value is None or value == before:
            return version
        try:
            await store.write_all([Write(path, value, version)], fence=fence)
        except Conflict:
            continue
        return version + 1
    raise OncelogError(f"{path} could not be written: too many brokers try")
