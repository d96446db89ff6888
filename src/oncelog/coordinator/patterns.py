"""Matches names against clients' regular expressions, in RE2's syntax as in Kafka (RE2/J).

Consumer groups match topics with them, ListTransactions matches transactional ids (KIP-1152).

RE2 matches in time linear in the text, whatever the pattern, and its programs are bounded here, so
that a hostile pattern cannot block the event loop as with Python's `re`. Only this module uses the
library.
"""

import importlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Protocol, cast

from oncelog.core.limits import (
    REGEX_BYTES_MAX,
    REGEX_CACHE_COUNT_MAX,
    REGEX_PROGRAM_BYTES_MAX,
)

__all__ = ["InvalidPattern", "check", "matching"]


class InvalidPattern(ValueError):  # noqa: N818 - names what was found
    """A pattern that RE2 refuses, with its reason."""


class _Pattern(Protocol):
    def fullmatch(self, text: str) -> object | None: ...


class _Options(Protocol):
    max_mem: int
    log_errors: bool


class _Library(Protocol):
    """What is used of the library, which has no types of its own."""

    Options: type[_Options]
    error: type[Exception]

    def compile(self, pattern: str, options: _Options, /) -> _Pattern: ...


@lru_cache(REGEX_CACHE_COUNT_MAX)
def _compiled(pattern: str) -> _Pattern:
    # The library loads in 20 ms, which only a broker that gets a pattern pays.
    re2 = cast("_Library", importlib.import_module("re2"))
    if len(pattern.encode()) > REGEX_BYTES_MAX:
        raise InvalidPattern(f"longer than {REGEX_BYTES_MAX} bytes")
    options = re2.Options()
    options.max_mem = REGEX_PROGRAM_BYTES_MAX
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        (reason,) = error.args
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise InvalidPattern(text) from error


def check(pattern: str) -> None:
    """Raise `InvalidPattern` for an invalid pattern."""
    _compiled(pattern)


def matching(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """Return the names that the whole pattern matches. Raises `InvalidPattern`."""
    match = _compiled(pattern).fullmatch
    return frozenset(name for name in names if match(name) is not None)
