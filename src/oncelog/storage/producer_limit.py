"""Limits how many producers the partitions of a broker remember together.

Kafka has no such limit: a client that takes a new producer id for every record makes it remember
each of them, in each partition, for a day. Here a new producer beyond the limit is refused, with a
message for its user. Known producers, markers and replicas are never refused (INV-2, INV-4).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

__all__ = ["ProducerLimit"]

log = logging.getLogger(__name__)

_SHARE_UNCOUNTED: Final = 100
"""Producers are counted again after each 1/100 of the limit: there may be many partitions."""


class ProducerLimit:
    """The limit of one broker; `count()` returns how many producers its partitions remember."""

    __slots__ = ("_count", "_is_full", "_left_count", "limit")

    def __init__(self, limit: int, count: Callable[[], int]) -> None:
        self.limit = limit
        self._count = count
        self._left_count = 0
        self._is_full = False

    def admits(self) -> bool:
        """Whether one more producer is within the limit; it then counts."""
        if self._left_count == 0:
            free_count = max(0, self.limit - self._count())
            self._left_count = min(free_count, max(1, self.limit // _SHARE_UNCOUNTED))
            self._note(is_full=free_count == 0)
            if self._is_full:
                return False
        self._left_count -= 1
        return True

    @property
    def refusal(self) -> str:
        """The error message for a producer beyond the limit."""
        return (
            f"this broker remembers {self.limit} producers in its partitions, its limit: use a "
            "producer for more than one record, or let idle ones be forgotten sooner "
            "(producer.id.expiration.ms)"
        )

    def _note(self, *, is_full: bool) -> None:
        if is_full and not self._is_full:
            log.warning("new producers are refused: %s", self.refusal)
        self._is_full = is_full
