"""The connections of one scripted client, and its metadata of the cluster.

A request returns its response or raises `LostError`: then it may or may not have taken effect. A
request that has timed out may remain in a connection that is left open, so that it arrives after
the client's next requests. A broker that breaks the protocol is recorded as stuck.

This module knows addresses, versions, metadata and coordinators, but no roles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from uuid import UUID

from oncelog.client import requests
from oncelog.core.errors import ErrorCode, OncelogError, ProtocolError
from oncelog.core.ids import TopicPartition
from oncelog.peer.connection import Connection
from oncelog.peer.sasl import SaslAuthenticationError
from oncelog.protocol.api import ApiKey
from oncelog.protocol.codec import parse_response
from oncelog.protocol.fields import RequestFor, ResponseT
from oncelog.runtime.framed import DisconnectedError
from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import LateRequest
from oncelog.simulation.needs import errors_of
from oncelog.simulation.peers.flavors import Flavor

__all__ = [
    "GROUP",
    "TRANSACTION",
    "Address",
    "LostError",
    "PeerWire",
    "RefusedError",
    "TopicView",
    "look",
]

Address = tuple[str, int]

GROUP: Final = 0
TRANSACTION: Final = 1
"""FindCoordinator's key types."""

LATE_S_MAX: Final = 3.0
"""The longest delay of a late request."""
_LINGERING_COUNT_MAX: Final = 4
_NEVER_MS: Final = 600_000
"""Connections have no request timeout here: this module has its own."""
_NO_TOPIC: Final = frozenset({ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id})
_BROKEN: Final = ("was due", "to nothing", "announced a frame", "INVALID_REQUEST")
"""The error of a connection that closed because its peer broke the protocol."""


class LostError(OncelogError):
    """There was no response. The request may or may not have taken effect, now or later."""


class RefusedError(LostError):
    """The client lacks a right. The request has taken no effect, or only for some of its parts."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(f"refused with {code.name}")
        self.code = code


@dataclass(slots=True)
class TopicView:
    """A topic in a Metadata response: its id, the leaders of its partitions and their epochs."""

    topic_id: UUID | None
    leaders: dict[int, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)


class SessionConnection(Connection):
    """One that may let its session end: the broker closes it then (KIP-368)."""

    forgets: Callable[[], bool] = staticmethod(lambda: False)

    def _is_session_ending(self) -> bool:
        return super()._is_session_ending() and not self.forgets()


def _send(connection: Connection, api: ApiKey, version: int, request: object) -> None:
    connection.send(api, version, request).add_done_callback(look)


def look(answer: asyncio.Future[memoryview]) -> None:
    """Read the outcome of a request that was given up, so that asyncio does not warn."""
    if not answer.cancelled():
        answer.exception()


class PeerWire:
    """One process's connections. It may be used again after `close`, as by a restarted client."""

    def __init__(self, context: ClientContext, flavor: Flavor) -> None:
        self.context = context
        self.flavor = flavor
        self.topics: dict[str, TopicView] = {}
        self._nodes: dict[int, Address] = {}
        self._connections: dict[tuple[Address, str], Connection] = {}
        self._lingering: list[Connection] = []
        self._coordinators: dict[tuple[int, str], Address] = {}
        self.lost_count = 0
        """Requests without an answer: each may still arrive."""
        self.timeout_ms = float(context.get("request_timeout_ms", 8_000))
        self._late = float(context.get("late", 0.01))
        self._impatience = float(context.get("impatience", 0.01))

    def another(self) -> PeerWire:
        """Return more connections of the same client, with their own metadata."""
        return PeerWire(self.context, self.flavor)

    # --- requests ---------------------------------------------------------------------

    async def ask(
        self,
        api: ApiKey,
        request: RequestFor[ResponseT],
        *,
        to: Address | None = None,
        lane: str = "",
        at_most: int | None = None,
        timeout_ms: float | None = None,
    ) -> ResponseT:
        """Return the response to `request`. Raises `LostError`."""
        connection = await self.open(to, lane)
        version = self.version(connection, api, at_most)
        if self.delays_request():
            self.deliver_late(connection, partial(_send, connection, api, version, request))
            await self.context.pause(1, 200)
            raise LostError("no answer: the request is still on its way")
        answer = connection.send(api, version, request)
        body = await self.wait(connection, answer, self._patience_ms(timeout_ms))
        try:
            response: ResponseT = parse_response(api, version, body, 0)
        except ProtocolError as error:
            raise self.broken(f"{api.name} v{version}: {error}") from error
        if self.context.login is not None:
            for code in filter(self.context.may_lack, errors_of(response)):
                raise RefusedError(code)
        return response

    def write(
        self, connection: Connection, api: ApiKey, request: object, at_most: int | None = None
    ) -> None:
        """Send a request whose response is not read."""
        version = self.version(connection, api, at_most)
        _send(connection, api, version, request)

    def version(self, connection: Connection, api: ApiKey, at_most: int | None = None) -> int:
        """Return the version that this client uses there. Raises `LostError` if there is none."""
        ours = self.flavor.at_most.get(api)
        if at_most is None or (ours is not None and ours < at_most):
            at_most = ours
        try:
            return connection.version_for(api, at_most)
        except ProtocolError as error:
            raise self.broken(str(error)) from error

    async def wait(
        self, connection: Connection, answer: asyncio.Future[memoryview], timeout_ms: float
    ) -> memoryview:
        """Return the body of a response. Raises `LostError` when there is none in time."""
        answer.add_done_callback(look)
        if not answer.done():
            await asyncio.wait((answer,), timeout=timeout_ms / 1000)
        if not answer.done():
            self.lost_count += 1
            self.forsake(connection)
            raise LostError(f"no answer in {timeout_ms:.0f} ms")
        error = answer.exception()
        if error is None:
            return answer.result()
        self.lost_count += 1
        text = str(error)
        if any(words in text for words in _BROKEN):
            raise self.broken(text) from error
        raise LostError(text) from error

    def broken(self, reason: str) -> LostError:
        """Record that the broker broke the protocol; the request counts as lost."""
        self.context.stuck(reason)
        return LostError(reason)

    def _patience_ms(self, timeout_ms: float | None) -> float:
        """Return the timeout of a request in ms: now and then far too short."""
        if not self.context.stopping() and self.context.chance(self._impatience):
            return self.context.rng.uniform(1, 200)
        return self.timeout_ms if timeout_ms is None else timeout_ms

    def produce_patience_ms(self) -> float:
        """Return the timeout of a Produce request in ms."""
        return self._patience_ms(None)

    def delays_request(self) -> bool:
        """Return whether the network delays the next request."""
        return not self.context.stopping() and self.context.chance(self._late)

    def deliver_late(self, connection: Connection, send: Callable[[], object]) -> None:
        """Send on this connection after a delay, as if the network had delayed the request.

        The client does not wait for it, so the broker gets it after the retry on another
        connection.
        """
        self.forsake(connection, may_close=False)

        def arrive() -> None:
            if not connection.is_closed:
                self.context.record(LateRequest)
                send()

        delay_s = self.context.rng.uniform(0.005, LATE_S_MAX)
        asyncio.get_running_loop().call_later(delay_s, arrive)

    # --- connections ------------------------------------------------------------------

    async def open(self, to: Address | None = None, lane: str = "") -> Connection:
        """Return the connection to a broker for a purpose; open it if there is none.

        Raises `LostError`.
        """
        key = (to or self.context.bootstrap, lane)
        connection = self._connections.get(key)
        if connection is not None and not connection.is_closed:
            return connection
        try:
            opened = await self._connection(key[0])
        except DisconnectedError as error:
            raise LostError(str(error)) from error
        except ProtocolError as error:
            raise self.broken(str(error)) from error
        self._connections[key] = opened
        return opened

    async def _connection(self, to: Address) -> Connection:
        """Open a connection, and log in if brokers ask for it."""
        context, login = self.context, self.context.login
        began_s = context.now_s()
        try:
            opened = await SessionConnection.open(
                context.network,
                *to,
                client_id=context.name,
                request_timeout_ms=_NEVER_MS,
                connect_timeout_ms=float(context.get("connect_timeout_ms", 3_000)),
                sasl=None if login is None else login.sasl,
            )
        except SaslAuthenticationError as error:
            if login is not None:
                login.refused(to, began_s)
            raise LostError(str(error)) from error
        if login is not None:
            opened.forgets = login.forgets
        return opened

    def forsake(self, connection: Connection, *, may_close: bool = True) -> None:
        """Stop using a connection.

        It closes at once, or later: then its requests may arrive late.
        """
        for key, known in list(self._connections.items()):
            if known is connection:
                del self._connections[key]
        if connection.is_closed:
            return
        if may_close and self.context.chance(0.4):
            connection.close()
            return
        self.context.record(LateRequest)
        self._lingering = [kept for kept in self._lingering if not kept.is_closed]
        while len(self._lingering) >= _LINGERING_COUNT_MAX:
            self._lingering.pop(0).close()
        self._lingering.append(connection)
        delay_s = self.context.rng.uniform(0.01, 3) if may_close else LATE_S_MAX + 0.5
        asyncio.get_running_loop().call_later(delay_s, connection.close)

    def close(self) -> None:
        """Close all connections at once; unanswered requests are lost."""
        for connection in (*self._connections.values(), *self._lingering):
            connection.close()
        self._connections.clear()
        self._lingering.clear()
        self._coordinators.clear()

    def walk_away(self) -> None:
        """Stop using all connections, and leave them open for a while."""
        for connection in list(self._connections.values()):
            self.forsake(connection)
        self._coordinators.clear()

    # --- the cluster ------------------------------------------------------------------

    async def refresh(self, names: Iterable[str]) -> bool:
        """Request the leaders of these topics; return False if a leader is unknown."""
        asked = sorted(set(names))
        try:
            answer = await self.ask(ApiKey.METADATA, requests.metadata_request(asked, create=False))
        except LostError:
            return False
        told_all = True
        for node in requests.nodes_of(answer):
            self._nodes[node.node_id] = (node.host, node.port)
        for name, error, description in requests.topics_of(answer):
            if error is not ErrorCode.none:
                self.topics.pop(name, None)
                told_all = told_all and (not error.retriable or error in _NO_TOPIC)
                continue
            self.topics[name] = TopicView(
                description.topic_id if description.topic_id and description.topic_id.int else None,
                {p.index: p.leader for p in description.partitions},
                {p.index: p.leader_epoch for p in description.partitions},
            )
        return told_all

    def leader(self, at: TopicPartition) -> Address | None:
        """Return the address of a partition's leader, if known."""
        view = self.topics.get(at.topic)
        if view is None:
            return None
        return self._nodes.get(view.leaders.get(at.partition, -1))

    def leader_epoch(self, at: TopicPartition) -> int:
        """Return the epoch of a partition's leader, -1 if unknown."""
        view = self.topics.get(at.topic)
        return -1 if view is None else view.epochs.get(at.partition, -1)

    def topic_id(self, name: str) -> UUID | None:
        """Return a topic's id, if the client's versions have it."""
        view = self.topics.get(name)
        return None if view is None else view.topic_id

    def partitions(self, names: Iterable[str]) -> list[TopicPartition]:
        """Return the known partitions of these topics, in order."""
        return [
            TopicPartition(name, index)
            for name in names
            if name in self.topics
            for index in sorted(self.topics[name].leaders)
        ]

    async def coordinator(self, kind: int, key: str) -> Address | None:
        """Return the coordinator of a group or a transactional id; None if it is unknown now."""
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        try:
            answer = await self.ask(
                ApiKey.FIND_COORDINATOR, requests.find_coordinator_request(kind, key)
            )
        except LostError:
            return None
        error, node, _message = requests.coordinator_of(answer)
        if error is not ErrorCode.none:
            if not error.retriable and error is not ErrorCode.unknown_server_error:
                self.context.stuck(f"FindCoordinator answered {error.name}")
            return None
        address = (node.host, node.port)
        self._coordinators[kind, key] = address
        return address

    def forget_coordinator(self, kind: int, key: str) -> None:
        """Forget a coordinator that moved or is unavailable."""
        self._coordinators.pop((kind, key), None)

    def lane(self, kind: int) -> str:
        """Return the connection's name for requests to a coordinator of this kind."""
        if kind == GROUP:
            return "group"
        return "transaction" if self.flavor.coordinator_lane else ""

    def has_transaction_version_2(self, connection: Connection) -> bool:
        """Return whether client and cluster use TV2 (KIP-890)."""
        features = connection.support.features
        return (
            self.flavor.transaction_version >= 2
            and features.get("transaction.version", 0) >= 2
            and connection.support.features_epoch >= 0
        )
