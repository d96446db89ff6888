"""Finds the right word near a misspelled one."""

import difflib
from collections.abc import Iterable

__all__ = ["nearest"]


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known word that `word` was probably meant to be; None if none is near.

    Capitals, dots, hyphens and underscores do not count: ``lingerMs`` is ``linger_ms``. `cutoff` is
    the smallest similarity (`difflib.SequenceMatcher.ratio`) that counts as near.
    """
    by_letters = {_letters(each): each for each in sorted(known)}
    found = difflib.get_close_matches(_letters(word), by_letters, n=1, cutoff=cutoff)
    return by_letters[found[0]] if found else None


def _letters(word: str) -> str:
    return "".join(filter(str.isalnum, word.lower()))
