"""What every metadata store promises, asked of each of them."""

from __future__ import annotations

import asyncio

import pytest

from oncelog.core.errors import InvariantViolation
from oncelog.metadata import Change, Check, Conflict, Fenced, MetadataStore, Stored, Write
from oncelog.metadata.store import Changes
from tests.unit.metadata.contract import DELETED_COUNT_MAX, on_every_store, put


@on_every_store
async def test_a_value_is_created_once_and_read_back(store: MetadataStore) -> None:
    assert await store.get("/a") is None
    await put(store, "/a", b"1")
    assert await store.get("/a") == Stored(b"1", 1)
    with pytest.raises(Conflict, match="/a exists"):
        await put(store, "/a", b"2")
    assert await store.get("/a") == Stored(b"1", 1)


@on_every_store
async def test_a_write_needs_the_version_it_has_seen(store: MetadataStore) -> None:
    await put(store, "/a", b"1")
    await put(store, "/a", b"2", 1)
    with pytest.raises(Conflict, match="/a is at version 2, not 1"):
        await put(store, "/a", b"3", 1)
    with pytest.raises(Conflict, match="/missing does not exist"):
        await put(store, "/missing", b"3", 1)
    assert await store.get("/a") == Stored(b"2", 2)


@on_every_store
async def test_a_deleted_value_is_gone_and_can_be_made_again(store: MetadataStore) -> None:
    await put(store, "/a", b"1")
    with pytest.raises(Conflict):
        await put(store, "/a", None, 9)
    await put(store, "/a", None, 1)
    assert await store.get("/a") is None
    with pytest.raises(Conflict):
        await put(store, "/a", None, 1)
    await put(store, "/a", b"2")
    assert await store.get("/a") == Stored(b"2", 1)


@on_every_store
async def test_a_list_is_by_prefix_and_sorted(store: MetadataStore) -> None:
    for path in ("/t/b", "/t/a", "/u", "/t_x", "/t/gone"):
        await put(store, path, path.encode())
    await put(store, "/t/gone", None, 1)
    assert list(await store.list("/t/")) == ["/t/a", "/t/b"]


@on_every_store
async def test_the_feed_tells_the_newest_state_of_what_changed(store: MetadataStore) -> None:
    await put(store, "/b", b"1")
    await put(store, "/a", b"1")
    first = await store.changes(0)
    assert first.entries == (Change("/b", b"1", 1), Change("/a", b"1", 1))
    await put(store, "/a", b"2", 1)
    await put(store, "/a", b"3", 2)
    await put(store, "/b", None, 1)
    second = await store.changes(first.revision)
    assert second.entries == (Change("/a", b"3", 3), Change("/b", None, 0))
    assert second.revision > first.revision
    assert await store.changes(second.revision) == Changes(second.revision, ())


@on_every_store
async def test_a_reader_far_behind_learns_of_every_deletion(store: MetadataStore) -> None:
    names = [f"/n/{number}" for number in range(2 * DELETED_COUNT_MAX)]
    await store.write_all([Write(name, b"1", 0) for name in names])
    seen = await store.changes(0)
    known = {entry.path: entry.value for entry in seen.entries}
    for name in names[1:]:
        await put(store, name, None, 1)
    await put(store, names[2], b"2")
    changes = await store.changes(seen.revision)
    if changes.is_whole:
        known.clear()
    known |= {entry.path: entry.value for entry in changes.entries}
    there = {path: value for path, value in known.items() if value is not None}
    assert there == {names[0]: b"1", names[2]: b"2"}
    assert await store.changes(changes.revision) == Changes(changes.revision, ())


@on_every_store
async def test_a_waiting_feed_wakes_with_a_write(store: MetadataStore) -> None:
    async with asyncio.timeout(10):
        waiting = [asyncio.create_task(store.changes(0, wait_ms=60_000)) for _ in range(2)]
        await asyncio.sleep(0)
        await put(store, "/a", b"1")
        for one in waiting:
            assert (await one).entries == (Change("/a", b"1", 1),)


@on_every_store
async def test_a_feed_that_waits_in_vain_is_empty(store: MetadataStore) -> None:
    await put(store, "/a", b"1")
    revision = (await store.changes(0)).revision
    assert await store.changes(revision, wait_ms=1) == Changes(revision, ())


@on_every_store
async def test_a_controller_that_was_replaced_writes_nothing(store: MetadataStore) -> None:
    await put(store, "/epoch", b"1")
    fence = Check("/epoch", 1)
    await put(store, "/a", b"1", fence=fence)
    await put(store, "/epoch", b"2", 1)
    for hopeless in (Write("/b", b"1", 0), Write("/a", b"2", 1), Write("/a", None, 1)):
        with pytest.raises(Fenced):
            await store.write_all([Write("/c", b"1", 0), hopeless], fence=fence)
    assert await store.list("/") == {"/a": Stored(b"1", 1), "/epoch": Stored(b"2", 2)}
    await put(store, "/a", None, 1, fence=Check("/epoch", 2))


@on_every_store
async def test_a_replaced_controller_hears_that_before_a_conflict(store: MetadataStore) -> None:
    await put(store, "/a", b"1")
    with pytest.raises(Fenced):
        await put(store, "/a", b"2", 7, fence=Check("/epoch", 1))


@on_every_store
async def test_a_write_may_depend_on_what_it_does_not_change(store: MetadataStore) -> None:
    await put(store, "/a", b"1")
    for check in (Check("/a", 0), Check("/a", 2), Check("/missing", 1)):
        with pytest.raises(Conflict, match=check.path):
            await put(store, "/b", b"1", checks=[check])
    assert await store.get("/b") is None
    await put(store, "/b", b"1", checks=[Check("/a", 1), Check("/missing", 0)])
    assert await store.list("/") == {"/a": Stored(b"1", 1), "/b": Stored(b"1", 1)}


@on_every_store
async def test_of_concurrent_creators_one_wins(store: MetadataStore) -> None:
    attempts = [put(store, "/a", str(index).encode()) for index in range(10)]
    outcomes = await asyncio.gather(*attempts, return_exceptions=True)
    assert outcomes.count(None) == 1
    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 9


@on_every_store
async def test_several_writes_take_effect_together_or_not_at_all(store: MetadataStore) -> None:
    await put(store, "/a", b"1")
    await put(store, "/b", b"1")
    seen = (await store.changes(0)).revision
    await store.write_all([Write("/c", b"1", 0), Write("/a", None, 1), Write("/b", b"2", 1)])
    assert await store.list("/") == {"/b": Stored(b"2", 2), "/c": Stored(b"1", 1)}
    changes = await store.changes(seen)
    assert changes.revision > seen
    assert changes.entries == (Change("/a", None, 0), Change("/b", b"2", 2), Change("/c", b"1", 1))
    for hopeless in (Write("/a", b"3", 1), Write("/b", b"3", 1), Write("/c", b"3", 0)):
        with pytest.raises(Conflict):
            await store.write_all([Write("/d", b"1", 0), Write("/e", b"1", 0), hopeless])
    assert await store.list("/") == {"/b": Stored(b"2", 2), "/c": Stored(b"1", 1)}
    assert await store.changes(changes.revision) == Changes(changes.revision, ())


@on_every_store
async def test_writes_that_contradict_themselves_are_refused(store: MetadataStore) -> None:
    with pytest.raises(InvariantViolation, match="twice"):
        await store.write_all([Write("/a", b"1", 0), Write("/a", b"2", 1)])
    with pytest.raises(InvariantViolation, match="deleted"):
        await put(store, "/a", None, 0)
    await put(store, "/a", b"1")


@on_every_store
async def test_a_follower_that_is_cancelled_as_a_change_arrives_is_stopped(
    store: MetadataStore,
) -> None:
    """`asyncio.wait_for` of Python 3.11 forgets such a cancellation, and the broker never ends."""
    for turns_count in range(8):
        revision = (await store.changes(0)).revision
        following = asyncio.create_task(store.changes(revision, wait_ms=60_000))
        await store.changes(revision)
        await store.changes(revision)
        await put(store, f"/{turns_count}", b"1")
        for _ in range(turns_count):
            await asyncio.sleep(0)
        was_done = following.done()
        following.cancel()
        await asyncio.wait([following])
        assert following.cancelled() or was_done
