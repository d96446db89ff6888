"""Steps, and the row of the crash table that a kill hit."""

from pathlib import Path

import pytest

from oncelog.spark.progress import CrashRow, ProgressLog, crash_row, read_progress


def test_steps_are_read_back_in_order_and_a_cut_line_ends_them(tmp_path: Path) -> None:
    path = tmp_path / "progress"
    ProgressLog(str(path)).step("wal_written", 3)
    ProgressLog(str(path)).step("after_init", 3, epoch=8)
    path.write_text(path.read_text() + '{"step":"tas')
    steps = read_progress(str(path))
    assert [(s["step"], s["batch"]) for s in steps] == [("wal_written", 3), ("after_init", 3)]
    assert steps[1]["epoch"] == 8
    assert read_progress(str(tmp_path / "none")) == []


@pytest.mark.parametrize(
    ("step", "row"),
    [
        ("wal_written", CrashRow.WAL_WRITTEN),
        ("after_init", CrashRow.AFTER_INIT),
        ("mid_task", CrashRow.MID_TASK),
        ("tasks_done", CrashRow.TASKS_DONE),
        ("offsets_committed", CrashRow.OFFSETS_COMMITTED),
        ("ending", CrashRow.ENDING),
        ("txn_ended", CrashRow.TXN_ENDED),
    ],
)
def test_the_last_step_names_the_row(tmp_path: Path, step: str, row: CrashRow) -> None:
    assert crash_row([{"step": "x", "batch": 0}, {"step": step, "batch": 1}], str(tmp_path)) is row


def test_sparks_own_logs_tell_the_ends_of_a_batch_apart(tmp_path: Path) -> None:
    steps = [{"step": "txn_ended", "batch": 1}]
    for folder in ("commits", "offsets"):
        (tmp_path / folder).mkdir()
    assert crash_row(steps, str(tmp_path)) is CrashRow.TXN_ENDED
    (tmp_path / "commits" / "1").touch()
    assert crash_row(steps, str(tmp_path)) is CrashRow.BETWEEN_BATCHES
    (tmp_path / "offsets" / "2").touch()
    assert crash_row(steps, str(tmp_path)) is CrashRow.WAL_WRITTEN
    assert crash_row([], str(tmp_path)) is CrashRow.BETWEEN_BATCHES
