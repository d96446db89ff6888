"""Issues producer ids from durable blocks: none twice, across restarts and brokers (INV-11).

A compare-and-set in the metadata store reserves a block before its first id is issued; a crash
loses the rest of a block, which does no harm. The next block is fetched before the current one is
used up, so that the coordinator, which takes ids inside a decision, almost always finds one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from oncelog.controller import layout
from oncelog.core.errors import require
from oncelog.core.ids import ProducerId
from oncelog.core.limits import PRODUCER_ID_BLOCK_COUNT, PRODUCER_ID_REFILL_COUNT
from oncelog.metadata.store import Conflict, MetadataStore, Write

__all__ = ["ProducerIds"]

_SEEN_ID_MAX: Final = 2**62
"""A larger id in a log was not issued: a client made it up. It must not use up all others."""


class ProducerIds:
    """The broker's producer ids. One event loop owns it; concurrent `next` calls share a refill."""

    def __init__(self, store: MetadataStore) -> None:
        self.largest_seen: Callable[[], int] = lambda: -1
        """Returns the largest id in the logs of this broker, -1 for none."""
        self._store = store
        self._blocks: deque[range] = deque()
        self._refill: asyncio.Task[None] | None = None
        self._highest_issued = -1

    def take(self) -> ProducerId | None:
        """Return the next id at once; None while there is no block (a refill is then under way)."""
        if self.remaining_count <= PRODUCER_ID_REFILL_COUNT:
            self._start_refill()
        if not self._blocks:
            return None
        block = self._blocks[0]
        producer_id = block[0]
        rest = block[1:]
        if rest:
            self._blocks[0] = rest
        else:
            self._blocks.popleft()
        require(producer_id > self._highest_issued, "INV-11: a producer id was issued twice")
        self._highest_issued = producer_id
        return ProducerId(producer_id)

    async def next(self) -> ProducerId:
        """Return the next id, after waiting for a block if necessary.

        Raises `StoreFailure` when the store cannot reserve one.
        """
        while (producer_id := self.take()) is None:
            await self.ready()
        return producer_id

    async def ready(self) -> None:
        """Return when at least one id is available."""
        while not self._blocks:
            self._start_refill()
            assert self._refill is not None
            # Shielded: the refill is shared, and one caller's connection may close.
            await asyncio.shield(self._refill)

    @property
    def remaining_count(self) -> int:
        """The count of ids left in the blocks."""
        return sum(len(block) for block in self._blocks)

    def _start_refill(self) -> None:
        if self._refill is None or self._refill.done():
            self._refill = asyncio.get_running_loop().create_task(self._reserve())
            # `ready` raises its failure; a refill ahead of need is begun again by the next `take`.
            self._refill.add_done_callback(_retrieve)

    async def _reserve(self) -> None:
        """Reserve one block, above all ids in the logs of this broker.

        If another broker reserves it first, the next block is tried.
        """
        path = layout.PRODUCER_IDS_PATH
        while True:
            value, version = await self._store.get(path) or (None, 0)
            # A store that was put back from an older copy would give out ids again.
            seen = self.largest_seen()
            first = max(layout.decode_number(value), seen + 1 if seen <= _SEEN_ID_MAX else 0)
            after = layout.encode_number(first + PRODUCER_ID_BLOCK_COUNT)
            try:
                await self._store.write_all([Write(path, after, version)])
            except Conflict:
                continue
            self._blocks.append(range(first, first + PRODUCER_ID_BLOCK_COUNT))
            return


def _retrieve(refill: asyncio.Task[None]) -> None:
    if not refill.cancelled():
        refill.exception()
