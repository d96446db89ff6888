"""The files that show which sessions of a SQLite file live."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from oncelog.core.cluster_limits import SQLITE_SESSIONS_COUNT_MAX
from oncelog.metadata import SessionId, StoreFailure
from oncelog.metadata.session_file import SessionFile, Sighting, look_at
from oncelog.runtime.process_lock import ProcessLock


def test_a_session_is_seen_with_its_newest_beat_until_it_is_released(tmp_path: Path) -> None:
    path = str(tmp_path / "m.sqlite")
    assert look_at(path, 0) == Sighting(is_there=False)
    file = SessionFile.take(path, SessionId("s"))
    assert look_at(path, 0) == Sighting(True, True, SessionId("s"), None)
    for beat_ns in (7, 123_456_789_012):
        file.beat(beat_ns)
        assert look_at(path, 0) == Sighting(True, True, SessionId("s"), beat_ns)
    file.release()
    assert look_at(path, 0) == Sighting(is_there=True)


def test_a_beat_after_the_release_writes_nothing(tmp_path: Path) -> None:
    """Another file of the process may have the descriptor by then."""
    path = str(tmp_path / "m.sqlite")
    file = SessionFile.take(path, SessionId("s"))
    file.release()
    before = Path(f"{path}-session-0").read_bytes()
    file.beat(7)
    assert Path(f"{path}-session-0").read_bytes() == before


def test_two_who_look_at_once_see_the_same(tmp_path: Path) -> None:
    path = str(tmp_path / "m.sqlite")
    SessionFile.take(path, SessionId("s")).release()
    with Path(f"{path}-session-0").open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        assert not look_at(path, 0).is_locked


def test_each_session_takes_the_first_free_slot(tmp_path: Path) -> None:
    path = str(tmp_path / "m.sqlite")
    first, second, third = [SessionFile.take(path, SessionId(name)) for name in "abc"]
    assert [first.slot, second.slot, third.slot] == [0, 1, 2]
    second.release()
    again = SessionFile.take(path, SessionId("d"))
    assert again.slot == 1
    for file in (first, again, third):
        file.release()


def test_a_file_system_without_locks_is_named_in_one_sentence() -> None:
    def refuse(path: str) -> ProcessLock | None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with pytest.raises(StoreFailure, match=r"^/m-session-0 .* \(flock\)$"):
        SessionFile.take("/m", SessionId("s"), refuse)


def test_a_slot_that_cannot_be_written_is_left(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    locks: list[ProcessLock] = []

    def read_only(_path: str) -> ProcessLock:
        locks.append(ProcessLock(os.open(path, os.O_RDONLY)))
        return locks[-1]

    with pytest.raises(StoreFailure, match=r"session: Bad file descriptor$"):
        SessionFile.take("/m", SessionId("s"), read_only)
    assert locks[0].descriptor == -1


def test_when_every_slot_is_taken_no_session_begins() -> None:
    tried: list[str] = []
    with pytest.raises(StoreFailure, match="sessions already"):
        SessionFile.take("/m", SessionId("s"), tried.append)
    assert len(tried) == SQLITE_SESSIONS_COUNT_MAX
