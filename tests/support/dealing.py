"""Which files pytest imports, and how pytest-xdist deals tests out: in groups that share fixtures.

pytest-xdist has marks for groups; they have no effect with pytest 9.2, whose node ids a plugin can
no longer change. So the group follows from where a test stands.
"""

from pathlib import Path, PurePosixPath

from xdist.scheduler import LoadScopeScheduling

__all__ = ["ALONE", "GroupScheduling", "group_of", "has_none_of", "place_of"]

ALONE = "alone and not soak"
"""The marks of what `make test` runs beside no other test."""

SHARING_FOLDERS = ("tests/spark", "tests/interop")
"""Folders whose tests stay in one process each: they share a broker, a JVM, a folder of jars. The
longest comes first, so that no process works alone at the end.
"""

LONG_FOLDERS = ("tests/simulation", "tests/e2e", "tests/properties", "tests/corruption")
"""Files of 5 to 20 s of CPU, which come next. All others are short."""


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
    if group in SHARING_FOLDERS:
        return SHARING_FOLDERS.index(group)
    is_long = str(PurePosixPath(group).parent) in LONG_FOLDERS
    return len(SHARING_FOLDERS) + (0 if is_long else 1)


def has_none_of(selection: str, path: Path) -> bool:
    """Whether a file surely holds no test of the part that runs alone.

    Importing all files takes longer than many of its tests.
    """
    is_test_file = path.suffix == ".py" and path.name.startswith("test_")
    return selection == ALONE and is_test_file and b"pytest.mark.alone" not in path.read_bytes()
