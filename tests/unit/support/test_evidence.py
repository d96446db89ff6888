"""Each campaign has one row of the evidence, and what it goes on from is kept beside git."""

from pathlib import Path

import pytest

from tests.support import evidence

HEAD = "# Evidence\n\nText.\n\n| a | b | c | d | e | f | g |\n" + evidence.RULE


def rows() -> list[list[str]]:
    text = evidence.TABLE.read_text()
    assert text.startswith(HEAD)
    return [line.strip("| ").split(" | ") for line in text.removeprefix(HEAD).splitlines()]


@pytest.fixture(autouse=True)
def table(evidence_folder: Path) -> None:
    evidence.TABLE.write_text(HEAD)


def test_a_campaign_has_the_row_of_its_last_call_beside_the_others() -> None:
    evidence.note("b", "broken", "3 files", "python -m b", seed=7, at_commit="0123456789abcdef")
    evidence.note("a", "passed", "1 file", "python -m a", at_commit="fedcba98765+changes")
    evidence.note("b", "passed", "4 files", "python -m b", seed=8, at_commit="0123456789abcdef")
    first, second = rows()
    day = first.pop(5)
    assert first == ["a", "passed", "1 file", "", "fedcba9876 + changes", "`python -m a`"]
    assert second == ["b", "passed", "4 files", "8", "0123456789", day, "`python -m b`"]


def test_what_is_kept_for_the_next_call_is_read_again() -> None:
    assert evidence.kept("some") == {}
    evidence.keep("some", {"seed": 3})
    evidence.keep("some", {"seed": 4})
    assert evidence.kept("some") == {"seed": 4}
    assert rows() == []


def test_sources_are_told_by_the_folders_that_matter_and_not_by_the_commit() -> None:
    last = evidence.git("log", "-1", "--format=%H", "--", "src")
    assert evidence.sources("HEAD", "src") == evidence.sources(last, "src")
    assert evidence.sources("HEAD", "src") != evidence.sources("HEAD", "tests")
