"""Retention of several logs in one round."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from pathlib import Path

import pytest

from oncelog.broker.partitions.removals import Removals, delete_old_segments
from oncelog.core.limits import REMOVAL_CHECK_MS
from oncelog.runtime import StorageFailure, SystemDisk
from tests.support.logged import said_by
from tests.unit.storage.context import LogContext


class BadDisk(SystemDisk):
    def rename(self, source: str, target: str) -> None:
        if "/bad/" in source:
            raise StorageFailure("rename", source, "for the test")
        super().rename(source, target)


class SteppedClock:
    """A clock that moves only while somebody sleeps; at its end it cancels who does."""

    def __init__(self, end_ms: float) -> None:
        self.time_ms = 0.0
        self._end_ms = end_ms

    def now_ms(self) -> int:
        return int(self.time_ms)

    def monotonic_ms(self) -> float:
        return self.time_ms

    async def sleep(self, delay_ms: float) -> None:
        if self.time_ms + delay_ms > self._end_ms:
            raise asyncio.CancelledError
        self.time_ms += delay_ms


@pytest.mark.parametrize("is_over", [False, True])
async def test_a_file_is_removed_once_its_delay_is_over(tmp_path: Path, is_over: bool) -> None:
    delay_ms = 5 * REMOVAL_CHECK_MS
    removals = Removals(SystemDisk(), SteppedClock(delay_ms if is_over else delay_ms - 1))
    late, soon = tmp_path / "late.deleted", tmp_path / "soon.deleted"
    for path in (late, soon):
        path.touch()
    removals.add([str(late)], delay_ms)
    removals.add([str(soon)], 0)
    removals.add([str(tmp_path / "later.deleted")], 2 * delay_ms)
    with suppress(asyncio.CancelledError):
        await removals.run()
    assert late.exists() is not is_over
    assert not soon.exists()


def test_retention_says_what_it_deleted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ctx = LogContext(tmp_path, segment_bytes=100)
    for _ in range(3):
        ctx.append_well()
    ctx.log.delete_records(2)
    with caplog.at_level(logging.INFO, "oncelog.broker.partitions.removals"):
        delete_old_segments([(ctx.log, 3)], ctx.now_ms)
        delete_old_segments([(ctx.log, 3)], ctx.now_ms)
    (said,) = [record.getMessage() for record in said_by(caplog)]
    name = ctx.log.topic_partition
    assert said == f"{name}: retention deleted 2 segments, the log starts at 2 now"


def test_a_log_that_fails_keeps_no_file_of_the_others_from_being_removed(tmp_path: Path) -> None:
    """Their files were renamed: nobody else would remove them before the next start."""
    due = []
    for name in ("first", "bad", "last"):
        ctx = LogContext(tmp_path / name, BadDisk(), segment_bytes=100, file_delete_delay_ms=7)
        for _ in range(3):
            ctx.append_well()
        ctx.log.delete_records(2)
        due.append((ctx.log, 3))
    found = delete_old_segments(due, ctx.now_ms)
    assert [str(failure) for failure in found.failures] == [
        f"cannot rename {tmp_path}/bad/{0:020d}.log: for the test"
    ]
    for (paths, delay_ms), name in zip(found.deleted, ("first", "last"), strict=True):
        assert delay_ms == 7
        renamed = {str(path) for path in (tmp_path / name).glob("*.deleted")}
        assert set(paths) == renamed
        assert f"{tmp_path}/{name}/{1:020d}.log.deleted" in renamed
