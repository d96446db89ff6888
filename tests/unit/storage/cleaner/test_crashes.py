"""A cleaning dies at every change of the folder, and the power may go: INV-1, INV-3, INV-9.

Whatever is left, two restarts later the log says the same as before, and can be cleaned.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from oncelog.runtime import Disk
from oncelog.simulation.disk import Moment
from oncelog.simulation.process import ProcessDied
from tests.support.logged import said_by
from tests.support.machine import Machine
from tests.unit.storage.cleaner.context import RETENTION_MS, CompactedLog

FOLDER = Path("/data/t-0")


def new_log(machine: Machine, **settings: Any) -> CompactedLog:
    """A log in a folder whose own name survives: that is the log manager's part."""
    machine.disk.mkdir(str(FOLDER))
    machine.disk.sync_dir("/")
    machine.disk.sync_dir("/data")
    return CompactedLog(FOLDER, machine.disk, segment_bytes=1200, **settings)


def fill(ctx: CompactedLog) -> None:
    """Segments for several groups, with all that a cleaning treats in its own way."""
    ctx.put(("gone", "1"), ("a", "0"))
    ctx.put(("gone", None))
    ctx.put_in_transaction(("a", "aborted"), producer=1)
    ctx.abort(1)
    ctx.seal()
    ctx.clean()
    ctx.later(RETENTION_MS)
    for number in range(3):
        ctx.put_in_transaction(("a", f"{number}" * 90), (f"k{number}", "x"), producer=2)
        ctx.put_in_transaction(("b", "aborted"), producer=1, epoch=number + 1)
        ctx.commit(2)
        ctx.seal()
        ctx.abort(1, epoch=number + 1)
        ctx.put(("b", f"{number}" * 90), producer=3, codec="gzip" if number else "none")
        ctx.put((f"k{number - 1}", None))
        ctx.seal()


def facts(ctx: CompactedLog) -> dict[str, Any]:
    """What no cleaning may change."""
    end = ctx.log.log_end_offset
    newest = {key: (offset, value) for offset, key, value in ctx.committed()}
    return {
        "end": end,
        "stable": ctx.log.last_stable_offset(end),
        "newest": {key: found for key, found in newest.items() if found[1] is not None},
        "sequences": {
            entry.producer_id: (entry.epoch, entry.last_sequence)
            for entry in ctx.log.producers.entries()
        },
    }


def restart(ctx: CompactedLog, machine: Machine, recovery_point: int) -> bool:
    """Open the log again; False when the process died of it."""
    ctx.disk = machine.disk
    try:
        ctx.open(recovery_point=recovery_point)
    except ProcessDied:
        return False
    return True


def end_process(machine: Machine, seed: int, *, power: bool) -> None:
    if power:
        machine.lose_power(seed)
    else:
        machine.restart()


@pytest.mark.slow
@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("moment", ["before", "torn"])
def test_a_cleaning_may_die_at_every_change_and_again_while_it_is_recovered(
    moment: Moment, power: bool
) -> None:
    dies, at = True, 0
    while dies:
        at += 1
        machine = Machine()
        ctx = new_log(machine)
        fill(ctx)
        ctx.log.flush()
        point = ctx.log.recovery_point if at % 2 else 0
        before, records = facts(ctx), set(ctx.committed())
        machine.whole.arm_kill(machine.process, after_operations=at, moment=moment)
        dies = cleaning_dies(ctx)
        for again in range(2):
            end_process(machine, 10 * at + again, power=power)
            # The first restart may die as well, at another place each time.
            machine.whole.arm_kill(machine.process, after_operations=1 + at % 11, moment=moment)
            restart(ctx, machine, point)
        end_process(machine, 10 * at + 9, power=power)
        assert restart(ctx, machine, point)
        assert facts(ctx) == before, (at, machine.deaths)
        assert set(ctx.committed()) <= records
        assert not leftovers(ctx)
        ctx.clean()
        assert facts(ctx) == before
        assert not leftovers(ctx)
    assert at > 50


def test_a_segment_that_took_others_in_unchanged_is_as_long_as_they_were() -> None:
    """Its own files are what they were: only the record of its end tells that it holds more."""
    dies, at = True, 0
    while dies:
        at += 1
        machine = Machine()
        ctx = new_log(machine)
        ctx.put(("kept", "1"))
        for value in ("1", "2" * 1000):
            ctx.seal()
            ctx.put(("a", value))
        ctx.seal()
        ctx.log.flush()
        newest = facts(ctx)["newest"]
        machine.whole.arm_kill(machine.process, after_operations=at)
        dies = cleaning_dies(ctx)
        machine.restart()
        assert restart(ctx, machine, ctx.log.recovery_point)
        assert ctx.log.recovery.damaged_bytes == 0, ctx.log.recovery.reasons
        assert facts(ctx)["newest"] == newest


def cleaning_dies(ctx: CompactedLog) -> bool:
    try:
        ctx.clean()
    except ProcessDied:
        return True
    return False


def leftovers(ctx: CompactedLog) -> list[str]:
    endings = (".cleaned", ".swap", ".deleted", ".tmp")
    return [name for name in ctx.disk.list(str(FOLDER)) if name.endswith(endings)]


@pytest.mark.slow
def test_what_makes_a_record_obsolete_is_on_the_disk_before_that_one_goes() -> None:
    """INV-1: of a log that was not flushed, a loss of power leaves what a shorter log had said."""
    dies, at = True, 0
    while dies:
        at += 1
        machine = Machine()
        ctx = new_log(machine)
        for number in range(8):
            ctx.put(("a", f"{number}" * 300), (f"k{number % 3}", str(number)))
            ctx.seal(f"s{number % 2}")
            if number == 3:
                ctx.log.flush()
        records = ctx.committed()
        point = ctx.log.recovery_point
        machine.whole.arm_kill(machine.process, after_operations=at, rng=random.Random(at))
        dies = cleaning_dies(ctx)
        machine.lose_power(at)
        assert restart(ctx, machine, point)
        end = ctx.log.log_end_offset
        assert end >= point
        left = {key: (offset, value) for offset, key, value in ctx.committed()}
        assert left == {key: (offset, value) for offset, key, value in records if offset < end}, (
            at,
            machine.deaths,
        )


def test_a_swap_of_apache_kafka_that_dropped_the_suffix_of_the_log_only_is_finished() -> None:
    machine = Machine()
    ctx = new_log(machine)
    fill(ctx)
    ctx.log.close()
    before = ctx.disk.read(f"{FOLDER}/00000000000000000000.index")
    for suffix in ("index", "timeindex"):
        path = f"{FOLDER}/00000000000000000000.{suffix}"
        ctx.disk.rename(path, path + ".swap")
    ctx.open(clean=True)
    assert not leftovers(ctx)
    assert ctx.disk.read(f"{FOLDER}/00000000000000000000.index") == before


def test_a_start_without_an_interrupted_cleaning_syncs_no_folder() -> None:
    """A broker opens thousands of logs, and each sync of a folder takes milliseconds."""
    machine = Machine()
    ctx = new_log(machine)
    fill(ctx)
    ctx.log.close()
    disk = WatchedDisk(machine.restart())
    disk.look = lambda: pytest.fail("the folder was synced")
    ctx.disk = cast(Disk, disk)
    ctx.open(clean=True)
    assert len(ctx.log.segment_base_offsets) > 1


def test_a_finished_swap_is_said(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    ctx = new_log(machine)
    fill(ctx)
    ctx.log.flush()
    machine.whole.arm_kill(machine.process, after_operations=1, moment="before", aim="*0[1-9].log")
    assert cleaning_dies(ctx)
    machine.restart()
    caplog.clear()
    assert restart(ctx, machine, 0)
    assert [record.message for record in said_by(caplog)] == [
        f"{FOLDER}: finished an interrupted cleaning: "
        "segment 0, up to offset 14, replaces 3 segments"
    ]


class WatchedDisk:
    """A disk that calls `look` after each sync of a folder."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.look: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def sync_dir(self, path: str) -> None:
        self._disk.sync_dir(path)
        self.look()


def test_readers_between_the_steps_of_a_swap_find_everything() -> None:
    disk = WatchedDisk(Machine().disk)
    ctx = CompactedLog(FOLDER, cast(Disk, disk), segment_bytes=1200)
    fill(ctx)
    before = facts(ctx)
    seen = 0

    def look() -> None:
        nonlocal seen
        seen += 1
        assert facts(ctx) == before
        for segment in ctx.log.cleaning.sealed_segments():
            segment.release()

    disk.look = look
    ctx.clean()
    assert seen > 12
