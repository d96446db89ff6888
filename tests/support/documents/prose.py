"""What makes a document hard to read: long paragraphs, links that do not say where they lead.

And figures that are said to stand in docs/benchmarks.md, and do not.
"""

import re
from collections.abc import Iterator
from typing import Final

from tests.support.documents.blocks import DOCUMENTS, ROOT

__all__ = ["PARAGRAPH_WORDS_MAX", "PROSE", "bare_links", "long_paragraphs", "wrong_figures"]

PARAGRAPH_WORDS_MAX: Final = 100
PROSE: Final = (
    *(document for document in DOCUMENTS if document != "CHANGELOG.md"),
    "bench/method.md",
)
"""A changelog's entries stay as they were written; the other is a part of docs/benchmarks.md."""

_FENCED: Final = re.compile(r"^( *)```.*?^ *```$", re.DOTALL | re.MULTILINE)
_PARAGRAPH: Final = re.compile(r"(?:^(?![ \t]*$).*\n?)+", re.MULTILINE)
_ITEM: Final = re.compile(r"^(?= *(?:[-*]|\d+\.) )", re.MULTILINE)
_LINK: Final = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
_BARE: Final = re.compile(
    r"[\w.-]*(?:/[\w.-]+)+|[\w-]+\.(?:md|py|toml|json)|here|there|this|it|above|below|link|page",
    re.IGNORECASE,
)
"""File names, and words that say nothing without the text around them."""
_TO_BENCHMARKS: Final = re.compile(r"\[([^\]]+)\]\((?:docs/)?benchmarks\.md(#[\w-]+)\)", re.DOTALL)
_FIGURE: Final = re.compile(r"\d[\d,]*(?:\.\d+)?")


def long_paragraphs(text: str) -> Iterator[tuple[int, int]]:
    """(line, words) of each paragraph and list item that is too long."""
    shown = _FENCED.sub(lambda found: "\n" * found.group().count("\n"), text)
    for paragraph in _PARAGRAPH.finditer(shown):
        if paragraph.group().lstrip().startswith(("|", "#", "<!--")):
            continue
        start = paragraph.start()
        for item in _ITEM.split(paragraph.group()):
            words = len(item.split())
            if words > PARAGRAPH_WORDS_MAX:
                yield shown.count("\n", 0, start) + 1, words
            start += len(item)


def bare_links(text: str) -> Iterator[str]:
    """Links whose text is no title."""
    shown = _FENCED.sub("", text)
    for found in _LINK.finditer(shown):
        if _BARE.fullmatch(found[1].strip("`")):
            yield found.group()


def wrong_figures(text: str) -> Iterator[str]:
    """Figures of a link to docs/benchmarks.md that its section does not have, rounded as here."""
    for found in _TO_BENCHMARKS.finditer(text):
        measured = list(_numbers(section(found[2])))
        for figure in _FIGURE.findall(found[1]):
            (said,) = _numbers(figure)
            off_max = 0.5 * 10 ** -len(figure.partition(".")[2]) + 1e-9
            if not any(abs(said - number) <= off_max for number in measured):
                yield f"{figure} of {found[2]}"


def section(anchor: str) -> str:
    """The part of docs/benchmarks.md below a heading, up to the next one of its level."""
    text = (ROOT / "docs/benchmarks.md").read_text()
    for part in re.split(r"^## ", text, flags=re.MULTILINE):
        heading = part.partition("\n")[0].lower()
        if "#" + re.sub(r"[^\w -]", "", heading).replace(" ", "-") == anchor:
            return part
    return ""


def _numbers(text: str) -> Iterator[float]:
    return (float(figure.replace(",", "")) for figure in _FIGURE.findall(text))
