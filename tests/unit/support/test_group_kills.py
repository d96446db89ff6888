"""The judge of the groups whose consumers are killed, and what is kept of their rows."""

import struct
from typing import TypeAlias

import pytest

from tests.support import group_kills
from tests.support.group_judge import GroupHistory, committed, judge
from tests.support.group_kills import NAME, ROWS, keep, kept, sources
from tests.support.group_member import ends

Rows: TypeAlias = dict[str, dict[str, object]]


def history() -> GroupHistory:
    """Two partitions, all processed and committed."""
    found = GroupHistory({0: 2, 1: 1})
    found.read_notes("processed 0 0\nprocessed 0 1\nprocessed 1 0\n")
    found.commits = [(0, 1), (1, 1), (0, 2)]
    return found


def test_a_history_in_which_all_went_well_is_exact() -> None:
    assert judge(history()) == []
    assert history().counts()["processed again"] == 0


def test_a_record_that_no_member_processed_is_found() -> None:
    found = history()
    del found.processed[0, 1]
    assert judge(found) == ["partition 0: 1 not processed, the first is 1"]


def test_a_record_may_be_processed_again() -> None:
    found = history()
    found.read_notes("processed 0 0\n")
    assert judge(found) == []
    assert found.counts()["processed again"] == 1


def test_a_commit_that_goes_back_is_found() -> None:
    found = history()
    found.commits = [(0, 1), (1, 1), (0, 2), (0, 1), (0, 2)]
    assert judge(found) == ["INV-8: partition 0: 1 was committed after 2"]


def test_a_partition_that_is_not_committed_to_its_end_is_found() -> None:
    found = history()
    found.commits = [(0, 1), (0, 2)]
    assert judge(found) == ["partition 1: None is committed, 1 due"]


def test_a_note_that_was_cut_off_does_not_count() -> None:
    found = GroupHistory({0: 1})
    found.read_notes("refused CommitFailed []\nprocessed 0 ")
    assert not found.processed
    assert found.refused_count == 1


def test_commits_are_read_from_the_records_of_the_group_alone() -> None:
    key = struct.pack(">hh1sh1si", 1, 1, b"g", 1, b"t", 5)
    value = struct.pack(">hqi", 4, 77, -1)
    assert committed(key, value, "g") == (5, 77)
    assert committed(key, value, "other") is None
    assert committed(key, None, "g") is None
    assert committed(struct.pack(">hh1s", 2, 1, b"g"), value, "g") is None


def test_the_end_of_each_partition_is_committed() -> None:
    assert ends([(0, 4), (1, 2), (0, 3)]) == {0: 5, 1: 3}


@pytest.mark.usefixtures("evidence_folder")
def test_rows_are_kept_from_run_to_run() -> None:
    digest = sources()
    assert kept(NAME) == {}
    first: Rows = {ROWS[0].name: {"verdict": "passed", "sources": digest}}
    assert keep(NAME, ROWS, first, digest) == "incomplete"
    assert kept(NAME) == first
    whole: Rows = {row.name: {"verdict": "passed", "sources": digest} for row in ROWS}
    assert keep(NAME, ROWS, whole, digest) == "passed"
    assert keep(NAME, ROWS, whole, "other sources") == "incomplete"
    assert keep(
        NAME, ROWS, {**whole, ROWS[1].name: {"verdict": "broken", "sources": digest}}, digest
    ) == ("broken")


def test_every_row_has_a_name_of_its_own() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS) == 48
    assert all(group_kills.MEMBERS_COUNT % row.per_process == 0 for row in ROWS)
