"""Stores on a ZooKeeper for one test: they are closed at its end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

from oncelog.metadata.zookeeper import ZooKeeperStore


class Opens(Protocol):
    """Gives a store on an address."""

    def __call__(self, connect: str, **settings: Any) -> ZooKeeperStore: ...


@asynccontextmanager
async def stores() -> AsyncIterator[Opens]:
    """A function that gives stores until the block ends."""
    async with AsyncExitStack() as exits:

        def opened(connect: str, **settings: Any) -> ZooKeeperStore:
            store = ZooKeeperStore(connect, **settings)
            exits.push_async_callback(store.close)
            return store

        yield opened
