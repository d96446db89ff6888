"""A move meets a failing disk, dies, or both: every record that was acknowledged stays."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from itertools import count

import pytest

from oncelog.runtime.disk import StorageFailure
from oncelog.simulation.disk import FaultKind
from oncelog.simulation.process import ProcessDied
from oncelog.storage import LogManager
from tests.support.folders import open_logs
from tests.support.machine import Machine
from tests.unit.storage.context import NOW_MS, batch, read_all
from tests.unit.storage.test_moves import CONFIG, T0, begin, fill

SOURCE, TARGET = "/a", "/b"
AT_ONCE, FOR_EVER = 1, 10**9


class Story:
    """A log that is moved by a broker, and `records`: those that were acknowledged."""

    def __init__(self) -> None:
        self.machine = Machine()
        for folder in (SOURCE, TARGET):
            self.machine.disk.mkdir(folder)
        self.machine.disk.sync_dir("/")
        self.manager = open_logs(SOURCE, TARGET, disk=self.machine.disk, config=CONFIG)
        self.records = fill(self.manager)
        self.manager.flush()
        self.machine.disk.sync_dir(SOURCE)

    def move(self) -> None:
        """Move as `PartitionMover` does."""
        move = begin(self.manager)
        try:
            while not move.copy():
                pass
            move.finish()
            move.swap()
        except StorageFailure as failure:
            self.manager.take_off_line(failure)
        with contextlib.suppress(StorageFailure):
            move.abandon()

    def go_on(self) -> None:
        """Append where the log is served, and acknowledge once that is synced."""
        held = self.manager.get(T0)
        if held is None:
            return
        try:
            held.append(batch(2), leader_epoch=5, now_ms=NOW_MS)
            held.flush()
            self.records = read_all(held)
        except StorageFailure as failure:
            self.manager.take_off_line(failure)

    def end(self, *, power: bool, seed: int) -> None:
        self.machine.whole.faults.heal()
        if power:
            self.machine.lose_power(seed)
        else:
            self.machine.restart()

    def start(self) -> LogManager:
        self.manager = open_logs(SOURCE, TARGET, disk=self.machine.disk, config=CONFIG)
        return self.manager

    def check(self) -> None:
        held = self.manager.get(T0)
        assert held is not None
        assert list(self.manager) == [T0]
        assert held.log_start_offset == 3
        assert read_all(held)[: len(self.records)] == self.records
        assert not [path for path in self.machine.paths() if "-future" in path]

    def start_and_check(self, *, power: bool, seed: int) -> None:
        """Three starts, with more records between them."""
        for number in range(3):
            self.start()
            self.check()
            self.go_on()
            self.end(power=power, seed=seed + number)


def fails_at(at: int, kind: FaultKind, folder: str, times: int, *, power: bool) -> bool:
    story = Story()
    faults = story.machine.whole.faults
    faults.fail(
        kind,
        random.Random(at),
        count=times,
        after=at,
        matches=lambda path: path == folder or path.startswith(f"{folder}/"),
    )
    story.move()
    has_failed = faults.struck_count > 0
    story.go_on()
    story.end(power=power, seed=at)
    story.start_and_check(power=power, seed=at)
    return has_failed


KINDS = [FaultKind.WRITE, FaultKind.FSYNC, FaultKind.NAMES]


@pytest.mark.slow
@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("folder", [SOURCE, TARGET])
@pytest.mark.parametrize("times", [AT_ONCE, FOR_EVER])
@pytest.mark.parametrize("kind", KINDS)
def test_a_disk_that_fails_at_any_operation_of_a_move_loses_nothing(
    kind: FaultKind, times: int, folder: str, power: bool
) -> None:
    """INV-9: also if it fails once the old folder is renamed, or while the copy is removed."""
    at = next(at for at in count() if not fails_at(at, kind, folder, times, power=power))
    assert at > 0 or (folder, kind) == (SOURCE, FaultKind.WRITE)


def dies_at(at: int, fail: Callable[[Machine], None], *, power: bool) -> bool:
    story = Story()
    fail(story.machine)
    story.machine.whole.arm_kill(story.machine.process, after_operations=at, moment="before")
    try:
        story.move()
    except ProcessDied:
        story.end(power=power, seed=at)
        story.start_and_check(power=power, seed=at)
        return True
    return False


def full_checkpoint(machine: Machine) -> None:
    """The copy is complete, and the target fails before the old folder is renamed."""
    machine.whole.faults.fail(
        FaultKind.WRITE, random.Random(0), matches=lambda path: "log-start-offset" in path
    )


def full_sync(machine: Machine) -> None:
    """The old folder is renamed, which cannot be synced."""
    machine.whole.faults.fail(
        FaultKind.FSYNC, random.Random(0), matches=lambda path: path == SOURCE
    )


@pytest.mark.slow
@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("fail", [full_checkpoint, full_sync])
def test_a_death_at_any_operation_of_a_move_that_fails_loses_nothing(
    fail: Callable[[Machine], None], power: bool
) -> None:
    assert next(at for at in count(1) if not dies_at(at, fail, power=power)) > 20
