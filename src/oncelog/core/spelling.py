"""Finds the right word near a misspelled one."""

import difflib
from collections.abc import Iterable

__all__ = ["nearest"]

_COUNT_MAX = 3
_PREFIX_LENGTH_MIN = 3
_RATIO_APART = 0.12
"""A word that is less alike than the nearest by more than this is not suggested."""


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """Return at most three known words that `word` may have been meant to be, nearest first.

    Those that begin with it, else those that are like it. Capitals, dots, hyphens and underscores
    do not count: ``lingerMs`` is ``linger_ms``. `cutoff` is the smallest similarity
    (`difflib.SequenceMatcher.ratio`) that counts as near.
    """
    by_letters = {_letters(each): each for each in sorted(known)}
    typed = _letters(word)
    begun = [letters for letters in by_letters if letters.startswith(typed)]
    if begun and len(typed) >= _PREFIX_LENGTH_MIN:
        return [by_letters[letters] for letters in sorted(begun, key=len)[:_COUNT_MAX]]
    found = difflib.get_close_matches(typed, by_letters, n=_COUNT_MAX, cutoff=cutoff)
    ratios = [difflib.SequenceMatcher(None, letters, typed).ratio() for letters in found]
    near = zip(found, ratios, strict=True)
    return [by_letters[letters] for letters, ratio in near if ratio >= ratios[0] - _RATIO_APART]


def _letters(word: str) -> str:
    return "".join(filter(str.isalnum, word.lower()))
