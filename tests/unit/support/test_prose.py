"""Documents can be read: short paragraphs, links with titles, figures that were measured."""

import pytest

from tests.support.documents.blocks import ROOT
from tests.support.documents.prose import (
    PARAGRAPH_WORDS_MAX,
    PROSE,
    bare_links,
    long_paragraphs,
    wrong_figures,
)


@pytest.mark.parametrize("document", PROSE)
def test_no_paragraph_of_a_document_is_long(document: str) -> None:
    text = (ROOT / document).read_text()
    found = [f"{document}:{line}: {words} words" for line, words in long_paragraphs(text)]
    assert not found, f"cut it in two: at most {PARAGRAPH_WORDS_MAX} words"


@pytest.mark.parametrize("document", PROSE)
def test_each_link_of_a_document_says_where_it_leads(document: str) -> None:
    assert not list(bare_links((ROOT / document).read_text()))


@pytest.mark.parametrize("document", PROSE)
def test_each_figure_that_a_document_cites_was_measured(document: str) -> None:
    assert not list(wrong_figures((ROOT / document).read_text()))


def test_long_paragraphs_and_items_are_found_where_they_begin() -> None:
    long = "word " * (PARAGRAPH_WORDS_MAX + 1)
    text = f"# A\n\nshort\n\n{long}\n\n- one\n- {long}\n\n| {long} |\n\n```text\n{long}\n```\n"
    assert [line for line, _ in long_paragraphs(text)] == [5, 8]


@pytest.mark.parametrize(
    ("link", "is_bare"),
    [
        ("[limits](limits.md)", False),
        ("[which ones](differences.md#x)", False),
        ("[limits.md](limits.md)", True),
        ("[`core/limits.py`](../src/oncelog/core/limits.py)", True),
        ("[below](#unix-sockets)", True),
        ("![a picture](pictures/demo.svg)", False),
    ],
)
def test_a_link_without_a_title_is_found(link: str, is_bare: bool) -> None:
    assert bool(list(bare_links(link))) is is_bare


def test_a_figure_that_no_row_has_is_found() -> None:
    cited = "[it starts in 98765 s](docs/benchmarks.md#a-fresh-process)"
    assert list(wrong_figures(cited)) == ["98765 of #a-fresh-process"]
    assert list(wrong_figures("[no such table, 1 s](benchmarks.md#none)")) == ["1 of #none"]
