"""docs/errors.md: Kafka's error codes, and when a broker of ours gives them.

The sentences stand in `errors.toml`; which errors need one is found in the broker's sources. What
our clients raise besides is in `own_errors.md`.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ADVERTISED, ApiKey, accepts
from oncelog.protocol.error_versions import KNOWN, replacements
from tests.support.readers import SOURCES

__all__ = ["DOCUMENT", "document", "named_in_the_sources", "replaced", "sentences"]

DOCUMENT: Final = SOURCES.parents[1] / "docs" / "errors.md"
ROOMS: Final = (
    "broker",
    "controller",
    "coordinator",
    "group",
    "protocol",
    "replication",
    "security",
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
([client](client.md#the-five-transactional-calls), `oncelog.client.errors`).

## Given by a broker of ours

| | Error | When |
|---|---|---|
"""

OLDER_HEAD: Final = """
## Told to older clients

Clients take a code that they do not know for UNKNOWN_SERVER_ERROR, and most give up on that. So
requests of these versions get another code, the one that Kafka gives where Kafka gives the first.
Where Kafka answers the newer code to every version, so does a broker of ours
(`protocol/error_versions.py` lists both).

| Request | Versions | Instead of | The code |
|---|---|---|---|
"""

OTHERS_HEAD: Final = """
## Never given

Kafka's others belong to what is not here: delegation tokens, KRaft's
quorum, tiered storage, share and streams groups. The clients know them all.

| | Error | |
|---|---|---|
"""


def sentences() -> dict[ErrorCode, str]:
    """When a broker gives an error."""
    found = tomllib.loads((Path(__file__).parent / "errors.toml").read_text())
    return {ErrorCode[name]: sentence for name, sentence in found.items()}


def replaced() -> Iterator[tuple[ApiKey, str, ErrorCode, ErrorCode]]:
    """Each code that older versions of an API do not get, those versions, and what they get."""
    for api, known in KNOWN.items():
        announced = ADVERTISED[api]
        served = [v for v in range(announced.min, announced.max + 1) if accepts(api, v)]
        for code in known:
            old = [version for version in served if code in replacements(api, version)]
            if old:
                span = f"{old[0]}-{old[-1]}" if len(old) > 1 else f"{old[0]}"
                yield api, span, code, replacements(api, old[0])[code]


def named_in_the_sources() -> set[ErrorCode]:
    """The errors that the rooms of a broker name, but in the table of replacements."""
    return {
        ErrorCode[node.attr]
        for room in ROOMS
        for path in (SOURCES / room).rglob("*.py")
        if path.name != "error_versions.py"
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
    older = [
        f"| {api.title} | {span} | {code.name.upper()} | {told.name.upper()} |\n"
        for api, span, code, told in replaced()
    ]
    own = (Path(__file__).parent / "own_errors.md").read_text()
    return "".join((HEAD, *rows, "\n", own, OLDER_HEAD, *older, OTHERS_HEAD, *others))


def _row(code: ErrorCode, sentence: str = "") -> str:
    # Not as code: the site breaks code inside of words where a column is narrow.
    meaning = [sentence, "*Retriable.*" if code.retriable else ""]
    return f"| {code.value} | {code.name.upper()} | {' '.join(filter(None, meaning))} |\n"
