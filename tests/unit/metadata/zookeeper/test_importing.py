"""The move of another store's values to ZooKeeper: all or none, wherever it is interrupted."""

from __future__ import annotations

import pytest

from oncelog.core.errors import OncelogError
from oncelog.metadata.store import StoreFailure, WriteLimit
from oncelog.metadata.zookeeper import ZooKeeperStore
from oncelog.metadata.zookeeper.importing import IMPORTED_PATH, import_values
from tests.support.tcp_proxy import tcp_proxy
from tests.support.zookeeper import chroot, shared_server
from tests.unit.metadata.contract import put
from tests.unit.metadata.zookeeper.stores import stores, through, transaction_number

LAST = ("/cluster/id", "/oncelog/format")
VALUES = {f"/topics/t/{number}": b"1" for number in range(8)} | {
    "/topics/t": b"t",
    "/cluster/id": b"c",
    "/oncelog/format": b"2",
}
# The mark, three parts, and the last step.
STEPS_COUNT = 5


class ShortSteps(ZooKeeperStore):
    """A store that takes a few writes at a time."""

    write_limit = WriteLimit(4, 1_000)


async def values_in(connect: str) -> dict[str, bytes]:
    """What a broker finds."""
    async with stores() as opened:
        found = await opened(connect).list("")
    return {path: stored.value for path, stored in found.items() if path != IMPORTED_PATH}


async def test_all_values_are_moved_into_a_chroot_that_is_not_there() -> None:
    connect = chroot()
    async with stores() as opened:
        assert await import_values(opened(connect, is_import=True), VALUES, LAST)
    assert await values_in(connect) == VALUES


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, STEPS_COUNT + 1))
async def test_a_move_that_died_after_any_step_is_repeated(number: int) -> None:
    connect = chroot()
    async with tcp_proxy(shared_server().port) as proxy, stores(ShortSteps) as opened:
        store = opened(through(proxy.port, connect), is_import=True, reconnect_wait_ms=100)
        proxy.lose_answer_to(transaction_number(number))
        with pytest.raises(StoreFailure):
            await import_values(store, VALUES, LAST)
        assert proxy.has_lost
        is_complete = number == STEPS_COUNT
        if is_complete:
            assert await values_in(connect) == VALUES
        else:
            with pytest.raises(OncelogError, match="has not ended"):
                await values_in(connect)
        is_new = await import_values(opened(connect, is_import=True), VALUES, LAST)
        assert is_new != is_complete
    assert await values_in(connect) == VALUES


async def test_a_move_that_died_does_not_mix_with_what_changed_since() -> None:
    """What was written in several parts is removed in as many."""
    connect = chroot()
    async with tcp_proxy(shared_server().port) as proxy, stores(ShortSteps) as opened:
        store = opened(through(proxy.port, connect), is_import=True, reconnect_wait_ms=100)
        proxy.lose_answer_to(transaction_number(STEPS_COUNT - 1))
        with pytest.raises(StoreFailure):
            await import_values(store, VALUES, LAST)
        values = {"/topics/other": b"1", "/cluster/id": b"c", "/oncelog/format": b"2"}
        assert await import_values(opened(connect, is_import=True), values, LAST)
    assert await values_in(connect) == values


async def test_a_chroot_with_anything_in_it_is_refused() -> None:
    connect = chroot()
    async with stores() as opened:
        await put(opened(connect), "/oncelog/format", b"2")
        with pytest.raises(OncelogError, match="has a cluster's metadata there already"):
            await import_values(opened(connect, is_import=True), VALUES, LAST)
    assert await values_in(connect) == {"/oncelog/format": b"2"}


async def test_a_cluster_that_was_moved_and_used_is_left_as_it_is() -> None:
    connect = chroot()
    async with stores() as opened:
        await import_values(opened(connect, is_import=True), VALUES, LAST)
        await put(opened(connect), "/topics/new", b"1")
        assert not await import_values(opened(connect, is_import=True), VALUES, LAST)
        changed = {**VALUES, "/topics/t": b"changed"}
        with pytest.raises(OncelogError, match="already"):
            await import_values(opened(connect, is_import=True), changed, LAST)
    assert await values_in(connect) == {**VALUES, "/topics/new": b"1"}
