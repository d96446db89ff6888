"""A broker in the caller's own event loop, to count its calls or inspect its parts.

An `EmbeddedBroker` has its own thread, whose objects no other thread may use.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from oncelog.broker.broker import Broker
from oncelog.core.config import BrokerConfig

__all__ = ["broker_in_loop"]


@asynccontextmanager
async def broker_in_loop(
    folder: str, config: Mapping[str, object] | None = None, *, rng: random.Random | None = None
) -> AsyncIterator[Broker]:
    """A started broker on any free port; it stops when the block is left."""
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": folder}
    settings |= {key: str(value) for key, value in (config or {}).items()}
    broker = Broker(BrokerConfig(settings), rng=rng)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()
