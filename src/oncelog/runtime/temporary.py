"""Creates temporary folders that are removed when the process ends, however it ends.

The creator removes a folder; the interpreter's end removes the rest. For a killed process one small
shell per process waits: it gets each folder through a pipe, and removes them when the pipe closes
with the process. It has a process group of its own, because ``timeout -s KILL`` kills a group. A
handler of SIGTERM would not work: Python runs it only once the main thread returns from C code, and
until then the process would not end. A forked child removes nothing.
"""

import atexit
import os
import shutil
import tempfile

__all__ = ["make_temporary_folder", "remove_temporary_folder"]

_REMOVALS_COUNT_MAX = 20
"""Another thread may still make files in a folder while it is being removed."""
_SHELL = "/bin/sh"
_GUARD = """(
    trap '' HUP INT QUIT TERM
    while IFS= read -r folder; do set -- "$@" "$folder"; done
    for folder; do rm -rf -- "$folder" || rm -rf -- "$folder"; done
) <&3 3<&- >/dev/null 2>&1 &"""
"""It runs in the background, so that it is no child process that `os.wait` could return."""


class _Guard:
    """The folders that exist, and the pipe to the shell that removes them after this process."""

    def __init__(self) -> None:
        self.folders: set[str] = set()
        self._pipe = -1

    def add(self, folder: str) -> None:
        """Remove this folder when the process ends."""
        self.folders.add(folder)
        if self._pipe < 0:
            self._start()
        os.write(self._pipe, os.fsencode(folder) + b"\n")

    def _start(self) -> None:
        read_end, self._pipe = os.pipe()
        nothing = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        pipe = (os.POSIX_SPAWN_DUP2, read_end, 3)
        command = [_SHELL, "-c", _GUARD]
        child = os.posix_spawn(
            _SHELL, command, os.environ, file_actions=[nothing, pipe], setpgroup=0
        )
        os.close(read_end)
        os.waitpid(child, 0)

    def forget(self) -> None:
        """Forget the folders in a forked child: they belong to the parent."""
        self.folders.clear()
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1


_guard = _Guard()


def make_temporary_folder(prefix: str) -> str:
    """Make a folder that is removed with the process if not before."""
    folder = tempfile.mkdtemp(prefix=prefix)
    _guard.add(folder)
    return folder


def remove_temporary_folder(folder: str) -> None:
    """Remove a folder of `make_temporary_folder`; in a forked child this does nothing."""
    if folder not in _guard.folders:
        return
    for _ in range(_REMOVALS_COUNT_MAX):
        shutil.rmtree(folder, ignore_errors=True)
        # Not by a Path: Python 3.12 keeps the parts of each path for ever, as interned strings.
        if not os.path.exists(folder):
            break
    _guard.folders.discard(folder)


def _remove_all() -> None:
    for folder in list(_guard.folders):
        remove_temporary_folder(folder)


atexit.register(_remove_all)
os.register_at_fork(after_in_child=_guard.forget)
