"""The table of frameworks in docs/compatibility.md is that of what was seen to pass."""

import pytest

from tests.support import frameworks
from tests.support.frameworks import FRAMEWORKS, Ran

RAN = Ran("2026-11-22", "quixstreams 3.28.1, confluent-kafka 2.12.2")


def test_the_table_of_the_document_is_read_as_it_is_written() -> None:
    document = frameworks.DOCUMENT.read_text()
    assert frameworks.with_table(document, frameworks.seen()) == document


def test_every_framework_was_seen_to_pass() -> None:
    assert frameworks.seen().keys() == FRAMEWORKS.keys()


def test_a_line_tells_versions_and_day_and_what_did_not_pass_is_told_too() -> None:
    lines = frameworks.table({"quix_streams": RAN}).splitlines()
    quix, *rest = [line for line in lines if line.startswith("| ") and "run with" not in line]
    assert quix.startswith(
        "| Quix Streams | quixstreams 3.28.1, confluent-kafka 2.12.2 | 2026-11-22 | "
    )
    assert all("| did not pass |" in line for line in rest)
    assert len(rest) == len(FRAMEWORKS) - 1


def test_only_the_table_changes() -> None:
    before = "a\n" + frameworks.BEGIN + "old\n" + frameworks.END + "b\n"
    after = frameworks.with_table(before, {"quix_streams": RAN})
    assert after == "a\n" + frameworks.BEGIN + frameworks.table({"quix_streams": RAN}) + (
        frameworks.END + "b\n"
    )


def test_a_document_without_a_place_for_it_is_not_overwritten() -> None:
    with pytest.raises(ValueError, match="made until here"):
        frameworks.with_table("a\n", {})
