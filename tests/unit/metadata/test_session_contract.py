"""What every metadata store promises of sessions, asked of each of them."""

from __future__ import annotations

import asyncio

import pytest

from oncelog.core.errors import InvariantViolation
from oncelog.metadata import Change, Check, Conflict, Fenced, SessionExpired, Stored, Write
from oncelog.metadata.store import Changes
from tests.unit.metadata.contract import (
    Parties,
    among_parties,
    deleted,
    put,
    version_of,
)


@among_parties
async def test_a_closed_session_leaves_only_what_was_not_bound(parties: Parties) -> None:
    mine, other = await parties.join(), await parties.join()
    session = await mine.open_session(parties.session_ms)
    writes = [Write("/b", b"1", 0, session.session_id), Write("/a", b"1", 0, session.session_id)]
    await mine.write_all([*writes, Write("/c", b"1", 0)])
    seen = (await other.changes(0)).revision
    await session.close()
    assert not session.is_alive
    await session.wait_ended()
    await deleted(other, "/b", seen)
    assert await other.list("/") == {"/c": Stored(b"1", 1)}
    changes = await other.changes(seen)
    assert changes.entries == (Change("/a", None, 0), Change("/b", None, 0))


@among_parties
async def test_what_a_killed_party_had_bound_is_deleted(parties: Parties) -> None:
    mine, other = await parties.join(), await parties.join()
    await other.open_session(parties.session_ms)
    for path in ("/a", "/b"):
        session = await mine.open_session(parties.session_ms)
        await put(mine, path, b"1", session=session)
    seen = (await other.changes(0)).revision
    await parties.kill(mine)
    for path in ("/a", "/b"):
        await deleted(other, path, seen)
    assert await other.list("/") == {}


@among_parties
async def test_the_owner_of_an_expired_session_hears_of_it(parties: Parties) -> None:
    mine, other = await parties.join(), await parties.join()
    for path in ("/first", "/second"):
        session = await mine.open_session(parties.session_ms)
        await put(mine, path, b"1", session=session)
        await parties.expire(session)
        await session.wait_ended()
        assert not session.is_alive
        await deleted(other, path)
        await session.close()


@among_parties
async def test_a_write_bound_to_an_ended_session_changes_nothing(parties: Parties) -> None:
    mine = await parties.join()
    ended = [await mine.open_session(parties.session_ms) for _ in range(2)]
    for number, session in enumerate(ended):
        await put(mine, f"/bound/{number}", b"1", session=session)
    await parties.expire(ended[0])
    await ended[1].close()
    before = await mine.list("/")
    for session in ended:
        with pytest.raises(SessionExpired):
            await mine.write_all(
                [Write("/a", b"1", 0), Write("/b", b"1", 0, session.session_id)],
            )
        # Whatever else has changed: it tells the writer most.
        with pytest.raises(SessionExpired):
            await put(mine, "/a", b"1", 7, session=session)
        assert not session.is_alive
    assert await mine.list("/") == before


@among_parties
async def test_a_path_is_taken_over_from_another_session(parties: Parties) -> None:
    mine, other = await parties.join(), await parties.join()
    first = await mine.open_session(parties.session_ms)
    second = await other.open_session(parties.session_ms)
    await put(mine, "/a", b"1", session=first)
    with pytest.raises(Conflict):
        await put(other, "/a", b"2", session=second)
    version = await version_of(other, "/a")
    await put(other, "/a", b"2", version, session=second)
    assert await version_of(other, "/a") > version
    with pytest.raises(Conflict):
        await put(mine, "/a", b"1", version, session=first)
    await first.close()
    assert (await other.get("/a") or Stored(b"", 0)).value == b"2"
    await second.close()
    await deleted(mine, "/a")


@among_parties
async def test_a_write_of_no_session_leaves_a_value_bound(parties: Parties) -> None:
    mine, other = await parties.join(), await parties.join()
    session = await mine.open_session(parties.session_ms)
    await put(mine, "/a", b"1", session=session)
    await put(other, "/a", b"2", 1)
    await session.close()
    await deleted(other, "/a")


@among_parties
async def test_a_value_made_again_is_bound_to_nothing(parties: Parties) -> None:
    mine, other = await parties.join(), await parties.join()
    session = await mine.open_session(parties.session_ms)
    await put(mine, "/a", b"1", session=session)
    await put(mine, "/b", b"1", session=session)
    await put(other, "/a", None, 1)
    await put(other, "/a", b"2")
    await session.close()
    await deleted(other, "/b")
    assert await other.get("/a") == Stored(b"2", 1)


@among_parties
async def test_fence_and_checks_hold_for_bound_values_too(parties: Parties) -> None:
    mine = await parties.join()
    session = await mine.open_session(parties.session_ms)
    await put(mine, "/epoch", b"1")
    await put(mine, "/a", b"1", session=session, fence=Check("/epoch", 1))
    with pytest.raises(Fenced):
        await put(mine, "/b", b"1", session=session, fence=Check("/epoch", 7))
    with pytest.raises(Conflict):
        await put(mine, "/b", b"1", session=session, checks=[Check("/a", 7)])
    assert await mine.get("/b") is None
    assert session.is_alive
    await put(mine, "/b", b"1", session=session, checks=[Check("/a", 1)])
    await session.close()
    assert list(await mine.list("/")) == ["/epoch"]


@among_parties
async def test_a_write_whose_check_fails_leaves_the_session_alive(parties: Parties) -> None:
    """Its first value is where a store may note the session."""
    mine = await parties.join()
    session = await mine.open_session(parties.session_ms)
    with pytest.raises(Conflict):
        await put(mine, "/a", b"1", 7, session=session)
    await put(mine, "/a", b"1", session=session)
    assert session.is_alive


@among_parties
async def test_sessions_of_one_party_end_one_by_one(parties: Parties) -> None:
    mine, other = await parties.join(), await parties.join()
    first, second = [await mine.open_session(parties.session_ms) for _ in range(2)]
    assert first.session_id != second.session_id
    await put(mine, "/first", b"1", session=first)
    await put(mine, "/second", b"1", session=second)
    await first.close()
    assert second.is_alive
    await put(mine, "/second", b"2", 1, session=second)
    await deleted(other, "/first")
    assert list(await other.list("/")) == ["/second"]


@among_parties
async def test_a_session_may_end_twice(parties: Parties) -> None:
    mine, other = await parties.join(), await parties.join()
    session = await mine.open_session(parties.session_ms)
    await put(mine, "/a", b"1", session=session)
    await session.close()
    await put(other, "/a", b"2", await version_of(other, "/a"))
    await session.close()
    await parties.expire(session)
    assert (await other.get("/a") or Stored(b"", 0)).value == b"2"


@among_parties
async def test_a_session_without_values_ends_as_others_do(parties: Parties) -> None:
    mine = await parties.join()
    for _ in range(2):
        session = await mine.open_session(parties.session_ms)
        seen = (await mine.changes(0)).revision
        await session.close()
        assert await mine.changes(seen) == Changes(seen, ())


@among_parties
async def test_a_deletion_cannot_be_bound(parties: Parties) -> None:
    mine = await parties.join()
    session = await mine.open_session(parties.session_ms)
    await put(mine, "/a", b"1", session=session)
    with pytest.raises(InvariantViolation, match="bound"):
        await put(mine, "/a", None, 1, session=session)


@among_parties
async def test_who_waits_for_an_end_may_be_cancelled(parties: Parties) -> None:
    mine = await parties.join()
    session = await mine.open_session(parties.session_ms)
    waiting = [asyncio.create_task(session.wait_ended()) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.wait(waiting[:1])
    assert session.is_alive
    await session.close()
    await waiting[1]
