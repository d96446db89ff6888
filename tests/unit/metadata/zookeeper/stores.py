"""Stores on a ZooKeeper for one test: they are closed at its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

from oncelog.metadata.zookeeper import ZooKeeperStore


class Opens(Protocol):
    """Gives a store on an address."""

    def __call__(self, connect: str, **settings: Any) -> ZooKeeperStore: ...


@asynccontextmanager
async def stores(kind: type[ZooKeeperStore] = ZooKeeperStore) -> AsyncIterator[Opens]:
    """A function that gives stores of a kind until the block ends."""
    async with AsyncExitStack() as exits:

        def opened(connect: str, **settings: Any) -> ZooKeeperStore:
            store = kind(connect, **settings)
            exits.push_async_callback(store.close)
            return store

        yield opened


def through(port: int, connect: str) -> str:
    """The same chroot by way of a proxy."""
    return f"127.0.0.1:{port}/{connect.partition('/')[2]}"


def transaction_number(number: int) -> Callable[[bytes], bool]:
    """Whether a client's packet is its transaction of that number, from 1."""
    seen_count = 0

    def is_it(request: bytes) -> bool:
        nonlocal seen_count
        # Length, number and type of the request; 14 is a transaction.
        seen_count += request[8:12] == b"\0\0\0\x0e"
        return seen_count == number

    return is_it
