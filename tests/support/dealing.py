"""How pytest-xdist deals tests out to processes: in groups that share their fixtures.

pytest-xdist has marks for groups; they have no effect with pytest 9.2, whose node ids a plugin can
no longer change. So the group follows from where a test stands.
"""

from pathlib import PurePosixPath

from xdist.scheduler import LoadScopeScheduling

__all__ = ["GroupScheduling", "group_of", "place_of"]

SHARING_FOLDERS = ("tests/spark", "tests/interop")
"""Folders whose tests stay in one process each: they share a broker, a JVM, a folder of jars. The
longest comes first, so that no process works alone at the end.
"""


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # not annotated
    """Gives whole groups to a process, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def group_of(nodeid: str) -> str:
    """The folder that shares, otherwise the file: fixtures of module scope are then made once."""
    path = PurePosixPath(nodeid.split("::", 1)[0])
    folder = str(path.parent)
    return folder if folder in SHARING_FOLDERS else str(path)


def place_of(nodeid: str) -> int:
    """Where a test's group stands in the order: small numbers first."""
    group = group_of(nodeid)
    return SHARING_FOLDERS.index(group) if group in SHARING_FOLDERS else len(SHARING_FOLDERS)
