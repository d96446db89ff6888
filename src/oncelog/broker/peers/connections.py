"""One connection to each other broker, for what brokers ask each other now and then.

A connection is opened with the first request to its broker, at the address by which that broker is
registered, and again after it was closed or the broker has moved. An address that does not answer
is left alone for a while: requests fail at once meanwhile.

Fetches of followers have connections of their own. This module knows no API.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final, NamedTuple

from oncelog.controller.image import MetadataImage
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode, OncelogError
from oncelog.peer.connection import Connection
from oncelog.peer.sasl import Sasl, SaslAuthenticationError
from oncelog.protocol.api import ApiKey
from oncelog.protocol.codec import parse_response
from oncelog.protocol.fields import RequestFor, ResponseT
from oncelog.runtime.backoff import Backoff
from oncelog.runtime.clock import Clock
from oncelog.runtime.framed import DisconnectedError
from oncelog.runtime.network import Network

__all__ = ["REFUSED", "PeerAddress", "PeerNetwork", "PeerUnreachable", "Peers"]

log = logging.getLogger(__name__)

REFUSED: Final = (
    "broker %d refuses what brokers ask of each other: it needs CLUSTER_ACTION on the cluster; "
    "name this broker's user in super.users of every broker"
)
"""What a broker logs that another one takes for a client."""

RETRY_MS_MIN, RETRY_MS_MAX = 20, 1_000
"""Pause before an address is tried again that did not answer."""


class PeerAddress(NamedTuple):
    """Where a broker of the cluster is reached, as it is registered."""

    host: str
    port: int


class PeerNetwork(NamedTuple):
    """How a broker reaches the others: over which network, by which of their listeners, as whom."""

    network: Network
    listener: str
    sasl: Sasl | None = None

    @classmethod
    def of(cls, config: BrokerConfig, network: Network, rng: random.Random) -> PeerNetwork:
        """Return that of a broker; with TLS it is usable once the broker's certificate is read."""
        login = config.broker_login
        sasl = None
        if login is not None:
            sasl = Sasl(login.mechanism, login.username, login.password, rng=rng)
        return cls(network, config.inter_broker_listener, sasl)

    async def open(self, address: tuple[str, int], client_id: str, timeout_ms: float) -> Connection:
        """Open a connection to an address of another broker.

        Raises `DisconnectedError` or `ProtocolError`; also where the other broker refuses this one,
        since it may learn of this one's credentials meanwhile.
        """
        try:
            return await Connection.open(
                self.network,
                *address,
                client_id=client_id,
                request_timeout_ms=timeout_ms,
                connect_timeout_ms=timeout_ms,
                sasl=self.sasl,
                explains=False,
            )
        except SaslAuthenticationError as error:
            raise DisconnectedError(str(error)) from error

    def address_of(self, image: MetadataImage, broker_id: int) -> PeerAddress | None:
        """Return the address that an image has of a broker.

        None if it is not registered, or has no such listener.
        """
        broker = image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoint_of(self.listener)
        return None if endpoint is None else PeerAddress(*endpoint)


class PeerUnreachable(OncelogError):  # noqa: N818 - names what was found
    """The request had no effect: there is no connection, or the broker refuses it."""


class Peers:
    """The connections of one broker. `image` returns the metadata that has the addresses."""

    def __init__(
        self,
        network: PeerNetwork,
        client_id: str,
        image: Callable[[], MetadataImage],
        timeout_ms: float,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._network = network
        self._image = image
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._backoff = Backoff(RETRY_MS_MIN, RETRY_MS_MAX, rng.uniform)
        self._links: dict[int, _Link] = {}

    async def ask(
        self, broker_id: int, api: ApiKey, version: int, request: RequestFor[ResponseT]
    ) -> ResponseT:
        """Return the response of a broker, which knows this version.

        Raises `PeerUnreachable` when the request was not sent or is refused, `DisconnectedError`
        when it may or may not have taken effect, `ProtocolError` when the response is malformed.
        """
        connection = await self._connection(broker_id)
        if connection.is_closed:
            raise PeerUnreachable(f"broker {broker_id}: the connection is closed")
        body = await connection.send(api, version, request)
        response: ResponseT = parse_response(api, version, body, 0)
        if getattr(response, "error_code", None) is ErrorCode.cluster_authorization_failed:
            raise self._refused(broker_id)
        return response

    async def close(self) -> None:
        """Close all connections: what waits for a response fails."""
        opening = [link.opening for link in self._links.values() if link.opening is not None]
        for link in self._links.values():
            link.close()
        self._links.clear()
        if opening:
            await asyncio.wait(opening)

    def _refused(self, broker_id: int) -> PeerUnreachable:
        """Return the error of a broker that takes this one for a client; it is logged once."""
        link = self._links.get(broker_id)
        if link is not None and not link.is_refused:
            link.is_refused = True
            log.error(REFUSED, broker_id)
        return PeerUnreachable(f"broker {broker_id} refuses what only brokers may ask")

    async def _connection(self, broker_id: int) -> Connection:
        address = self._network.address_of(self._image(), broker_id)
        if address is None:
            raise PeerUnreachable(f"broker {broker_id} is not registered")
        link = self._links.get(broker_id)
        if link is None or link.address != address:
            if link is not None:
                link.close()
            link = self._links[broker_id] = _Link(address)
        if link.connection is not None and not link.connection.is_closed:
            return link.connection
        if link.opening is None:
            if self._clock.monotonic_ms() < link.again_ms:
                raise PeerUnreachable(f"broker {broker_id} at {address.host}:{address.port}")
            link.opening = asyncio.get_running_loop().create_task(self._open(link))
        # Several may wait for it: none of them cuts it.
        await asyncio.wait([link.opening])
        if link.connection is None or link.connection.is_closed:
            raise PeerUnreachable(f"broker {broker_id}: {link.problem}")
        return link.connection

    async def _open(self, link: _Link) -> None:
        try:
            link.connection = await self._network.open(
                link.address, self._client_id, self._timeout_ms
            )
            link.failures_count = 0
        except (OncelogError, OSError) as error:
            if not link.failures_count and isinstance(error.__cause__, SaslAuthenticationError):
                log.warning("another broker does not let this one in: %s", error)
            link.problem = str(error)
            link.again_ms = self._clock.monotonic_ms() + self._backoff.delay_ms(link.failures_count)
            link.failures_count += 1
        finally:
            link.opening = None


class _Link:
    """The connection to one address, and how often it could not be opened."""

    __slots__ = (
        "address",
        "again_ms",
        "connection",
        "failures_count",
        "is_refused",
        "opening",
        "problem",
    )

    def __init__(self, address: PeerAddress) -> None:
        self.address = address
        self.connection: Connection | None = None
        self.opening: asyncio.Task[None] | None = None
        self.problem = "the connection is closed"
        self.failures_count = 0
        self.again_ms = 0.0
        self.is_refused = False

    def close(self) -> None:
        if self.opening is not None:
            self.opening.cancel()
        if self.connection is not None:
            self.connection.close()
