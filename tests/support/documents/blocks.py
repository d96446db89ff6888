"""The blocks of the documents, and those of them that `listed.toml` says something of."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["DOCUMENTS", "ROOT", "Block", "Listed", "blocks", "listed", "listing_of"]

ROOT: Final = Path(__file__).resolve().parents[3]
DOCUMENTS: Final = tuple(
    str(path.relative_to(ROOT))
    for path in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
)
_FENCE: Final = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A fenced block: where it stands, the tag behind its fence, and its text."""

    document: str
    line: int
    language: str
    text: str
    start: int
    """Where the text begins in the document, in characters."""
    follows: bool
    """Whether nothing but space lies between it and the block before."""

    @property
    def first(self) -> str:
        """Its first line."""
        return self.text.partition("\n")[0]

    def __str__(self) -> str:
        """Where to look."""
        return f"{self.document}:{self.line}: {self.first}"


class Listed(NamedTuple):
    """What `listed.toml` says of the blocks that begin with a text."""

    document: str
    begins: str
    test: str = ""
    """The test that carries it out, or holds it to what makes it: FILE::NAME."""
    reason: str = ""
    """Why none does."""

    def names(self, block: Block) -> bool:
        """Whether it is about this block."""
        return block.document == self.document and block.text.startswith(self.begins)


def blocks(document: str) -> Iterator[Block]:
    """The blocks of a document, from its beginning to its end."""
    text = (ROOT / document).read_text()
    end = 0
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        follows = end > 0 and not text[end : found.start()].strip()
        yield Block(document, line, found[2], found[3], found.start(3), follows)
        end = found.end()


@cache
def listed() -> tuple[Listed, ...]:
    """All entries."""
    found = tomllib.loads((Path(__file__).parent / "listed.toml").read_text())
    return tuple(Listed(**entry) for entry in found["block"])


def listing_of(block: Block) -> Listed | None:
    """The entry about a block."""
    return next((entry for entry in listed() if entry.names(block)), None)
