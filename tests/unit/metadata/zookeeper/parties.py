"""Parties of one store in ZooKeeper, for the tests of what every store promises."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from kazoo.client import KazooClient

from oncelog.metadata import MetadataStore, Session
from oncelog.metadata.zookeeper import ZooKeeperStore
from tests.support.tcp_proxy import TcpProxy, tcp_proxy
from tests.support.zookeeper import chroot, shared_server


class ZooKeeperParties:
    """Each party has a connection of its own, by way of a proxy, and all of them a chroot."""

    session_ms = 4_000

    def __init__(self, exits: AsyncExitStack, connect: str) -> None:
        self._exits = exits
        _, self._slash, self._chroot = connect.partition("/")
        self._proxies: dict[MetadataStore, TcpProxy] = {}

    async def join(self) -> MetadataStore:
        proxy = await self._exits.enter_async_context(tcp_proxy(shared_server().port))
        connect = f"{proxy.address}{self._slash}{self._chroot}"
        store = ZooKeeperStore(connect, session_timeout_ms=self.session_ms)
        self._exits.push_async_callback(store.close)
        self._proxies[store] = proxy
        return store

    async def kill(self, store: MetadataStore) -> None:
        self._proxies[store].cut()
        await store.close()

    async def expire(self, session: Session) -> None:
        """Close it as a client that knows its password.

        The server drops its owner, who comes back at once and may be faster than the thief.
        """
        number = session._connection._client.client_id  # type: ignore[attr-defined]

        def close() -> None:
            thief = KazooClient(shared_server().bootstrap_servers, client_id=number)
            with suppress(thief.handler.timeout_exception):
                thief.start()
            thief.stop()
            thief.close()

        while session.is_alive:
            await asyncio.to_thread(close)
            with suppress(TimeoutError):
                await asyncio.wait_for(session.wait_ended(), 1)


def on_zookeeper(
    body: Callable[[ZooKeeperParties], Coroutine[None, None, None]], folder: Path
) -> None:
    async def run() -> None:
        async with AsyncExitStack() as exits:
            await body(ZooKeeperParties(exits, chroot()))

    asyncio.run(run())
