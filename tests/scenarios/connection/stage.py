"""A connection with its dispatcher, without sockets, over coordinators that answer when told to.

The handlers of EndTxn, JoinGroup and FindCoordinator are the real ones. Requests are numbered in
the order in which they are sent, over all connections.
"""

from __future__ import annotations

import random
from typing import Any, cast

from oncelog.broker import apis
from oncelog.broker.net.connection import ServerConnection
from oncelog.broker.net.dispatch import Dispatcher
from oncelog.broker.net.frames import ReadBuffer
from oncelog.core.errors import ErrorCode
from oncelog.core.pending import Pending
from oncelog.group.events import Join
from oncelog.group.replies import JoinReply
from oncelog.protocol import codec
from oncelog.protocol.api import ApiKey
from oncelog.transaction.events import EndTxn, EndTxnReply
from tests.unit.broker.net.test_connection import FakeServer, FakeTransport

VERSIONS = {ApiKey.END_TXN: 4, ApiKey.JOIN_GROUP: 5, ApiKey.FIND_COORDINATOR: 3}


class Coordinator:
    """Takes requests and answers them when the story says so."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def ask(
        self, id_: str, event: object, convert: Any, _refuse: Any, *, holds_back: bool = True
    ) -> Pending[object]:
        number = int(id_)
        pending: Pending[object] = Pending(convert, holds_back=holds_back)
        pending.on_drop = lambda: self._stage.told.append(f"#{number} is dropped")
        self._stage.asked[number] = (event, pending)
        self._stage.told.append(f"#{number} reaches its coordinator")
        return pending


class Stage:
    """What the commands of a story act on; `told` collects what came of the present one."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.asked: dict[int, tuple[object, Pending[object]]] = {}
        self.transactions = self.groups = Coordinator(self)
        self.image = _NoTopics()
        self.rng = random.Random(1)
        self.controller = _NoTopics()
        self._server = FakeServer()
        self._peers: dict[str, tuple[ServerConnection, FakeTransport]] = {}
        self._count = 0

    def open(self, name: str) -> None:
        """A connection of that name, on first use."""
        if name in self._peers:
            return
        transport = FakeTransport()
        dispatcher = Dispatcher(self, apis.find, self.stop_because)
        connection = ServerConnection(cast(Any, self._server), dispatcher, ReadBuffer())
        connection.connection_made(cast(Any, transport))
        self._peers[name] = (connection, transport)

    def send(self, name: str, api: ApiKey) -> None:
        self._count += 1
        number = str(self._count)
        by_api: dict[ApiKey, dict[str, Any]] = {
            ApiKey.END_TXN: {"transactional_id": number},
            ApiKey.JOIN_GROUP: {"group_id": number},
            ApiKey.FIND_COORDINATOR: {"key_type": 9, "coordinator_keys": (number,)},
        }
        request = codec.request_class(api)(**by_api[api])
        frame = codec.encode_request(api, VERSIONS[api], self._count, "test", request)
        self.feed(name, len(frame).to_bytes(4, "big") + frame)

    def feed(self, name: str, data: bytes) -> None:
        """Bytes that arrive on the connection."""
        self.open(name)
        connection = self._peers[name][0]
        buffer = connection.get_buffer(-1)
        buffer[: len(data)] = data
        del buffer
        connection.buffer_updated(len(data))

    def settle(self, number: int) -> None:
        """The coordinator has committed what request `number` asked for."""
        event, pending = self.asked[number]
        if isinstance(event, EndTxn):
            pending.complete(EndTxnReply(ErrorCode.none, event.producer_id, event.producer_epoch))
        else:
            assert isinstance(event, Join)
            pending.complete(JoinReply(ErrorCode.none, event.member_id))

    def stop_because(self, error: BaseException) -> None:
        raise error

    def close(self, name: str) -> None:
        self._peers[name][0].connection_lost(None)

    def replies(self) -> list[str]:
        """What has been written since the last look, by connection."""
        found = []
        for name, (_, transport) in self._peers.items():
            data, transport.written = bytes(transport.written), bytearray()
            while data:
                size = int.from_bytes(data[:4], "big")
                found.append(f"{name} is answered #{int.from_bytes(data[4:8], 'big')}")
                data = data[4 + size :]
            if transport.closed:
                transport.closed = False
                found.append(f"{name} is closed by the broker")
        return found


class _NoTopics:
    """An image without topics: FindCoordinator of an unknown type is answered at once."""

    def topic(self, _name: str) -> None:
        return None
