"""Names what a run reached while a fault was in force: the coverage that a search goes by.

A name is "what | fault": a move of a coordinator, an event of the history or a line of a log, and
the fault that struck last, if it still lasts or struck within `LATELY_S`. Faults that follow
another are named too. Ids, numbers and paths are left out of all names, so that there are finitely
many and a run of the same kind reaches nothing new.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from oncelog.simulation.history import Event, Fault, Watermarks

__all__ = ["LATELY_S", "Reach"]

LATELY_S: Final = 1.0
"""A fault that ended at once counts as in force for so long, in seconds."""
WORDS_MAX: Final = 6
_TELLING: Final = ("error", "reason", "cause", "change", "state", "commit", "message")
"""The fields of events that say which of its kind an event is."""


class Reach:
    """The names of one run. `now_s` gives the virtual time."""

    __slots__ = ("_fault", "_now_s", "_until_s", "names")

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.names: set[str] = set()
        self._now_s = now_s
        self._fault = ""
        self._until_s = 0.0

    def event(self, event: Event) -> None:
        """Name an event of the history; a fault is in force from now on."""
        if isinstance(event, Fault):
            self.move(f"fault/{event.kind}")
            self._fault = event.kind
            self._until_s = max(event.until_s, event.at_s + LATELY_S)
        elif not isinstance(event, Watermarks):
            self.move(_name(event))

    def move(self, name: str) -> None:
        """Name something that has just happened."""
        fault = self._fault if self._now_s() < self._until_s else "-"
        self.names.add(f"{name} | {fault}")


def _name(event: Event) -> str:
    name = type(event).__name__
    for field in _TELLING:
        value = getattr(event, field, None)
        if value is not None:
            name += f" {_words(str(value))}"
    return name


def _words(text: str) -> str:
    """Return the first words of a text that are neither numbers, names with numbers, nor paths."""
    words = (word.strip(":,;()'\"") for word in text.split())
    kept = [word for word in words if word.replace("_", "").replace(".", "").isalpha()]
    return " ".join(kept[:WORDS_MAX])
