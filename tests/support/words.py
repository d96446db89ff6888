"""Finds words in docstrings and comments that hide who does what.

The text of messages and identifiers is not checked.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator

AVOIDED = {
    "a look": "a read, a check, an observation",
    "anew": "again",
    "anybody": "the party: a client, a member, a broker",
    "at hand": "available, in memory",
    "heard": "received",
    "hears": "receives",
    "lies": "is",
    "nobody": "the party: no client, no member, no broker",
    "somebody": "the party: a client, a member, a broker",
    "thrown out": "removed, expired, fenced",
    "to be had": "available",
    "vouches": "verifies",
    "whoever": "the party: a client, a member, a broker",
}
"""Each word or phrase to avoid, with what to write in its place."""

_GAP = r"[\s#]+"
_ANY = re.compile(rf"\b({'|'.join(AVOIDED)})\b".replace(" ", _GAP), re.IGNORECASE)


def words_to_avoid(name: str, text: str) -> list[str]:
    """One line per avoided word in the docstrings and comments of a module's text."""
    if _ANY.search(text) is None:
        return []
    return [
        f"{name}:{line}: write {AVOIDED[word]} instead of {word!r}"
        for line, prose in sorted(_prose(text))
        for word in (re.sub(_GAP, " ", found.lower()) for found in _ANY.findall(prose))
    ]


def _prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield docstrings, strings that document a variable, and blocks of comments."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(prose)), lineno=line):
                yield line, prose
    first, block, last = 0, "", -1
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != last + 1:
                yield first, block
                first, block = token.start[0], ""
            block += f" {token.string}"
            last = token.start[0]
    yield first, block
