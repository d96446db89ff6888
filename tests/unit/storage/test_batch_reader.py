"""Runs of plain batches: recovery finds by them what it finds batch by batch, with less work."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from oncelog.storage.batch_reader import BatchReader, SoundBatch
from oncelog.storage.results import CorruptBatch
from tests.unit.storage.context import NOW_MS, LogContext, batch

SETTINGS: dict[str, Any] = {"index_interval_bytes": 400, "segment_bytes": 6_000}


def fill(ctx: LogContext, rng: random.Random) -> None:
    """Plain batches mostly, of all sizes and times, with producers and leader epochs between."""
    sequence = 0
    for _ in range(rng.randint(1, 150)):
        ctx.leader_epoch += rng.random() < 0.05
        if rng.random() < 0.1:
            ctx.append_well(producer=7, epoch=0, sequence=sequence, transactional=True)
            sequence += 1
            if rng.random() < 0.5:
                ctx.end(7, 0, commit=rng.random() < 0.5)
        else:
            ctx.append_well(
                batch(
                    rng.randint(1, 4),
                    timestamp_ms=NOW_MS + rng.randint(-9, 9),
                    value=bytes(rng.randint(0, 300)),
                    codec=rng.choice(["none", "none", "gzip"]),
                )
            )


def damage(folder: Path, rng: random.Random) -> None:
    """Change a byte, or cut the end off."""
    path = rng.choice(sorted(folder.glob("*.log")))
    data = bytearray(path.read_bytes())
    place = rng.randrange(len(data)) if data else 0
    if rng.random() < 0.5:
        del data[place:]
    elif data:
        data[place] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def found(ctx: LogContext, target: Path, recovery_point: int) -> dict[str, object]:
    """What a start makes of a copy of the folder: its files, and what the log says."""
    shutil.copytree(ctx.folder, target)
    started = LogContext(target, **SETTINGS, recovery_point=recovery_point)
    log = started.log
    reads: list[object] = []
    for offset in range(log.log_start_offset, log.log_end_offset):
        try:
            reads.append(bytes(log.read(offset, 500, upper_bound=log.log_end_offset)))
        except CorruptBatch as damaged:
            reads.append(damaged.code)
    log.close()
    files = {path.name: path.read_bytes() for path in target.iterdir()}
    return {"reads": reads, "stable": log.last_stable_offset(log.log_end_offset), **files}


@pytest.mark.parametrize("seed", range(30))
def test_runs_find_what_batches_one_by_one_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    ctx = LogContext(tmp_path / "flights-0", **SETTINGS)
    fill(ctx, rng)
    end = ctx.log.log_end_offset
    if rng.random() < 0.6:
        damage(ctx.folder, rng)
    recovery_point = rng.choice([0, rng.randint(0, end)])
    by_runs = found(ctx, tmp_path / "runs-0", recovery_point)
    monkeypatch.setattr(BatchReader, "plain_run", lambda *_: None)
    assert found(ctx, tmp_path / "batches-0", recovery_point) == by_runs


def test_few_batches_of_a_log_of_plain_ones_are_looked_at_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = LogContext(tmp_path / "flights-0")
    for _ in range(1_000):
        ctx.append_well(value=bytes(100))
    calls = 0
    sound_at = BatchReader.sound_at

    def counted(reader: BatchReader, position: int, expected: int) -> SoundBatch | None:
        nonlocal calls
        calls += 1
        return sound_at(reader, position, expected)

    monkeypatch.setattr(BatchReader, "sound_at", counted)
    assert ctx.kill().log_end_offset == 1_000
    assert calls < 60


def test_a_log_of_producers_is_not_tried_for_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = LogContext(tmp_path / "flights-0")
    for sequence in range(20):
        ctx.append_well(producer=1, epoch=0, sequence=sequence)

    def never(*_: object) -> None:
        raise AssertionError("a run was tried")

    monkeypatch.setattr(BatchReader, "plain_run", never)
    assert ctx.kill().log_end_offset == 20
