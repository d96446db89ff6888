"""A lock that ends with the process that took it, whatever its children do."""

import os
from pathlib import Path

from oncelog.runtime.process_lock import ProcessLock


def test_a_file_is_locked_until_it_is_released(tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    lock = ProcessLock.take(path)
    assert lock is not None
    assert ProcessLock.take(path) is None
    lock.release()
    lock.release()
    again = ProcessLock.take(path)
    assert again is not None
    again.release()


def test_a_forked_child_does_not_keep_a_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    lock = ProcessLock.take(path)
    assert lock is not None
    started, starts = os.pipe()
    ends, ending = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ending)
        os.write(starts, b"1")
        os.read(ends, 1)
        os._exit(0)
    try:
        os.read(started, 1)
        # As the kernel does it for the dead: closed, not unlocked.
        os.close(lock.descriptor)
        again = ProcessLock.take(path)
        assert again is not None
        again.release()
    finally:
        lock.descriptor = -1
        lock.release()
        for descriptor in (started, starts, ends, ending):
            os.close(descriptor)
        os.waitpid(child, 0)


def test_what_a_forked_child_does_with_a_lock_leaves_it_locked(tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    lock = ProcessLock.take(path)
    assert lock is not None
    child = os.fork()
    if child == 0:
        lock.release()
        os._exit(0)
    os.waitpid(child, 0)
    assert ProcessLock.take(path) is None
    lock.release()
