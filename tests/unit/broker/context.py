"""A broker in the test's own loop, and a client that sends one request at a time, any version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from oncelog.broker.broker import Broker
from oncelog.core.errors import ErrorCode
from oncelog.protocol import codec
from oncelog.protocol.api import ADVERTISED, ApiKey
from oncelog.protocol.error_versions import KNOWN, OLDEST_CODE_MAX
from tests.support.peer.in_loop import broker_in_loop

__all__ = ["Client", "running"]

READ_TIMEOUT_S = 10.0


class Client:
    """One raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._correlation_id = 0

    async def send(self, frame: bytes) -> None:
        self.writer.write(len(frame).to_bytes(4, "big") + frame)
        await self.writer.drain()

    async def receive(self) -> bytes | None:
        """The next reply's frame, None when the broker closed the connection."""
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                size = int.from_bytes(await self.reader.readexactly(4), "big")
                return await self.reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def ask(self, api: ApiKey, version: int | None = None, **fields: Any) -> Any:
        """Send the newest request class with `fields` in `version`, return the newest response
        class.
        """
        version = ADVERTISED[api].max if version is None else version
        request = codec.request_class(api)(**fields)
        self._correlation_id += 1
        await self.send(codec.encode_request(api, version, self._correlation_id, "test", request))
        frame = await self.receive()
        assert frame is not None, "the broker closed the connection"
        correlation_id, offset = codec.parse_response_header(api, version, frame)
        assert correlation_id == self._correlation_id
        return codec.parse_response(api, version, frame, offset)


class Running:
    """A started broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._clients: list[Client] = []

    async def connect(self) -> Client:
        host, _, port = self.broker.bootstrap_servers.rpartition(":")
        client = Client(*await asyncio.open_connection(host, int(port)))
        self._clients.append(client)
        return client

    async def close(self) -> None:
        for client in self._clients:
            client.writer.close()


@asynccontextmanager
async def running(
    folder: Path, config: Mapping[str, object] | None = None
) -> AsyncIterator[Running]:
    """A broker on `folder`, with few partitions in the internal topics unless told otherwise."""
    few = {"offsets.topic.num.partitions": 2, "transaction.state.log.num.partitions": 2}
    async with broker_in_loop(str(folder), few | dict(config or {})) as broker:
        context = Running(broker)
        try:
            yield context
        finally:
            await context.close()
        assert list(undecided(broker)) == []


def undecided(broker: Broker) -> Iterator[str]:
    """Newer error codes that the broker has answered, and whose API's clients may not know them."""
    for (key, version), meter in broker.dispatcher.meters.items():
        for code in meter.errors:
            if code > OLDEST_CODE_MAX and code not in KNOWN.get(ApiKey(key), {}):
                yield f"{ApiKey(key).name} v{version}: {ErrorCode(code).name}"
