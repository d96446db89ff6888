"""The table of docs/security.md: what each request needs, from the column of the APIs' rows."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from oncelog.broker.apis import HANDLERS
from oncelog.broker.apis.needs import InParts, Nothing, Whole
from oncelog.protocol.api import PRIVATE
from tests.support.readers import SOURCES

__all__ = ["DOCUMENT", "document", "table"]

DOCUMENT: Final = SOURCES.parents[1] / "docs" / "security.md"
_BEGIN: Final = (
    "<!-- Made by `python -m tests.support.reference` from src/oncelog/broker/apis. -->\n"
)
_END: Final = "\n## Settings\n"

HEAD: Final = """
| Request | Needs | |
|---|---|---|
"""


def table() -> str:
    """One row for each API that needs anything."""
    rows = []
    for api, served in sorted(HANDLERS.items(), key=lambda item: item[0].title):
        needs, name = served.needs, api.title
        if api in PRIVATE:
            name += " (between brokers)"
        if isinstance(needs, Whole):
            rows.append(f"| {name} | {needs.need} | |\n")
        elif isinstance(needs, InParts):
            check = getattr(import_module(f"oncelog.broker.access.{needs.module}"), served.module)
            said = (check.__doc__ or "").partition("\n")[0]
            rows.append(f"| {name} | {', '.join(map(str, needs.needs))} | {said} |\n")
        else:
            assert isinstance(needs, Nothing)
    return HEAD + "".join(rows)


def document() -> str:
    """The page with the table as it is now."""
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return before + _BEGIN + table() + _END + after
