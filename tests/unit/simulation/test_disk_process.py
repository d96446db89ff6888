"""The simulated disk does what the real one does, to the text of each error."""

import re
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oncelog.runtime.disk import Disk, DiskFile, StorageFailure, SystemDisk
from tests.support.examples import examples
from tests.support.machine import Machine
from tests.support.scratch import scratch_folder

paths = st.sampled_from(["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "d/e/f/g", ".hidden"])
positions = st.integers(0, 40)
contents = st.binary(max_size=30)
slots = st.integers(0, 3)

operations = st.one_of(
    st.tuples(st.just("open"), paths, st.booleans()),
    st.tuples(st.just("open"), paths, st.just(True)),
    st.tuples(st.just("pwrite"), slots, contents, positions),
    st.tuples(st.just("pread"), slots, positions, positions),
    st.tuples(st.just("truncate"), slots, positions),
    st.tuples(st.sampled_from(["size", "fsync", "close"]), slots),
    st.tuples(
        st.sampled_from(["exists", "is_dir", "list", "read", "remove", "remove_tree", "sync_dir"]),
        paths,
    ),
    st.tuples(st.just("mkdir"), paths),
    st.tuples(st.just("rename"), paths, paths),
    st.tuples(st.just("write_atomic"), paths, contents, st.booleans()),
)


class User:
    """Does operations on a disk below a folder, and says what came of each."""

    def __init__(self, disk: Disk, root: str) -> None:
        self._disk = disk
        self._root = root
        self._files: list[DiskFile] = []

    def do(self, name: str, *arguments: Any) -> Any:
        try:
            return self._bare(self._call(name, arguments))
        except StorageFailure as failure:
            told = failure.operation, self._bare(failure.path), self._bare(str(failure))
            return (*told, failure.missing, type(failure.__cause__))

    def _call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        first, *rest = arguments
        if isinstance(first, int):
            if not self._files:
                return "no file"
            return getattr(self._files[first % len(self._files)], name)(*rest)
        if name == "rename":
            rest = [f"{self._root}/{rest[0]}"]
        path = f"{self._root}/{first}"
        if name == "open":
            self._files.append(self._disk.open(path, create=rest[0]))
            return "opened"
        if name == "write_atomic":
            return self._disk.write_atomic(path, rest[0], sync=rest[1])
        return getattr(self._disk, name)(path, *rest)

    def _bare(self, value: Any) -> Any:
        """Without the folder of this test and the number in the names of temp files."""
        if isinstance(value, list):
            return [self._bare(each) for each in value]
        if isinstance(value, str):
            return re.sub(r"\.\d+\.tmp", ".N.tmp", value.replace(self._root, "ROOT"))
        return value


def everything(user: User, path: str = ".") -> list[Any]:
    """Names and contents of the whole tree."""
    found = []
    for name in user.do("list", path):
        below = f"{path}/{name}"
        if user.do("is_dir", below):
            found += [below, *everything(user, below)]
        else:
            found.append((below, user.do("read", below)))
    return found


@pytest.mark.slow
@settings(max_examples=examples(70), deadline=None)
@given(st.lists(operations, max_size=40))
@example([("mkdir", "d/e"), ("rename", "d", "d/e"), ("rename", "d/e", "d"), ("rename", "d", "d")])
@example([("open", "a", True), ("rename", "a", "a"), ("mkdir", "a"), ("mkdir", "a/b/c")])
@example([("mkdir", "d"), ("write_atomic", "d", b"x", False), ("write_atomic", "d", b"", True)])
@example([("open", "a", True), ("pwrite", 0, b"xy", 9), ("remove", "a"), ("pread", 0, 30, 5)])
@example([("open", "a", True), ("close", 0), ("size", 0), ("truncate", 0, 1), ("fsync", 0)])
@example([("open", "a", True), ("read", "a/b"), ("exists", "a/b"), ("remove", "a/b")])
def test_it_answers_every_operation_as_the_real_one_does(steps: list[tuple[Any, ...]]) -> None:
    with TemporaryDirectory(dir=scratch_folder()) as folder:
        real = User(SystemDisk(), folder)
        machine = Machine()
        machine.disk.mkdir("/data")
        simulated = User(machine.disk, "/data")
        for step in steps:
            assert simulated.do(*step) == real.do(*step), step
        files, names = everything(simulated), everything(real)
        assert [f for f in files if ".tmp" not in f[0]] == [n for n in names if ".tmp" not in n[0]]
        assert len(files) == len(names)


def test_relative_paths_begin_at_the_root() -> None:
    disk = Machine().disk
    disk.mkdir("data/t-0")
    disk.write_atomic("./data//t-0/../f", b"x", sync=True)
    assert disk.read("/data/f") == b"x"
    assert disk.list(".") == disk.list("/") == ["data"]


@pytest.mark.parametrize("ask", [lambda disk: disk.open("/"), lambda disk: disk.rename("/", "/x")])
def test_the_root_is_no_file(ask: Callable[[Disk], object]) -> None:
    with pytest.raises(StorageFailure):
        ask(Machine().disk)
