"""`MemoryStore`: the metadata store in memory, for tests and the simulation.

Brokers on one event loop may share one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from oncelog.metadata.store import (
    CONTROLLER_EPOCH_PATH,
    Change,
    Changes,
    Conflict,
    ControllerFenced,
    Stored,
    Write,
)

__all__ = ["MemoryStore"]


class MemoryStore:
    """The metadata in memory; see `MetadataStore`.

    It keeps deleted paths forever, for the feed of changes: processes that use it are short-lived.
    """

    def __init__(self) -> None:
        self._values: dict[str, Stored] = {}
        # Per path the revision of its last write, in the order of writing.
        self._revisions: dict[str, int] = {}
        self._revision = 0
        self._changed = asyncio.Event()

    async def get(self, path: str) -> Stored | None:
        """See `MetadataStore.get`."""
        return self._values.get(path)

    async def create(self, path: str, value: bytes, *, controller_epoch: int | None = None) -> int:
        """See `MetadataStore.create`."""
        self._check_epoch(controller_epoch)
        self._check_version(path, 0)
        return self._write(path, Stored(value, 1))

    async def compare_and_set(
        self, path: str, value: bytes, version: int, *, controller_epoch: int | None = None
    ) -> int:
        """See `MetadataStore.compare_and_set`."""
        self._check_epoch(controller_epoch)
        self._check_version(path, version)
        return self._write(path, Stored(value, version + 1))

    async def delete(
        self, path: str, version: int | None = None, *, controller_epoch: int | None = None
    ) -> None:
        """See `MetadataStore.delete`."""
        self._check_epoch(controller_epoch)
        self._check_version(path, version)
        self._write(path, None)

    async def write_all(
        self, writes: Sequence[Write], *, controller_epoch: int | None = None
    ) -> None:
        """See `MetadataStore.write_all`."""
        self._check_epoch(controller_epoch)
        for path, _, version in writes:
            self._check_version(path, version)
        for path, value, version in writes:
            self._write(path, None if value is None else Stored(value, version + 1))

    async def list(self, prefix: str) -> dict[str, Stored]:
        """See `MetadataStore.list`."""
        return {
            path: self._values[path] for path in sorted(self._values) if path.startswith(prefix)
        }

    async def changes(self, after_revision: int, *, wait_ms: float = 0) -> Changes:
        """See `MetadataStore.changes`."""
        if self._revision <= after_revision and wait_ms > 0:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000):
                    await self._changed.wait()
        entries = tuple(
            Change(path, stored.value if (stored := self._values.get(path)) else None)
            for path, revision in self._revisions.items()
            if revision > after_revision
        )
        return Changes(self._revision, entries)

    async def close(self) -> None:
        """Do nothing: another broker may still use it."""

    def _check_epoch(self, controller_epoch: int | None) -> None:
        if controller_epoch is None:
            return
        newest = self._values.get(CONTROLLER_EPOCH_PATH)
        if newest is not None and int(newest.value) != controller_epoch:
            raise ControllerFenced(
                f"controller epoch {controller_epoch}, newest is {newest.value.decode()}"
            )

    def _check_version(self, path: str, version: int | None) -> None:
        stored = self._values.get(path)
        if version == 0:
            if stored is not None:
                raise Conflict(f"{path} exists")
            return
        if stored is None:
            raise Conflict(f"{path} does not exist")
        if version is not None and stored.version != version:
            raise Conflict(f"{path} is at version {stored.version}, not {version}")

    def _write(self, path: str, stored: Stored | None) -> int:
        self._revision += 1
        self._revisions.pop(path, None)
        self._revisions[path] = self._revision
        if stored is None:
            del self._values[path]
        else:
            self._values[path] = stored
        self._changed.set()
        return stored.version if stored is not None else 0
