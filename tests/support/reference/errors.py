"""docs/errors.md: Kafka's error codes, and when a broker of ours gives them.

The sentences stand in `errors.toml`; which errors need one is found in the broker's sources.
"""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import Final

from oncelog.core.errors import ErrorCode
from tests.support.readers import SOURCES

__all__ = ["DOCUMENT", "document", "named_in_the_sources", "sentences"]

DOCUMENT: Final = SOURCES.parents[1] / "docs" / "errors.md"
ROOMS: Final = (
    "broker",
    "controller",
    "coordinator",
    "group",
    "protocol",
    "replication",
    "storage",
    "transaction",
)
"""The rooms whose errors a broker answers with."""

HEAD: Final = """\
# Errors

<!-- Made by `python -m tests.support.reference` from src/oncelog/core/error_codes.py. -->

Kafka's error codes by number, as clients and logs show them. *Retriable*: the same request may
succeed later, and Kafka's clients try again by themselves. To a client of ours each is one of
`RetriableError`, `AbortableError`, `FatalError` and `FencedError`
([client](client.md#the-five-transactional-calls), [API](api.md)).

## Given by a broker of ours

| | Error | When |
|---|---|---|
"""

OTHERS_HEAD: Final = """
## Never given

Kafka's others belong to what is not here: authentication, quotas, delegation tokens, KRaft's
quorum, tiered storage, share and streams groups. The clients know them all.

| | Error | |
|---|---|---|
"""


def sentences() -> dict[ErrorCode, str]:
    """When a broker gives an error."""
    found = tomllib.loads((Path(__file__).parent / "errors.toml").read_text())
    return {ErrorCode[name]: sentence for name, sentence in found.items()}


def named_in_the_sources() -> set[ErrorCode]:
    """The errors that the rooms of a broker name."""
    return {
        ErrorCode[node.attr]
        for room in ROOMS
        for path in (SOURCES / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "ErrorCode"
        and node.attr in ErrorCode.__members__
    }


def document() -> str:
    """The whole page."""
    given = sentences()
    rows = [_row(code, sentence) for code, sentence in sorted(given.items())]
    others = [_row(code) for code in sorted(set(ErrorCode) - given.keys())]
    return HEAD + "".join(rows) + OTHERS_HEAD + "".join(others)


def _row(code: ErrorCode, sentence: str = "") -> str:
    # Not as code: the site breaks code inside of words where a column is narrow.
    meaning = [sentence, "*Retriable.*" if code.retriable else ""]
    return f"| {code.value} | {code.name.upper()} | {' '.join(filter(None, meaning))} |\n"
