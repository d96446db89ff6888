"""What was synced survives a loss of power, and nothing appears that was never written.

The model here knows nothing of how the disk remembers: it keeps what each file held when it was
synced and all that was written since, and for each folder all states since it was synced.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.runtime.disk import StorageFailure
from oncelog.simulation import disk_loss
from oncelog.simulation.disk_nodes import File, Tree
from tests.support.examples import examples
from tests.support.machine import Machine

FOLDERS = ("/d", "/e")
PATHS = [f"{folder}/{name}" for folder in FOLDERS for name in ("a", "b", "c")]
Step = tuple[Any, ...]


class Inode:
    """What the model knows of one file."""

    def __init__(self) -> None:
        self.synced = b""
        self.writes: list[tuple[int, bytes]] = []
        self.sizes: list[int] = []
        self.was_removed = False

    def allows(self, content: bytes) -> bool:
        """Whether that may be left of it."""
        least = min([len(self.synced), *self.sizes])
        ends = [position + len(data) for position, data in self.writes]
        if not least <= len(content) <= max([len(self.synced), *self.sizes, *ends]):
            return False
        return all(byte in self.possible(at) for at, byte in enumerate(content))

    def possible(self, at: int) -> set[int]:
        """What may stand at that byte."""
        found = {data[at - start] for start, data in self.writes if 0 <= at - start < len(data)}
        found |= {self.synced[at]} if at < len(self.synced) else {0}
        return found | {0 for size in self.sizes if at >= size}


class Model:
    """A machine with two folders, and what may be left of them."""

    def __init__(self) -> None:
        self.machine = Machine()
        for folder in FOLDERS:
            self.machine.disk.mkdir(folder)
        self.machine.disk.sync_dir("/")
        self.inodes: dict[File, Inode] = {}
        self.states: dict[str, list[dict[str, File]]] = {}
        self.start_again()

    def names(self, folder: str) -> dict[str, File]:
        disk = self.machine.disk
        return {name: self.file(f"{folder}/{name}") for name in disk.list(folder)}

    def file(self, path: str) -> File:
        found = self.machine.whole._device.tree.find(path)
        assert isinstance(found, File)
        return found

    def do(self, step: Step) -> None:
        operation, path, *arguments = step
        try:
            getattr(self, operation)(path, *arguments)
        except StorageFailure as failure:
            if not failure.missing:
                raise
        for folder in FOLDERS:
            if (now := self.names(folder)) != self.states[folder][-1]:
                self.states[folder].append(now)

    def write(self, path: str, position: int, data: bytes) -> None:
        self.machine.disk.open(path, create=True).pwrite(data, position)
        self.inodes.setdefault(self.file(path), Inode()).writes.append((position, data))

    def truncate(self, path: str, size: int) -> None:
        self.machine.disk.open(path).truncate(size)
        self.inodes[self.file(path)].sizes.append(size)

    def fsync(self, path: str) -> None:
        self.machine.disk.open(path).fsync()
        self.note_synced(self.file(path))

    def note_synced(self, file: File) -> None:
        self.inodes[file] = inode = Inode()
        inode.synced = bytes(file.data)

    def rename(self, path: str, target: str) -> None:
        replaced = self.file(target) if self.machine.disk.exists(target) else None
        self.machine.disk.rename(path, target)
        self.has_crossed |= path[:2] != target[:2]
        if replaced is not None and path != target:
            self.inodes[replaced].was_removed = True

    def remove(self, path: str) -> None:
        if self.machine.disk.exists(path):
            self.inodes[self.file(path)].was_removed = True
        self.machine.disk.remove(path)

    def sync_dir(self, path: str) -> None:
        folder = path[:2]
        self.machine.disk.sync_dir(folder)
        self.states[folder] = [self.names(folder)]

    def lose_power(self, _path: str, rate: float | None, seed: int) -> None:
        before = {folder: self.names(folder) for folder in FOLDERS}
        contents = {file: bytes(file.data) for file in self.inodes}
        self.machine.lose_power(seed, rate=rate)
        assert self.machine.disk.list("/") == ["d", "e"]
        left = {folder: self.names(folder) for folder in FOLDERS}
        for folder, names in left.items():
            assert names in self.states[folder]
            # Syncing one folder may sync another one if a file has gone from here to there.
            assert rate != 0 or self.has_crossed or names == self.states[folder][0]
        found = [file for names in left.values() for file in names.values()]
        assert len(found) == len(set(found))
        for file in found:
            content, inode = bytes(file.data), self.inodes[file]
            assert inode.allows(content)
            assert rate != 0 or content == inode.synced
            assert rate != 1 or content == contents[file]
        assert rate != 1 or left == before
        for states in self.states.values():
            for file in states[0].values():
                assert file in found or self.inodes[file].was_removed
        self.start_again()

    def start_again(self) -> None:
        self.has_crossed = False
        self.states = {folder: [self.names(folder)] for folder in FOLDERS}
        for file in [file for states in self.states.values() for file in states[0].values()]:
            self.note_synced(file)


paths = st.sampled_from(PATHS)
# Long enough for a few sectors, and no zeros: those must be told from what was written.
contents = st.builds(
    lambda byte, length: bytes([byte]) * length, st.integers(1, 255), st.integers(0, 2000)
)
positions = st.integers(0, 3000)
losses = st.tuples(
    st.just("lose_power"),
    st.just("/"),
    st.sampled_from([None, None, 0.0, 0.5, 1.0]),
    st.integers(0, 10**6),
)
steps = st.one_of(
    st.tuples(st.just("write"), paths, positions, contents),
    st.tuples(st.just("truncate"), paths, positions),
    st.tuples(st.sampled_from(["fsync", "remove", "sync_dir"]), paths),
    st.tuples(st.just("rename"), paths, paths),
    losses,
)


def check(program: list[Step]) -> None:
    model = Model()
    for step in program:
        model.do(step)
    # The same end with several fates.
    for seed in range(3):
        model.do(("lose_power", "/", None, seed))


@pytest.mark.slow
@settings(max_examples=examples(70), deadline=None)
@given(st.lists(steps, max_size=40))
def test_what_was_synced_survives_and_nothing_else_appears(program: list[Step]) -> None:
    check(program)


def random_program(rng: random.Random) -> list[Step]:
    def step() -> Step:
        path = rng.choice(PATHS)
        kind = rng.choice(["write", "write", "truncate", "fsync", "remove", "sync_dir", "rename"])
        if kind == "write":
            data = bytes([rng.randint(1, 255)]) * rng.randint(0, 2000)
            return kind, path, rng.choice([0, rng.randint(0, 3000)]), data
        if kind == "truncate":
            return kind, path, rng.randint(0, 3000)
        return (kind, path, rng.choice(PATHS)) if kind == "rename" else (kind, path)

    program: list[Step] = [step() for _ in range(rng.randint(5, 40))]
    rate = rng.choice([None, 0.0, 0.5, 1.0])
    return [*program, ("lose_power", "/", rate, rng.randint(0, 10**6))]


def forget_old_bytes(file: File, changes: list[tuple[int, int, bytes, int]]) -> list[bytes]:
    stripped = [(at, length, b"", size) for at, length, _, size in changes]
    return true_undo(file, stripped)


def shift(content: bytearray, position: int, data: bytes, *rest: Any) -> int:
    return true_write(content, position + 1, data, *rest)


true_undo, true_write = disk_loss._undo, disk_loss._write

MISTAKES: dict[str, tuple[object, str, Callable[..., Any]]] = {
    "an fsync does nothing": (File, "sync", lambda file: None),
    "a sync of names does nothing": (Tree, "sync", lambda tree, folder: None),
    "overwritten bytes are not brought back": (disk_loss, "_undo", forget_old_bytes),
    "what is kept lands elsewhere": (disk_loss, "_write", shift),
    "half a rename survives": (disk_loss, "_renames_between_folders", lambda *_: (0, 10**9)),
    "names are lost at one extreme": (
        disk_loss,
        "_prefix",
        lambda _rng, _rate, least, _most: least,
    ),
    "no name is ever lost": (disk_loss, "_prefix", lambda _rng, _rate, _least, most: most),
}


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_model_finds_a_planted_mistake(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, wrong = MISTAKES[mistake]
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises((AssertionError, KeyError)):
        check_random_programs(400)


@pytest.mark.slow
def test_no_planted_mistake_no_finding() -> None:
    check_random_programs(60)


def check_random_programs(count: int) -> None:
    for seed in range(count):
        check(random_program(random.Random(seed)))


# ---- single rules


def written(machine: Machine, path: str, *parts: bytes, sync: bool = False) -> None:
    file = machine.disk.open(path, create=True)
    for part in parts:
        file.pwrite(part, file.size())
    if sync:
        file.fsync()


def outcomes(machine: Machine, look: Callable[[Machine], Any], count: int = 300) -> list[Any]:
    """What is left after each of many losses of power from this moment."""
    found = []
    for seed in range(count):
        other = Machine()
        other.whole = machine.whole.fork(random.Random(seed))
        other.lose_power(seed)
        found.append(look(other))
    return found


def test_often_all_survives_and_often_nothing_unsynced() -> None:
    machine = Machine()
    machine.disk.sync_dir("/")
    for index in range(20):
        written(machine, f"/{index}", b"x" * 100)
    found = outcomes(machine, lambda after: len(after.paths()))
    assert found.count(0) > 50
    assert found.count(20) > 50
    assert len(set(found)) > 10


def test_an_fsync_does_not_keep_the_name() -> None:
    machine = Machine()
    written(machine, "/f", b"content", sync=True)
    found = outcomes(machine, lambda after: after.disk.read("/f"))
    assert set(found) == {None, b"content"}


def test_a_kept_name_may_lead_to_an_empty_or_partial_file() -> None:
    machine = Machine()
    written(machine, "/f", b"1" * 600, b"2" * 600)
    machine.disk.sync_dir("/")
    found = set(outcomes(machine, lambda after: after.disk.read("/f")))
    assert {b"", b"1" * 600, b"1" * 600 + b"2" * 600} <= found
    assert bytes(600) + b"2" * 600 in found  # the lost write below the kept one
    assert b"1" * 512 in found  # torn at a sector
    assert bytes(512) + b"1" * 88 in found  # torn, its front lost
    assert bytes(600) in found  # only the size


def test_a_write_within_one_sector_is_never_torn() -> None:
    machine = Machine()
    written(machine, "/f", b"0" * 512, sync=True)
    machine.disk.sync_dir("/")
    written(machine, "/f", b"1" * 512)
    found = {content.count(b"1") for content in outcomes(machine, lambda m: m.disk.read("/f"))}
    assert found == {0, 512}


def test_names_are_kept_up_to_some_moment() -> None:
    machine = Machine()
    for name in "abc":
        written(machine, f"/{name}")
    machine.disk.remove("/a")
    found = outcomes(machine, lambda after: "".join(after.disk.list("/")))
    assert set(found) == {"", "a", "ab", "abc", "bc"}


def test_an_atomic_write_that_was_not_synced_may_leave_an_empty_file() -> None:
    machine = Machine()
    machine.disk.write_atomic("/f", b"old", sync=True)
    machine.disk.write_atomic("/f", b"new", sync=False)
    assert set(outcomes(machine, lambda m: m.disk.read("/f"))) == {b"old", b"new", b"", bytes(3)}


def test_a_synced_atomic_write_survives() -> None:
    machine = Machine()
    machine.disk.write_atomic("/f", b"old", sync=True)
    machine.disk.write_atomic("/f", b"new", sync=True)
    assert set(outcomes(machine, lambda m: m.disk.read("/f"))) == {b"new"}


def test_a_new_folder_is_lost_with_all_in_it_unless_its_own_name_was_synced() -> None:
    machine = Machine()
    machine.disk.mkdir("/d")
    written(machine, "/d/f", b"x", sync=True)
    machine.disk.sync_dir("/d")
    machine.lose_power(rate=0.0)
    assert machine.disk.list("/") == []


@pytest.mark.parametrize("synced", ["/d", "/e"])
def test_syncing_either_folder_keeps_a_rename_between_them(synced: str) -> None:
    machine = Machine()
    machine.disk.mkdir("/d")
    machine.disk.mkdir("/e")
    written(machine, "/d/f", b"x", sync=True)
    machine.disk.rename("/d/f", "/e/f")
    machine.disk.sync_dir(synced)
    machine.lose_power(rate=0.0)
    assert machine.paths() == ["/e/f"]


def test_a_file_moved_into_a_folder_whose_name_is_lost_stays_where_it_was() -> None:
    machine = Machine()
    written(machine, "/f", b"x", sync=True)
    machine.disk.sync_dir("/")
    machine.disk.mkdir("/new")
    machine.disk.rename("/f", "/new/f")
    assert {tuple(p) for p in outcomes(machine, Machine.paths)} == {("/f",), ("/new/f",)}


def test_a_file_moved_out_of_a_removed_folder_is_not_lost_with_it() -> None:
    machine = Machine()
    machine.disk.mkdir("/d")
    machine.disk.mkdir("/e")
    written(machine, "/d/f", b"x", sync=True)
    for folder in ("/", "/d"):
        machine.disk.sync_dir(folder)
    machine.disk.rename("/d/f", "/e/f")
    machine.disk.remove_tree("/d")
    machine.disk.sync_dir("/")
    machine.lose_power(rate=0.0)
    assert machine.paths() == ["/e/f"]


def test_what_was_lost_is_said_in_order_and_the_same_each_time() -> None:
    machine = Machine()
    machine.disk.mkdir("/d")
    machine.disk.sync_dir("/")
    written(machine, "/d/b", b"x" * 100, sync=True)
    written(machine, "/d/a", b"y" * 50)
    machine.disk.sync_dir("/d")
    written(machine, "/d/a", b"z" * 7)
    written(machine, "/d/c", b"z" * 9)
    machine.disk.rename("/d/b", "/d/e")
    first, second = (machine.whole.fork(random.Random(0)) for _ in range(2))
    lost = first.lose_power(random.Random(5), rate=0.0)
    assert lost == [
        "/d/a: 57 of 57 unsynced bytes lost",
        "/d/b -> e: rename undone",
        "/d/c: create undone, 9 bytes",
    ]
    assert first.lose_power(random.Random(6)) == []
    assert second.lose_power(random.Random(5), rate=1.0) == []
    again = [machine.whole.fork(random.Random(0)).lose_power(random.Random(9)) for _ in range(2)]
    assert again[0] == again[1]


def test_spared_files_lose_no_bytes() -> None:
    machine = Machine()
    written(machine, "/f.index", b"x" * 100)
    written(machine, "/f.log", b"x" * 100)
    machine.disk.sync_dir("/")
    machine.lose_power(rate=0.0, spared=lambda path: path.endswith(".index"))
    assert [(f.path, f.size_bytes) for f in machine.whole.files()] == [
        ("/f.index", 100),
        ("/f.log", 0),
    ]


def test_a_loss_of_power_ends_processes_and_locks() -> None:
    machine = Machine()
    machine.disk.lock("/lock")
    machine.disk.sync_dir("/")
    machine.lose_power()
    assert machine.deaths == ["the machine lost power"]
    machine.disk.lock("/lock")


def test_old_changes_are_written_back_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory stays bounded for files that nobody syncs."""
    monkeypatch.setattr("oncelog.simulation.disk_nodes.SIMULATION_UNSYNCED_CHANGES_COUNT_MAX", 10)
    machine = Machine()
    for index in range(40):
        written(machine, f"/{index:02}", b"")
    written(machine, "/00", *[b"x"] * 100)
    machine.lose_power(rate=0.0)
    assert len(machine.paths()) >= 30
    assert machine.whole.used_bytes() >= 90


def test_overwritten_bytes_are_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.simulation.disk_nodes.SIMULATION_OVERWRITTEN_BYTES_MAX", 100)
    machine = Machine()
    written(machine, "/f", b"0" * 60, sync=True)
    machine.disk.sync_dir("/")
    file = machine.disk.open("/f")
    for byte in (b"1", b"2", b"3"):
        file.pwrite(byte * 60, 0)
    file.truncate(0)
    machine.lose_power(rate=0.0)
    assert machine.disk.read("/f") == b"3" * 60
