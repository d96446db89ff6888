from pathlib import Path

import pytest

from tests.support.left_folders import check_left, disagreements_in
from tests.unit.storage.cleaner.context import CompactedLog
from tests.unit.storage.context import LogContext


def test_a_sound_folder_agrees_and_a_lost_abort_is_named(tmp_path: Path) -> None:
    ctx = LogContext(tmp_path / "t-0", segment_bytes=200)
    for sequence in range(2):
        ctx.append_well(producer=1, epoch=0, sequence=sequence, transactional=True)
    ctx.end(1, 0, commit=False)
    ctx.log.close()
    check_left(tmp_path, was_closed=True)
    (aborts,) = (tmp_path / "t-0").glob("*.txnindex")
    aborts.unlink()
    (text,) = disagreements_in(tmp_path, was_closed=True)
    assert text.startswith(f"t-0: {aborts.name}: ")
    assert not disagreements_in(tmp_path, was_closed=False), "it was of the active segment"
    with pytest.raises(AssertionError, match="is missing"):
        check_left(tmp_path, was_closed=True)


def test_what_compaction_took_is_not_missed(tmp_path: Path) -> None:
    ctx = CompactedLog(tmp_path / "t-0")
    for value in ("old", "newer", "newest"):
        ctx.put_in_transaction(("a", value), producer=1)
        ctx.abort(1)
        ctx.put(("b", value))
        ctx.seal()
    ctx.clean()
    ctx.restart()
    check_left(tmp_path, was_closed=False)


def test_folders_that_are_no_partitions_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "t-0.0123456789abcdef-delete").mkdir()
    (tmp_path / "empty-0").mkdir()
    check_left(tmp_path, was_closed=True)
