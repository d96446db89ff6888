"""What every method of `Admin` needs: connections, whom to ask, which codes are errors."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from oncelog.client.cluster import Cluster
from oncelog.client.errors import FatalError, Operation, RetriableError, classify
from oncelog.client.hints import AsyncHints
from oncelog.core.errors import ErrorCode
from oncelog.peer.connection import Connection
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fields import RequestFor, ResponseT

__all__ = ["AdminBase"]

T = TypeVar("T")


class AdminBase(AsyncHints):
    """The connections of an administrator."""

    def __init__(self, cluster: Cluster, timeout_ms: float) -> None:
        self._cluster = cluster
        self._timeout_ms = timeout_ms

    async def start(self) -> None:
        """Connect. Raises `ConnectionLostError` if no broker answers for `first_contact_ms`."""
        await self._cluster.connect(self._timeout_ms)

    async def close(self) -> None:
        """Close the connections."""
        await self._cluster.close()

    async def __aexit__(self, *exc_info: object) -> None:
        """Close."""
        await self.close()

    async def _ask_owner(self, name: str, api: ApiKey, request: RequestFor[ResponseT]) -> ResponseT:
        """Send a request to the broker of this id, or to any broker if `name` is empty."""
        if not name:
            return await self._cluster.request_any(api, request)
        if not name.isascii() or not name.isdigit():
            raise FatalError(ErrorCode.invalid_request, f"{name} is no broker's number")
        if int(name) not in self._cluster.metadata.nodes:
            await self._cluster.refresh([])
        if int(name) not in self._cluster.metadata.nodes:
            raise FatalError(ErrorCode.broker_not_available, f"there is no broker {name}")
        return await self._cluster.request_node(int(name), api, request)

    async def _ask_controller(self, api: ApiKey, request: RequestFor[ResponseT]) -> ResponseT:
        return await self._cluster.request(await self._controller(), api, request)

    async def _controller(self) -> Connection:
        metadata = self._cluster.metadata
        if metadata.controller_id < 0:
            await self._cluster.refresh([])
        if metadata.controller_id in metadata.nodes:
            return await self._cluster.connection(metadata.controller_id)
        return await self._cluster.any_connection()

    async def _retrying(self, call: Callable[[], Awaitable[T]]) -> T:
        return await self._cluster.retrying(call, self._timeout_ms)

    def _check_topic(self, name: str, code: ErrorCode, text: str | None) -> None:
        # A producer retries UNKNOWN_TOPIC_OR_PARTITION; for an administrator it is the answer.
        if code is ErrorCode.unknown_topic_or_partition:
            raise FatalError(code, name)
        self._check(code, f"{name}: {text or ''}")

    def _check(self, code: ErrorCode, message: str) -> None:
        if code is ErrorCode.none:
            return
        if code is ErrorCode.not_controller:
            self._cluster.metadata.controller_id = -1
            raise RetriableError(code, message)
        raise classify(code, Operation.OTHER, message)
