"""One client's view of the cluster: connections by broker id, metadata, coordinators, retries.

Producer, consumer, admin and transaction driver use it. It converts every failure of a connection
to one of the three kinds of `oncelog.client.errors`. It does not know what requests mean.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Final, TypeVar

from oncelog.client import requests
from oncelog.client.connecting import Connector, Patience
from oncelog.client.errors import (
    ClientError,
    ConnectionLostError,
    FatalError,
    IllegalStateError,
    Operation,
    RetriableError,
    classify,
)
from oncelog.client.machines.metadata import MetadataCache
from oncelog.client.machines.unknown import UnknownTopics, does_not_exist
from oncelog.client.settings import Security, parse_bootstrap_servers
from oncelog.client.values import TopicDescription
from oncelog.core.config_definition import ConfigError
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.ids import TopicPartition
from oncelog.peer.connection import Connection
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fields import RequestFor, ResponseT
from oncelog.runtime.backoff import Backoff
from oncelog.runtime.clock import Clock, SystemClock
from oncelog.runtime.framed import DisconnectedError
from oncelog.runtime.network import Network

__all__ = ["GROUP", "TRANSACTION", "Cluster"]

T = TypeVar("T")

GROUP = 0
TRANSACTION = 1
"""Kinds of coordinator, as FindCoordinator numbers them."""

FIRST_CONTACT_MS: Final = 5_000.0
"""A wrong address shows itself in this time; a broker that was just started is up in less."""

UNKNOWN_TOPIC_MS: Final = 10_000.0
"""Longer than a cluster takes to tell all its brokers of a topic that was just created."""

IN_VAIN_COUNT_MAX = 3
"""After so many answers without news another broker is asked."""

TRANSACTION_VERSION_FEATURE = "transaction.version"


class Cluster:
    """One client's connections and metadata.

    transaction_version_max: 1 makes the client use TV1 where TV2 is available, as older clients do.
    first_contact_ms: how long a client tries to reach its first broker; None leaves it to the
    timeout of each call. Once a broker has answered, every call retries for its own timeout.
    unknown_topic_ms: how long a topic or partition that no broker knows is asked for. `network`,
    `clock` and `rng` are injected by tests and the simulation.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        client_id: str = "oncelog",
        request_timeout_ms: float = 30_000,
        retry_backoff_ms: float = 20,
        retry_backoff_max_ms: float = 1_000,
        reconnect_backoff_ms: float = 50,
        reconnect_backoff_max_ms: float = 1_000,
        connection_setup_timeout_ms: float = 10_000,
        connection_setup_timeout_max_ms: float = 30_000,
        first_contact_ms: float | None = FIRST_CONTACT_MS,
        unknown_topic_ms: float = UNKNOWN_TOPIC_MS,
        transaction_version_max: int = 2,
        security: Security | None = None,
        network: Network | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.client_id = client_id
        self.request_timeout_ms = request_timeout_ms
        self.clock: Clock = clock or SystemClock()
        self.metadata = MetadataCache()
        self.rng = rng
        """For whatever else is drawn; None: the system's randomness."""
        uniform = (rng or random.Random()).uniform
        self.backoff = Backoff(retry_backoff_ms, retry_backoff_max_ms, uniform)
        self._bootstrap = parse_bootstrap_servers(bootstrap_servers)
        security = security or Security()
        if rng is not None and security.sasl is not None:
            security = replace(security, sasl=replace(security.sasl, rng=rng))
        if network is not None and security.tls is not None:
            raise ConfigError("TLS is for the real network, and another one was given")
        self._first_contact_ms = first_contact_ms
        self.unknown = UnknownTopics(unknown_topic_ms)
        self._connector = Connector(
            network or security.network(),
            security,
            self.clock,
            uniform,
            Patience(
                reconnect_backoff_ms,
                reconnect_backoff_max_ms,
                connection_setup_timeout_ms,
                connection_setup_timeout_max_ms,
            ),
        )
        self._connections: dict[int, Connection] = {}
        self._group_connections: dict[int, Connection] = {}
        """Those to coordinators of groups, where JoinGroup holds up whatever comes behind it."""
        self._bootstrap_connection: Connection | None = None
        self._in_vain_count = 0
        """How often in a row nothing new was told of a topic that is not fresh."""
        self._opening: dict[tuple[int, bool], asyncio.Lock] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._transaction_version = 0
        self._transaction_version_max = transaction_version_max
        self._features_epoch = -1

    async def close(self) -> None:
        """Close every connection. Requests in flight fail with `ConnectionLostError`."""
        self._connector.close()
        connections = [*self._connections.values(), *self._group_connections.values()]
        if self._bootstrap_connection is not None:
            connections.append(self._bootstrap_connection)
        for connection in connections:
            connection.close("the client is closed")
        await asyncio.sleep(0)

    @property
    def transaction_version(self) -> int:
        """2 when the cluster finalized ``transaction.version`` >= 2, else 1 (KIP-890).

        Known once a broker was connected to.
        """
        return 2 if min(self._transaction_version, self._transaction_version_max) >= 2 else 1

    # --- asking -----------------------------------------------------------------------

    async def retrying(
        self,
        call: Callable[[], Awaitable[T]],
        timeout_ms: float,
        backoff: Backoff | None = None,
    ) -> T:
        """Await `call`, and again after each `RetriableError` until `timeout_ms` has passed.

        Until a first broker has answered, no longer than `first_contact_ms`. Raises
        `IllegalStateError` once the client is closed.
        """
        if self.is_closed:
            raise IllegalStateError("the client is closed: make another one")
        backoff = backoff or self.backoff
        begun_ms = self.clock.monotonic_ms()
        attempt = 0
        while True:
            try:
                return await call()
            except RetriableError as error:
                delay_ms = backoff.delay_ms(attempt)
                tried_ms = self.clock.monotonic_ms() + delay_ms - begun_ms
                is_first = not self.had_contact and not self._connector.is_closed
                if is_first and tried_ms >= self._first_wait_ms:
                    raise self._without_contact(error) from error
                if self._connector.is_closed or tried_ms >= timeout_ms:
                    raise
                if isinstance(error, ConnectionLostError):
                    self._connector.warn(error.message)
            await self._connector.pause(delay_ms)
            attempt += 1

    async def request(
        self,
        connection: Connection,
        api: ApiKey,
        request: RequestFor[ResponseT],
        at_most: int | None = None,
        timeout_ms: float | None = None,
    ) -> ResponseT:
        """Send one request on one connection.

        Raises `ConnectionLostError`, or `FatalError` when the versions do not match.
        """
        try:
            return await connection.request(api, request, at_most=at_most, timeout_ms=timeout_ms)
        except DisconnectedError as error:
            raise ConnectionLostError(str(error)) from error
        except ProtocolError as error:
            raise FatalError(error.code, error.message) from error

    async def request_any(
        self, api: ApiKey, request: RequestFor[ResponseT], at_most: int | None = None
    ) -> ResponseT:
        """Send one request to any broker. Raises as `request` does."""
        return await self.request(await self.any_connection(), api, request, at_most)

    async def request_node(
        self,
        node_id: int,
        api: ApiKey,
        request: RequestFor[ResponseT],
        at_most: int | None = None,
        timeout_ms: float | None = None,
    ) -> ResponseT:
        """Send one request to the broker `node_id`. Raises as `request` does."""
        connection = await self.connection(node_id)
        return await self.request(connection, api, request, at_most, timeout_ms)

    # --- connections ------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._connector.is_closed

    @property
    def had_contact(self) -> bool:
        """Whether a broker has ever answered this client."""
        return self._connector.had_contact

    @property
    def _first_wait_ms(self) -> float:
        return inf if self._first_contact_ms is None else self._first_contact_ms

    def _without_contact(self, error: RetriableError) -> RetriableError:
        """The error of a client that no broker has ever answered."""
        if not self._first_contact_ms:
            return error
        hint = "is the address right? first_contact_ms waits longer, for a broker that comes later"
        return ConnectionLostError(f"{error.message}; {hint}")

    async def connect(self, timeout_ms: float) -> None:
        """Connect to any broker, and log those that cannot be reached.

        It tries for `first_contact_ms`, or `timeout_ms` where that is None. Raises
        `ConnectionLostError`, or `AuthenticationError` at once.
        """
        if self._first_contact_ms is not None and not self.had_contact:
            timeout_ms = self._first_contact_ms
        await self.retrying(self.any_connection, timeout_ms)

    async def connection(self, node_id: int, *, for_group: bool = False) -> Connection:
        """Return the connection to a broker, opened if necessary. Raises `ConnectionLostError`.

        `for_group`: the one on which a member talks to its coordinator, and nothing else.
        """
        kept = self._group_connections if for_group else self._connections
        connection = kept.get(node_id)
        if connection is not None and not connection.is_closed:
            return connection
        # The lock keeps two callers from opening two connections to one broker.
        async with self._opening.setdefault((node_id, for_group), asyncio.Lock()):
            connection = kept.get(node_id)
            if connection is not None and not connection.is_closed:
                return connection
            node = self.metadata.nodes.get(node_id)
            if node is None:
                raise ConnectionLostError(f"broker {node_id} is not in the metadata")
            connection = kept[node_id] = await self._open(node.host, node.port)
            return connection

    def open_connection(self, node_id: int) -> Connection | None:
        """Return the connection to a broker, if there is one that is open."""
        connection = self._connections.get(node_id)
        return None if connection is None or connection.is_closed else connection

    async def any_connection(self) -> Connection:
        """Return any open connection.

        Opens one to a known broker or a bootstrap server if there is none.
        """
        candidates = [*self._connections.values()]
        if self._bootstrap_connection is not None:
            candidates.append(self._bootstrap_connection)
        for connection in candidates:
            if not connection.is_closed:
                return connection
        async with self._opening.setdefault((-1, False), asyncio.Lock()):
            if self._bootstrap_connection is not None and not self._bootstrap_connection.is_closed:
                return self._bootstrap_connection
            return await self._bootstrap_any()

    async def _bootstrap_any(self) -> Connection:
        known = [(node.host, node.port) for node in self.metadata.nodes.values()]
        failures = []
        addresses = dict.fromkeys([*known, *self._bootstrap])
        for host, port in sorted(addresses, key=self._connector.failure_count):
            try:
                self._bootstrap_connection = await self._open(host, port)
            except ConnectionLostError as error:
                failures.append(error.message)
            else:
                return self._bootstrap_connection
        raise ConnectionLostError("no broker answers: " + "; ".join(failures))

    async def _open(self, host: str, port: int) -> Connection:
        connection = await self._connector.open(host, port, self.client_id, self.request_timeout_ms)
        support = connection.support
        if support.features_epoch >= self._features_epoch:
            # Levels are valid from epoch 0 on, and the epoch never goes back (KIP-584).
            self._features_epoch = support.features_epoch
            if support.features_epoch >= 0:
                self._transaction_version = support.features.get(TRANSACTION_VERSION_FEATURE, 0)
        return connection

    # --- metadata ---------------------------------------------------------------------

    async def refresh(
        self, topics: Iterable[str] | None, *, create: bool = False
    ) -> dict[str, ClientError]:
        """Request metadata of the brokers and of `topics` (None: all).

        `create` lets the broker create topics that do not exist.

        An unknown topic is dropped from the cache; when all are requested, so is every topic that
        the reply leaves out. Returns the errors of topics for which a retry cannot help (invalid
        name, not authorized). Raises as `request` does.
        """
        names = None if topics is None else sorted(set(topics))
        request = requests.metadata_request(names, create=create)
        response = await self.request(await self._teller(), ApiKey.METADATA, request)
        self.metadata.update_cluster(
            requests.nodes_of(response), response.cluster_id, response.controller_id
        )
        errors: dict[str, ClientError] = {}
        answers = list(requests.topics_of(response))
        if names is None:
            for name in self.metadata.topics.keys() - {name for name, _code, _topic in answers}:
                self.metadata.forget_topic(name)
        is_in_vain = False
        for name, code, topic in answers:
            if code in (ErrorCode.none, ErrorCode.leader_not_available):
                is_in_vain |= not self.metadata.update_topic(topic)
            elif code is ErrorCode.unknown_topic_or_partition:
                self.metadata.mark_missing(name)
            elif not code.retriable:
                errors[name] = classify(code, Operation.OTHER, f"topic {name}")
        self._in_vain_count = self._in_vain_count + 1 if is_in_vain else 0
        return errors

    async def _teller(self) -> Connection:
        """Return whom to ask for metadata: now and then another broker, where that is in vain.

        One that is cut off from the cluster tells what it knew. Only brokers that answer are asked.
        """
        usual = await self.any_connection()
        if not self._in_vain_count or self._in_vain_count % IN_VAIN_COUNT_MAX:
            return usual
        turn = self._in_vain_count // IN_VAIN_COUNT_MAX
        other = self.metadata.another(usual.peer, turn, self._connector.failure_count)
        with suppress(ConnectionLostError):
            return usual if other is None else await self.connection(other)
        return usual

    async def _refresh_one(self, name: str, *, create: bool = False) -> None:
        errors = await self.refresh([name], create=create)
        if name in errors:
            raise errors[name]

    async def topic(
        self, name: str, *, timeout_ms: float, create: bool = False
    ) -> TopicDescription:
        """Return the topic's description, once every partition has a leader.

        Raises `RetriableError` (unknown_topic_or_partition or leader_not_available) after
        `timeout_ms`.
        """

        async def ask() -> TopicDescription:
            if not self.metadata.is_fresh(name):
                await self._refresh_one(name, create=create)
            topic = self.metadata.topics.get(name)
            if topic is None:
                raise RetriableError(ErrorCode.unknown_topic_or_partition, name)
            if not self.metadata.is_fresh(name):
                raise RetriableError(ErrorCode.leader_not_available, name)
            return topic

        return await self.retrying(ask, timeout_ms)

    async def leader(self, topic_partition: TopicPartition) -> int:
        """Return the broker id of the partition's leader, from the cache or requested once.

        Raises `RetriableError`, and `FatalError` for a partition that does not exist.
        """
        if not self.metadata.is_fresh(topic_partition.topic):
            await self._refresh_one(topic_partition.topic)
        return self._known_leader(topic_partition)

    async def leaders(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, ClientError]]:
        """Return the leaders of partitions, and the errors of those without one.

        Each topic's metadata is requested at most once. Raises `ConnectionLostError`.
        """
        wanted = list(partitions)
        refused: dict[str, ClientError] = {}
        for name in dict.fromkeys(tp.topic for tp in wanted):
            if not self.metadata.is_fresh(name):
                refused |= await self.refresh([name])
        found: dict[TopicPartition, int] = {}
        failed: dict[TopicPartition, ClientError] = {}
        for tp in wanted:
            try:
                found[tp] = self._known_leader(tp)
            except ClientError as error:
                failed[tp] = refused.get(tp.topic, error)
        return found, failed

    def _known_leader(self, topic_partition: TopicPartition) -> int:
        leader = self.metadata.leader(topic_partition)
        if leader is None:
            self.metadata.mark_stale(topic_partition.topic)
            if self.metadata.partition(topic_partition) is not None:
                raise RetriableError(ErrorCode.leader_not_available, str(topic_partition))
            count = self.metadata.partition_count(topic_partition.topic)
            error = does_not_exist(topic_partition, count)
            if self.unknown.is_overdue(topic_partition, self.clock.monotonic_ms()):
                raise error
            raise RetriableError(error.code, error.message)
        self.unknown.found(topic_partition)
        return leader

    # --- coordinators -----------------------------------------------------------------

    async def coordinator(self, kind: int, key: str, *, as_member: bool = False) -> Connection:
        """Return a connection to the coordinator of a group or transactional id.

        `as_member`: one of its own, for the requests of a group's member. Raises `RetriableError`
        while there is none.
        """
        node_id = self._coordinators.get((kind, key))
        if node_id is None:
            request = requests.find_coordinator_request(kind, key)
            response = await self.request_any(ApiKey.FIND_COORDINATOR, request)
            code, node, text = requests.coordinator_of(response)
            if code is not ErrorCode.none:
                raise classify(code, Operation.OTHER, text or key)
            self.metadata.nodes[node.node_id] = node
            node_id = self._coordinators[(kind, key)] = node.node_id
        try:
            return await self.connection(node_id, for_group=as_member)
        except ConnectionLostError:
            self.forget_coordinator(kind, key)
            raise

    def coordinator_id(self, kind: int, key: str) -> int:
        """The broker that was last found to be the coordinator; -1 while none is known."""
        return self._coordinators.get((kind, key), -1)

    def forget_coordinator(self, kind: int, key: str) -> None:
        """Look the coordinator up again before the next call."""
        self._coordinators.pop((kind, key), None)

    async def ask_coordinator(
        self,
        kind: int,
        key: str,
        api: ApiKey,
        request: RequestFor[ResponseT],
        at_most: int | None = None,
        *,
        as_member: bool = False,
        timeout_ms: float | None = None,
    ) -> ResponseT:
        """Send one request to the coordinator.

        `as_member`: see `coordinator`. After a lost connection the next call looks the coordinator
        up again. Raises as `request` does.
        """
        connection = await self.coordinator(kind, key, as_member=as_member)
        try:
            return await self.request(connection, api, request, at_most, timeout_ms)
        except ConnectionLostError:
            self.forget_coordinator(kind, key)
            raise

    def coordinator_error(
        self, kind: int, key: str, code: ErrorCode, message: str = ""
    ) -> ClientError:
        """Return the error of a coordinator's reply.

        Forgets the coordinator when the error means that it may be another broker.
        """
        if code in (ErrorCode.not_coordinator, ErrorCode.coordinator_not_available):
            self.forget_coordinator(kind, key)
        return classify(code, Operation.TRANSACTION, message)
