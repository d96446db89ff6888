"""Changes to one value that others may change at the same time."""

import pytest

from oncelog.core.errors import OncelogError
from oncelog.metadata import ControllerFenced, MemoryStore
from oncelog.metadata.changes import change_value, claim_controller
from oncelog.metadata.store import CONTROLLER_EPOCH_PATH, Stored


class Rival(MemoryStore):
    """Another broker writes right after each of our reads, `times` often."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    async def get(self, path: str) -> Stored | None:
        stored = await super().get(path)
        if self.times:
            self.times -= 1
            if stored is None:
                await self.create(path, b"rival")
            else:
                await self.compare_and_set(path, stored.value + b"!", stored.version)
        return stored


def append(value: bytes | None) -> bytes:
    return (value or b"") + b"a"


async def test_a_change_is_decided_again_by_what_a_rival_wrote() -> None:
    store = Rival(2)
    await change_value(store, "/x", append)
    stored = await store.get("/x")
    assert stored is not None
    assert stored.value == b"rival!a"


async def test_a_rival_without_end_ends_in_an_error() -> None:
    with pytest.raises(OncelogError, match="too many brokers try"):
        await change_value(Rival(1_000_000), "/x", append)


async def test_nothing_is_written_where_nothing_changes() -> None:
    store = MemoryStore()
    await change_value(store, "/x", append)
    for same in (lambda value: value, lambda value: None):
        await change_value(store, "/x", same)
    stored = await store.get("/x")
    assert stored is not None
    assert stored.version == 1


async def test_each_claim_fences_the_one_before() -> None:
    store = MemoryStore()
    assert [await claim_controller(store) for _ in range(2)] == [1, 2]
    assert (await store.get(CONTROLLER_EPOCH_PATH)) == Stored(b"2", 2)
    with pytest.raises(ControllerFenced):
        await change_value(store, "/x", append, controller_epoch=1)
