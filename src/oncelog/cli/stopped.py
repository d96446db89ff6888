"""Opens the metadata of a broker that does not run, by its log directories."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from oncelog.broker.membership.stores import METADATA_FILE
from oncelog.cli.tool import Failure
from oncelog.core.errors import OncelogError
from oncelog.metadata.sqlite import SqliteStore
from oncelog.metadata.store import MetadataStore
from oncelog.runtime.disk import Disk, FolderInUse, SystemDisk
from oncelog.storage.log_directory import LogDirectory

__all__ = ["on_stopped"]

T = TypeVar("T")

_RUNS: Final = "the broker runs: ask it, by --bootstrap-server"


def on_stopped(
    directories: tuple[str, ...], work: Callable[[MetadataStore, str | None], Awaitable[T]]
) -> T:
    """Do `work` with the store in these log directories, and the cluster's id if they have one.

    A folder that is new is made ready for the first start. Raises `Failure`.
    """
    disk = SystemDisk()
    try:
        with _taken(disk, directories) as known_id:
            return asyncio.run(_with_store(_file_in(directories, known_id), known_id, work))
    except FolderInUse:
        raise Failure(_RUNS) from None
    except OncelogError as error:
        raise Failure(str(error)) from None
    finally:
        disk.close()


@contextmanager
def _taken(disk: Disk, directories: tuple[str, ...]) -> Iterator[str | None]:
    """Keep brokers off the log directories, and return whose cluster's they are."""
    folders: list[LogDirectory] = []
    try:
        for directory in directories:
            folders.append(LogDirectory.take(disk, directory.rstrip("/") or "/", None))
        known = {folder.identity and folder.identity.cluster_id for folder in folders}
        if len(known) > 1:
            raise OncelogError("these are not the log directories of one broker")
        for folder in folders:
            folder.mark()
        yield known.pop()
    finally:
        for folder in folders:
            folder.release()


def _file_in(directories: tuple[str, ...], known_id: str | None) -> str:
    files = [os.path.join(directory, METADATA_FILE) for directory in directories]
    found = next(filter(os.path.exists, files), None)
    if found is None and known_id is not None:
        raise OncelogError(
            f"there is no {METADATA_FILE} in {', '.join(directories)}: start the broker, and use "
            "--bootstrap-server"
        )
    return found or files[0]


async def _with_store(
    file: str, known_id: str | None, work: Callable[[MetadataStore, str | None], Awaitable[T]]
) -> T:
    store = SqliteStore(file)
    try:
        return await work(store, known_id)
    finally:
        await store.close()
