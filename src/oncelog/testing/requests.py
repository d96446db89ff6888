"""Applies a fault to one request: an error, a delay, or a lost connection.

It replaces the API's handler, and calls it where there is no fault.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from oncelog.broker.apis.refusals import refusal
from oncelog.broker.net.request import Api, Request
from oncelog.broker.quotas.throttle import with_throttle
from oncelog.core.errors import ErrorCode
from oncelog.core.pending import Pending
from oncelog.protocol.api import ApiKey
from oncelog.testing.fault import ArmedFault

__all__ = [
    "Action",
    "RequestFault",
    "delaying",
    "failing",
    "losing_reply",
    "losing_request",
    "throttling",
    "until_kept",
]

Action = Callable[[Api, object, "Request[object]"], object]
"""The replacement of the handler: ``action(api, context, request)``."""


@dataclass(frozen=True, slots=True)
class RequestFault:
    """A fault of the requests of one API, only of one client if `client_id` is set.

    Without an `api` it is of all but those by which a client finds out what the broker speaks.
    """

    api: ApiKey | None
    client_id: str | None
    action: Action
    fault: ArmedFault

    def concerns(self, request: Request[object]) -> bool:
        """Whether the fault applies to a request."""
        return self.is_of(request.api) and self.client_id in (None, request.client_id)

    def is_of(self, api: ApiKey) -> bool:
        """Whether requests of an API may be concerned."""
        return api is self.api or (self.api is None and api is not ApiKey.API_VERSIONS)


def failing(error: ErrorCode) -> Action:
    """Return an error; the request has no effect."""

    def action(_api: Api, _context: object, request: Request[object]) -> object:
        return refusal(request, error)

    return action


def delaying(delay_ms: float) -> Action:
    """Delay the request before it has any effect; later requests of its connection wait too."""

    async def later(api: Api, context: object, request: Request[object]) -> object:
        await asyncio.sleep(delay_ms / 1000)
        value: object = api.handle(context, request)
        return await value if isinstance(value, Awaitable) else value

    return later


def losing_request(description: str) -> Action:
    """Drop the connection; the request has no effect."""

    def action(_api: Api, _context: object, request: Request[object]) -> None:
        request.connection.fail(description)

    return action


def losing_reply(description: str) -> Action:
    """Let the request take effect, and drop the connection instead of answering it."""

    def action(api: Api, context: object, request: Request[object]) -> object:
        value: object = api.handle(context, request)
        while isinstance(value, Pending) and value.done:
            value = value.response()
        if isinstance(value, Pending) or inspect.isawaitable(value):
            return lose_later(value, request)
        request.connection.fail(description)
        return None

    async def lose_later(value: object, request: Request[object]) -> None:
        await _response_of(value)
        request.connection.fail(description)

    return action


def throttling(throttle_ms: int) -> Action:
    """Answer with a throttle time, and start no request of the connection for so long (KIP-219)."""

    async def later(value: object, request: Request[object]) -> object:
        return throttled(await _response_of(value), request)

    def throttled(value: object, request: Request[object]) -> object:
        request.connection.mute(throttle_ms)
        return with_throttle(request, value, throttle_ms)

    def action(api: Api, context: object, request: Request[object]) -> object:
        value: object = api.handle(context, request)
        if isinstance(value, Pending) or inspect.isawaitable(value):
            return later(value, request)
        return throttled(value, request)

    return action


async def _response_of(value: object) -> object:
    """Wait for the response behind what a handler returned."""
    while True:
        if isinstance(value, Pending):
            await until_kept(value)
            value = value.response()
        elif isinstance(value, Awaitable):
            value = await value
        else:
            return value


async def until_kept(pending: Pending[object]) -> None:
    """Wait until `pending` is completed; drop it if the caller is cancelled."""
    kept = asyncio.get_running_loop().create_future()
    pending.wait(lambda: None if kept.done() else kept.set_result(None))
    try:
        await kept
    except asyncio.CancelledError:
        pending.drop()
        raise
