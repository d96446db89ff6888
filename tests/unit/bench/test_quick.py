"""What a comparison with another commit rests on: its sources, and the counts of both."""

from pathlib import Path

import pytest

from bench.quick import count_table, counts, export
from bench.systems import environment_of


def test_an_unknown_commit_is_refused_by_git_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^fatal: not a valid object name: no-such-commit$"):
        export("no-such-commit", tmp_path)


def test_a_build_that_cannot_be_counted_has_no_counts(tmp_path: Path) -> None:
    assert counts("no.such.module", tmp_path) == {}


def test_a_request_that_costs_more_is_red() -> None:
    table = count_table("calls", {"Fetch": 56, "Produce": 55}, {"Fetch": 56, "Produce": 54})
    cells = dict(zip(table.columns[0].cells, table.columns[1].cells, strict=True))
    assert str(cells["Produce"]).startswith("[red]")
    assert str(cells["Fetch"]).startswith("[default]")


def test_only_the_named_sources_are_seen(tmp_path: Path) -> None:
    assert environment_of(tmp_path)["PYTHONPATH"] == str(tmp_path)
