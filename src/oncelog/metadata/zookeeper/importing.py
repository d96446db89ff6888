"""Moves the values of another store into an empty ZooKeeper: all of them or none.

The values are written in steps, and what makes them a store in the last one; until then a mark has
every broker refuse them. A move that was interrupted anywhere is begun again, and ends as if it had
been the first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence

from oncelog.core.errors import OncelogError
from oncelog.metadata.store import Check, Stored, Write
from oncelog.metadata.zookeeper.store import IMPORT_PATH, ZooKeeperStore

__all__ = ["IMPORTED_PATH", "import_values"]

IMPORTED_PATH = "/oncelog/imported"
"""Says of which values the store was made, once it is one."""


async def import_values(
    store: ZooKeeperStore, values: Mapping[str, bytes], last: Collection[str]
) -> bool:
    """Write all values, those at the paths of `last` in the last step; False: it was done before.

    `store` was opened for an import. Raises `OncelogError` for a chroot that has anything else, and
    `StoreFailure`, after which it is to be repeated.
    """
    digest = _digest(values)
    found = await store.list("")
    done = found.pop(IMPORTED_PATH, None)
    if done is not None and done.value == digest:
        return False
    mark = found.pop(IMPORT_PATH, None)
    if done is not None or (mark is None and found):
        raise OncelogError(f"ZooKeeper has a cluster's metadata there already ({_some(found)})")
    if mark is not None and mark.value != digest:
        # Of other values, or of these as they were then: no broker has used them.
        deletions = [Write(path, None, stored.version) for path, stored in found.items()]
        for part in _parts(store, deletions):
            await store.write_all(part, checks=[Check(IMPORT_PATH, mark.version)])
        found = {}
    version = 0 if mark is None else mark.version
    if mark is None or mark.value != digest:
        await store.write_all([Write(IMPORT_PATH, digest, version)])
        version += 1
    left = {path: value for path, value in values.items() if path not in last}
    writes = [Write(path, value, 0) for path, value in left.items() if path not in found]
    for part in _parts(store, writes):
        await store.write_all(part, checks=[Check(IMPORT_PATH, version)])
    await store.write_all(
        [
            Write(IMPORT_PATH, None, version),
            Write(IMPORTED_PATH, digest, 0),
            *(Write(path, values[path], 0) for path in last),
        ]
    )
    return True


def _digest(values: Mapping[str, bytes]) -> bytes:
    """Return a text that other values do not have."""
    text = json.dumps(sorted((path, value.hex()) for path, value in values.items()))
    return hashlib.sha256(text.encode()).hexdigest().encode()


def _parts(store: ZooKeeperStore, writes: Sequence[Write]) -> Iterator[Sequence[Write]]:
    """Cut a step into such as the store takes."""
    part: list[Write] = []
    for write in writes:
        if part and not store.write_limit.fits([*part, write]):
            yield part
            part = []
        part.append(write)
    if part:
        yield part


def _some(found: Mapping[str, Stored]) -> str:
    return next(iter(found), IMPORTED_PATH)
