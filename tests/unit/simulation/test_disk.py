import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from oncelog.runtime.disk import Disk, FolderInUse, StorageFailure
from oncelog.simulation.disk import FaultKind, Moment
from oncelog.simulation.process import Process, ProcessDied
from oncelog.storage.life_file import note_life, read_life
from oncelog.storage.lives import unclean_folder
from tests.support.machine import Machine


class Notes:
    def __init__(self) -> None:
        self.lines: list[tuple[object, ...]] = []

    def note(self, *parts: object) -> None:
        self.lines.append(parts)


def work(disk: Disk) -> None:
    """Every kind of change, some of several steps."""
    disk.mkdir("/d/e")
    file = disk.open("/d/e/f", create=True)
    file.pwrite(b"0123456789", 0)
    file.truncate(4)
    file.fsync()
    disk.write_atomic("/d/g", b"x" * 10, sync=True)
    disk.rename("/d/g", "/d/h")
    disk.remove("/d/h")
    disk.remove_tree("/d")


CHANGES = [
    ("mkdir", "/d", 0),
    ("mkdir", "/d/e", 0),
    ("create", "/d/e/f", 0),
    ("write", "/d/e/f", 10),
    ("truncate", "/d/e/f", 4),
    ("fsync", "/d/e/f", 0),
    ("create", "/d/g.0.tmp", 0),
    ("write", "/d/g.0.tmp", 10),
    ("fsync", "/d/g.0.tmp", 0),
    ("rename", "/d/g.0.tmp", 0),
    ("sync_dir", "/d", 0),
    ("rename", "/d/g", 0),
    ("remove", "/d/h", 0),
    ("remove", "/d/e/f", 0),
    ("rmdir", "/d/e", 0),
    ("rmdir", "/d", 0),
]


def failure_of(action: Callable[[], object]) -> StorageFailure:
    with pytest.raises(StorageFailure) as caught:
        action()
    return caught.value


def number_of(failure: StorageFailure) -> int | None:
    assert isinstance(failure.__cause__, OSError)
    return failure.__cause__.errno


# ---- death


def test_each_change_is_counted_and_noted() -> None:
    notes = Notes()
    machine = Machine(trace=notes)
    work(machine.disk)
    assert notes.lines == CHANGES
    assert machine.disk.changes_count == len(CHANGES)
    before = machine.disk.operations_count
    assert not machine.disk.exists("/d")
    assert machine.disk.operations_count == before + 1
    assert machine.disk.changes_count == len(CHANGES)


@pytest.mark.parametrize("at", range(1, len(CHANGES) + 1))
@pytest.mark.parametrize("moment", ["before", "after", "torn"])
def test_a_process_dies_at_the_change_it_was_armed_for(moment: Moment, at: int) -> None:
    notes = Notes()
    machine = Machine(trace=notes)
    machine.whole.arm_kill(machine.process, after_operations=at, moment=moment)
    with pytest.raises(ProcessDied):
        work(machine.disk)
    operation, path, size = CHANGES[at - 1]
    is_torn = moment == "torn" and operation == "write"
    assert notes.lines[: at - 1] == CHANGES[: at - 1]
    done = [(operation, path, size // 2)] if is_torn else CHANGES[at - 1 : at]
    assert notes.lines[at - 1 :] == ([] if moment != "after" and not is_torn else done)
    when = "in the middle of" if is_torn else "just after" if moment == "after" else "just before"
    assert machine.deaths == [f"killed {when} {operation} {path}"]
    assert machine.disk.died == ("torn" if is_torn else "after" if moment == "after" else "before")


def test_a_torn_write_leaves_its_front() -> None:
    machine = Machine()
    file = machine.disk.open("/f", create=True)
    machine.whole.arm_kill(
        machine.process, after_operations=1, moment="torn", rng=random.Random(3), cause="torn"
    )
    with pytest.raises(ProcessDied):
        file.pwrite(b"0123456789", 0)
    assert machine.deaths == ["torn"]
    left = machine.restart().read("/f")
    assert left
    assert b"0123456789".startswith(left)


def test_a_death_after_a_change_that_fails_comes_before_the_next() -> None:
    machine = Machine()
    machine.whole.faults.fail(FaultKind.NAMES, random.Random(0))
    machine.whole.arm_kill(machine.process, after_operations=1)
    failure_of(lambda: machine.disk.open("/f", create=True))
    with pytest.raises(ProcessDied):
        machine.disk.open("/g", create=True)
    assert machine.paths() == []


def test_a_kill_can_be_disarmed() -> None:
    machine = Machine()
    machine.whole.arm_kill(machine.process, after_operations=1)
    machine.whole.disarm_kill(machine.process)
    work(machine.disk)


def test_a_dead_process_changes_and_sees_nothing() -> None:
    machine = Machine()
    disk, file = machine.disk, machine.disk.open("/f", create=True)
    lock = disk.lock("/lock")
    machine.restart()
    machine.disk.lock("/lock")
    actions: list[Callable[[], object]] = [
        lambda: file.pwrite(b"x", 0),
        lambda: file.pread(1, 0),
        lambda: file.size(),
        lambda: file.truncate(3),
        lambda: file.fsync(),
        lambda: disk.open("/f"),
        lambda: disk.exists("/f"),
        lambda: disk.is_dir("/f"),
        lambda: disk.list("/"),
        lambda: disk.mkdir("/d"),
        lambda: disk.rename("/f", "/g"),
        lambda: disk.remove("/f"),
        lambda: disk.remove_tree("/"),
        lambda: disk.read("/f"),
        lambda: disk.write_atomic("/f", b"", sync=True),
        lambda: disk.sync_dir("/"),
        lambda: disk.lock("/lock"),
    ]
    for action in actions:
        with pytest.raises(ProcessDied):
            action()
    lock.release()
    file.close()
    with pytest.raises(FolderInUse):
        machine.disk.lock("/lock")
    assert [(f.path, f.size_bytes) for f in machine.whole.files()] == [("/f", 0), ("/lock", 0)]


def test_a_lock_is_held_until_it_is_released_or_its_process_is_dead() -> None:
    machine = Machine()
    first = machine.disk
    lock = first.lock("/d.lock")
    with pytest.raises(FolderInUse, match="the log directory / is in use by another broker"):
        first.lock("/d.lock")
    machine.process.freeze()
    _, second = machine.new_process()
    with pytest.raises(FolderInUse):
        second.lock("/d.lock")
    machine.process.thaw()
    lock.release()
    second.lock("/d.lock")
    with pytest.raises(FolderInUse):
        first.lock("/d.lock")


def test_temp_files_of_two_processes_have_two_names() -> None:
    machine = Machine()
    for _ in range(2):
        machine.whole.arm_kill(machine.process, after_operations=2)
        with pytest.raises(ProcessDied):
            machine.disk.write_atomic("/f", b"x", sync=False)
        machine.restart()
    assert machine.paths() == ["/f.0.tmp", "/f.1.tmp"]


# ---- faults


def test_reads_fail_as_often_as_armed() -> None:
    machine = Machine()
    file = machine.disk.open("/f.log", create=True)
    file.pwrite(b"x", 0)
    faults = machine.whole.faults
    faults.fail(
        FaultKind.READ, random.Random(0), count=3, after=1, matches=lambda p: p.endswith(".log")
    )
    assert machine.disk.list("/") == ["f.log"]
    assert file.pread(1, 0) == b"x"
    assert failure_of(lambda: file.pread(1, 0)).operation == "read"
    assert failure_of(lambda: machine.disk.read("/f.log")).operation == "read"
    assert number_of(failure_of(lambda: file.pread(1, 0))) == errno.EIO
    assert not faults.armed
    assert faults.struck_count == 3
    assert file.pread(1, 0) == b"x"
    faults.fail(FaultKind.READ, random.Random(0))
    assert failure_of(lambda: machine.disk.list("/")).operation == "list"


def test_a_failed_write_may_have_written_a_part() -> None:
    left = set()
    for seed in range(40):
        machine = Machine()
        file = machine.disk.open("/f", create=True)
        machine.whole.faults.fail(FaultKind.WRITE, random.Random(seed))
        assert failure_of(lambda: file.pwrite(b"0123456789", 0)).operation == "write"  # noqa: B023
        left.add(machine.disk.read("/f"))
    assert len(left) > 5
    assert b"" in left
    assert b"0123456789" not in left


@pytest.mark.parametrize(
    ("kind", "operation", "action"),
    [
        (FaultKind.WRITE, "truncate", lambda disk: disk.open("/f").truncate(9)),
        (FaultKind.WRITE, "write", lambda disk: disk.write_atomic("/f", b"x", sync=False)),
        (FaultKind.NAMES, "write", lambda disk: disk.write_atomic("/f", b"x", sync=False)),
        (FaultKind.FSYNC, "write", lambda disk: disk.write_atomic("/f", b"x", sync=True)),
        (FaultKind.FSYNC, "fsync", lambda disk: disk.sync_dir("/")),
        (FaultKind.NAMES, "open", lambda disk: disk.open("/g", create=True)),
        (FaultKind.NAMES, "create", lambda disk: disk.mkdir("/d")),
        (FaultKind.NAMES, "rename", lambda disk: disk.rename("/f", "/g")),
        (FaultKind.NAMES, "remove", lambda disk: disk.remove("/f")),
        (FaultKind.NAMES, "remove", lambda disk: disk.remove_tree("/e")),
    ],
)
def test_a_failure_changes_no_name(
    kind: FaultKind, operation: str, action: Callable[[Disk], object]
) -> None:
    machine = Machine()
    machine.disk.write_atomic("/f", b"content", sync=True)
    machine.disk.mkdir("/e")
    machine.whole.faults.fail(kind, random.Random(0))
    assert failure_of(lambda: action(machine.disk)).operation == operation
    assert machine.disk.read("/f") == b"content"
    assert [name for name in machine.disk.list("/") if not name.endswith(".tmp")] == ["e", "f"]


def test_a_retried_fsync_succeeds_but_may_have_lost_what_was_not_synced() -> None:
    left = []
    for seed in range(40):
        machine = Machine()
        file = machine.disk.open("/f", create=True)
        machine.disk.sync_dir("/")
        file.pwrite(b"synced", 0)
        file.fsync()
        file.pwrite(b"dropped", 6)
        machine.whole.faults.fail(FaultKind.FSYNC, random.Random(seed))
        assert failure_of(file.fsync).operation == "fsync"
        file.pwrite(b"later", 13)
        file.fsync()
        assert file.pread(100, 0) == b"synceddroppedlater"
        machine.restart()
        assert machine.disk.read("/f") == b"synceddroppedlater"
        machine.lose_power(rate=1.0)
        left.append(machine.disk.read("/f"))
    assert set(left) == {b"synceddroppedlater", b"synced" + bytes(7) + b"later"}
    assert 10 < left.count(b"synceddroppedlater") < 30


def test_what_was_dropped_is_durable_once_it_is_written_again() -> None:
    machine = Machine()
    file = machine.disk.open("/f", create=True)
    machine.disk.sync_dir("/")
    file.pwrite(b"content", 0)
    machine.whole._device.tree.find("/f").drop_unsynced()  # type: ignore[union-attr]
    file.pwrite(b"content", 0)
    file.fsync()
    machine.lose_power(rate=0.0)
    assert machine.disk.read("/f") == b"content"


def test_on_a_full_disk_nothing_grows_until_it_is_healed() -> None:
    parts = set()
    for seed in range(20):
        machine = Machine()
        file = machine.disk.open("/f", create=True)
        file.pwrite(b"0123", 0)
        machine.whole.faults.fill(random.Random(seed))
        file.pwrite(b"abcd", 0)
        failure = failure_of(lambda: file.pwrite(b"ABCDEF", 2))  # noqa: B023
        assert number_of(failure) == errno.ENOSPC
        assert number_of(failure_of(lambda: file.truncate(100))) == errno.ENOSPC  # noqa: B023
        parts.add(file.pread(10, 0))
        file.truncate(1)
        machine.disk.rename("/f", "/g")
        machine.whole.faults.heal()
        file.pwrite(b"bcdefgh", 1)
    assert parts == {b"abcd", b"abAB", b"abABC", b"abABCD", b"abABCDE"}


def test_a_disk_is_full_at_its_capacity_and_finds_what_was_removed() -> None:
    machine = Machine(capacity_bytes=1000)
    for _ in range(5):
        for name in ("/a", "/b", "/c"):
            machine.disk.write_atomic(name, b"x" * 200, sync=False)
    file = machine.disk.open("/a")
    assert number_of(failure_of(lambda: file.pwrite(b"x" * 500, 200))) == errno.ENOSPC
    machine.disk.remove("/b")
    file.pwrite(b"x" * 500, 200)
    assert machine.whole.used_bytes() == 900


# ---- damage


def test_a_bit_flips_only_in_what_is_synced() -> None:
    machine = Machine()
    file = machine.disk.open("/f.log", create=True)
    machine.disk.write_atomic("/other", b"x", sync=True)
    file.pwrite(bytes(100), 0)
    is_log = str.endswith
    rng = random.Random(0)
    assert machine.whole.flip_bit(rng, lambda path: is_log(path, ".log")) is None
    file.fsync()
    file.pwrite(bytes(100), 100)
    file.pwrite(bytes(10), 90)
    machine.disk.sync_dir("/")
    said = [machine.whole.flip_bit(rng, lambda path: is_log(path, ".log")) for _ in range(50)]
    assert all(line and line.startswith("/f.log: bit ") for line in said)
    data = file.pread(200, 0)
    assert any(data[:90])
    assert not any(data[90:])
    machine.lose_power(rate=0.0)
    assert machine.disk.read("/f.log") == data[:100]
    assert machine.disk.read("/other") == b"x"


def test_files_are_cut_emptied_and_removed_for_good() -> None:
    notes = Notes()
    machine = Machine(trace=notes)
    for name in ("/a", "/b", "/c"):
        machine.disk.write_atomic(name, b"x" * 100, sync=False)
    whole, rng = machine.whole, random.Random(1)
    said = [
        whole.cut_file(rng, lambda path: path == "/a"),
        whole.empty_file(rng, lambda path: path == "/b"),
        whole.remove_file(rng, lambda path: path == "/c"),
    ]
    sizes = {f.path: f.size_bytes for f in whole.files()}
    assert 0 < sizes["/a"] < 100
    assert sizes["/b"] == 0
    assert said == [
        f"/a: cut from 100 to {sizes['/a']} bytes",
        "/b: cut from 100 to 0 bytes",
        "/c: removed with 100 bytes",
    ]
    assert notes.lines[-3:] == [("damage", line) for line in said]
    machine.lose_power(rate=0.0)
    assert {f.path: f.size_bytes for f in whole.files()} == sizes
    assert whole.empty_file(rng, lambda path: path == "/b") is None
    assert whole.remove_file(rng, lambda path: path == "/c") is None


# ---- looking at it


def test_its_files_can_be_listed_and_exported(tmp_path: Path) -> None:
    machine = Machine()
    machine.disk.mkdir("/data/t-0")
    machine.disk.mkdir("/data/empty")
    machine.disk.write_atomic("/data/t-0/f", b"content", sync=True)
    machine.disk.open("/data/a", create=True).pwrite(b"x", 0)
    machine.whole.export(tmp_path / "out")
    assert (tmp_path / "out/data/t-0/f").read_bytes() == b"content"
    assert (tmp_path / "out/data/empty").is_dir()
    states = [(f.path, f.size_bytes, f.is_synced) for f in machine.whole.files()]
    assert states == [("/data/a", 1, False), ("/data/t-0/f", 7, True)]


def test_a_fork_goes_its_own_way() -> None:
    machine = Machine()
    file = machine.disk.open("/f", create=True)
    file.pwrite(b"x" * 10, 0)
    fork = machine.whole.fork(random.Random(0))
    fork.lose_power(random.Random(0), rate=0.0)
    assert fork.files() == []
    file.pwrite(b"y", 0)
    assert machine.disk.read("/f") == b"y" + b"x" * 9
    other = machine.whole.fork(random.Random(0))
    process = Process(machine.scheduler, "other", "10.0.0.2", random.Random(0))
    other.of(process).write_atomic("/f", b"", sync=False)
    assert machine.disk.read("/f") == b"y" + b"x" * 9


def test_a_disk_is_replaced_by_an_empty_one_or_by_what_it_was() -> None:
    machine = Machine()
    machine.disk.write_atomic("/f", b"earlier", sync=False)
    earlier = machine.whole.snapshot()
    machine.disk.write_atomic("/f", b"later", sync=True)
    machine.process.kill("done")
    machine.whole.replace(None)
    assert machine.whole.files() == []
    machine.whole.replace(earlier)
    assert machine.whole.lose_power(random.Random(0), rate=0.0) == []
    assert machine.whole.peek("/f") == b"earlier"


def test_what_is_put_back_is_known_as_a_copy_by_its_inode() -> None:
    """A broker would take it for what its last life has left, and lead without records."""
    machine = Machine()
    note_life(machine.disk, "/", 1, is_synced=True)
    earlier = machine.whole.snapshot()
    machine.process.kill("done")
    machine.whole.replace(earlier)
    process = Process(machine.scheduler, "next", "10.0.0.1", random.Random(0))
    life = read_life(machine.whole.of(process), "/", is_new=False)
    assert unclean_folder(1, life) == "/ is a copy"


def test_a_process_always_gets_the_same_view() -> None:
    machine = Machine()
    assert machine.whole.of(machine.process) is machine.disk
