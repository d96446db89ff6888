"""Temporary folders that go, at the latest, with the process that made them.

The code that made a folder removes it. What is left when the interpreter ends is removed then, and
also when SIGTERM or SIGHUP ends the process: for that a handler is set while folders exist, in the
main thread only and only where the signal would have its default effect, which it then has. A child
that was forked removes nothing. After SIGKILL the folder stays.
"""

import atexit
import os
import shutil
import signal
import tempfile
import threading
from pathlib import Path
from types import FrameType

__all__ = ["make_temporary_folder", "remove_temporary_folder"]

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_REMOVALS_COUNT_MAX = 20
"""Another thread may still make files in a folder while it is being removed."""

_folders: set[str] = set()


def make_temporary_folder(prefix: str) -> str:
    """Make a folder that is removed with the process if not before."""
    folder = tempfile.mkdtemp(prefix=prefix)
    _folders.add(folder)
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _ended_by_signal)
    return folder


def remove_temporary_folder(folder: str) -> None:
    """Remove a folder of `make_temporary_folder`; in a forked child this does nothing."""
    if folder not in _folders:
        return
    _remove(folder)
    if not _folders and threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            if signal.getsignal(number) is _ended_by_signal:
                signal.signal(number, signal.SIG_DFL)


def _remove(folder: str) -> None:
    for _ in range(_REMOVALS_COUNT_MAX):
        shutil.rmtree(folder, ignore_errors=True)
        if not Path(folder).exists():
            break
    _folders.discard(folder)


def _remove_all() -> None:
    for folder in list(_folders):
        _remove(folder)


def _ended_by_signal(number: int, _frame: FrameType | None) -> None:
    _remove_all()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


atexit.register(_remove_all)
os.register_at_fork(after_in_child=_folders.clear)
