"""Changes to one value that others may change at the same time."""

import pytest

from oncelog.core.errors import OncelogError
from oncelog.metadata import Check, Fenced, MemoryStore
from oncelog.metadata.changes import change_value
from oncelog.metadata.store import Stored
from tests.unit.metadata.contract import put


class Rival(MemoryStore):
    """Another broker writes right after each of our reads, `times` often."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    async def get(self, path: str) -> Stored | None:
        stored = await super().get(path)
        if self.times:
            self.times -= 1
            value, version = (b"rival", 0) if stored is None else (stored.value + b"!", stored[1])
            await put(self, path, value, version)
        return stored


def append(value: bytes | None) -> bytes:
    return (value or b"") + b"a"


async def test_a_change_is_decided_again_by_what_a_rival_wrote() -> None:
    store = Rival(2)
    assert await change_value(store, "/x", append) == 3
    assert await store.get("/x") == Stored(b"rival!a", 3)


async def test_a_rival_without_end_ends_in_an_error() -> None:
    with pytest.raises(OncelogError, match="too many brokers try"):
        await change_value(Rival(1_000_000), "/x", append)


async def test_nothing_is_written_where_nothing_changes() -> None:
    store = MemoryStore()
    assert await change_value(store, "/x", lambda value: None) == 0
    await change_value(store, "/x", append)
    for same in (lambda value: value, lambda value: None):
        assert await change_value(store, "/x", same) == 1
    assert await store.get("/x") == Stored(b"a", 1)


async def test_a_change_by_a_replaced_controller_is_refused() -> None:
    store = MemoryStore()
    await put(store, "/epoch", b"1")
    await change_value(store, "/x", append, fence=Check("/epoch", 1))
    await put(store, "/epoch", b"2", 1)
    with pytest.raises(Fenced):
        await change_value(store, "/x", append, fence=Check("/epoch", 1))
