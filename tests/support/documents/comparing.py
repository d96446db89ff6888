"""Whether a block shows what was printed, apart from what differs between any two runs."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["matches"]

_VARYING: Final = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\.\d{3}Z?"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d\.\d{3}\b"), "TIME"),
    (re.compile(r'(?<="timestamp":)\d+'), "TIME"),
    (re.compile(r'(?<="seconds":)[\d.]+|(?<=_per_s":)[\d.]+'), "MEASURED"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"\b\d+(\.\d+)? (ms|s|min)\b"), "DURATION"),
    (re.compile(r"\b\d+(\.\d+)? k?B\b"), "SIZE"),
    (re.compile(r"(─|-){4,}"), "LINE"),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r" $", re.MULTILINE), ""),
)
"""Ids, moments, addresses, durations, sizes of batches as they came about, and the widths of
columns that hold these.
"""


def matches(shown: str, printed: str) -> bool:
    """Whether the block's text `shown` is what was `printed`.

    In it ``...`` stands for the rest of a line, or as a line of its own for any lines.
    """
    pieces = []
    for line in _plain(shown).splitlines():
        if line == "...":
            pieces.append(r"(?:.*\n)*?")
        else:
            pieces.append(".*".join(re.escape(piece) for piece in line.split("...")) + r"\n")
    return re.fullmatch("".join(pieces), _plain(printed)) is not None


def _plain(text: str) -> str:
    for pattern, name in _VARYING:
        text = pattern.sub(name, text)
    lines = text.strip("\n").splitlines()
    return "".join(f"{line}\n" for line in lines)
