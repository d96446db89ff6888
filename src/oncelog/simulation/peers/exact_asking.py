"""Asks a broker in any version, and compares whole answers with those that were worked out.

What a version does not carry is left out of both sides: a request is judged as the broker reads it,
a wanted answer as the client would. Texts of errors are compared only for being there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple

from oncelog.core.errors import ErrorCode
from oncelog.peer.connection import Connection
from oncelog.protocol.api import ApiKey, is_flexible
from oncelog.protocol.codec import (
    encode_response,
    parse_response,
    parse_response_header,
    reader,
    request_class,
    writer,
)
from oncelog.protocol.fields import RequestFor, ResponseT
from oncelog.protocol.messages.api_versions import ApiVersionsRequest
from oncelog.simulation.context import ClientContext
from oncelog.simulation.peers.wire import Address, LostError, PeerWire

__all__ = ["EXACT_DEFAULTS", "ExactAnswer", "ExactAsker", "NotSentError", "comparable", "text_of"]

EXACT_DEFAULTS = {"late": 0.0, "impatience": 0.0}
"""Requests arrive at once or are lost, so each is sent once."""
_TEXTS = frozenset({"error_message"})


class NotSentError(LostError):
    """There was no connection: the request had no effect and never will."""


class ExactAnswer(NamedTuple, Generic[ResponseT]):
    """A response, the version it was asked for in, and the request as the broker has read it."""

    api: ApiKey
    version: int
    request: Any
    response: ResponseT
    connection: Connection


class ExactAsker:
    """One client's questions, and what it found wrong with the answers.

    Parameters of the context: `strict` (whether a wrong answer is a finding).
    """

    def __init__(self, context: ClientContext, wire: PeerWire) -> None:
        self.context = context
        self.wire = wire
        self.is_strict = bool(context.get("strict", False))
        self._witness: Connection | None = None
        """A connection since all faults were healed. A kill that was armed before closes it."""

    @property
    def is_undisturbed(self) -> bool:
        """Whether all faults have ended, so that nothing may be lost or late any more."""
        return self._witness is not None and not self._witness.is_closed

    async def wait_for_calm(self) -> None:
        """Once all faults have ended: wait until the broker answers, and expect more from it."""
        attempt = 0
        while True:
            try:
                answer = await self.ask(
                    ApiKey.API_VERSIONS,
                    ApiVersionsRequest(client_software_name="x", client_software_version="1"),
                )
            except LostError:
                await self.context.back_off(attempt)
                attempt += 1
                continue
            self._witness = answer.connection
            return

    async def ask(
        self,
        api: ApiKey,
        request: RequestFor[ResponseT],
        *,
        to: Address | None = None,
        least: int = 0,
    ) -> ExactAnswer[ResponseT]:
        """Ask in a drawn version of at least `least`.

        Raises `NotSentError` where nothing was sent, `LostError` where no answer came.
        """
        try:
            connection = await self.wire.open(to)
        except LostError as error:
            raise NotSentError(str(error)) from error
        version = self.drawn_version(connection, api, least)
        seen = as_read(api, version, request)
        response: ResponseT = await self.wire.ask(api, request, to=to, at_most=version)
        return ExactAnswer(api, version, seen, response, connection)

    def drawn_version(self, connection: Connection, api: ApiKey, least: int) -> int:
        """Draw a version that both sides speak, every other time the newest."""
        newest = self.wire.version(connection, api)
        oldest = max(least, connection.support.versions[api].min)
        return newest if self.context.chance(0.5) else self.context.rng.randint(oldest, newest)

    def compare(self, answer: ExactAnswer[Any], wanted: object, only: str = "") -> None:
        """The whole answer is as wanted; `only` names the one field that is compared."""
        told = answer.response
        at_version = as_answered(answer.api, answer.version, wanted)
        left, right = comparable(told), comparable(at_version)
        if only:
            left, right = comparable(getattr(told, only)), comparable(getattr(at_version, only))
        self.expect(
            left == right,
            lambda: (
                f"{answer.api.name} v{answer.version} of {answer.request} gave "
                f"{_difference(left, right)}"
            ),
        )

    def expect(self, holds: bool, what: Callable[[], str]) -> None:
        """Record a finding unless it holds, or faults may explain it."""
        if not holds and self.is_strict:
            self.context.stuck(what())


def as_read(api: ApiKey, version: int, request: object) -> Any:
    """Return the request as the broker reads it in this version."""
    flexible, cls = is_flexible(api, version), request_class(api)
    out = bytearray()
    writer(cls, version, flexible=flexible)(out, request)
    return reader(cls, version, flexible=flexible)(out, 0)


def as_answered(api: ApiKey, version: int, response: object) -> Any:
    """Return the response as a client of this version reads it."""
    frame = encode_response(api, version, 0, response)
    _, offset = parse_response_header(api, version, frame)
    return parse_response(api, version, frame, offset)


def comparable(value: Any) -> Any:
    """Return a message as nested pairs of names and values, texts of errors as yes or no."""
    if isinstance(value, ErrorCode):
        return value.name
    if dataclasses.is_dataclass(value):
        return {
            field.name: (
                getattr(value, field.name) is not None
                if field.name in _TEXTS
                else comparable(getattr(value, field.name))
            )
            for field in dataclasses.fields(value)
        }
    if isinstance(value, tuple | list):
        return [comparable(each) for each in value]
    return value


def text_of(error: ErrorCode) -> str | None:
    """Return a text where an answer with this error has to have one."""
    return None if error is ErrorCode.none else "some text"


def _difference(told: Any, wanted: Any, at: str = "") -> str:
    """Return the first difference of two comparable values."""
    if isinstance(told, dict) and isinstance(wanted, dict) and told.keys() == wanted.keys():
        return _first((told[name], wanted[name], f"{at}.{name}") for name in told)
    if isinstance(told, list) and isinstance(wanted, list) and len(told) == len(wanted):
        pairs = zip(told, wanted, strict=True)
        return _first((a, b, f"{at}[{place}]") for place, (a, b) in enumerate(pairs))
    return f"{at or 'all'}: {told}, wanted {wanted}"


def _first(pairs: Iterable[tuple[Any, Any, str]]) -> str:
    return next(_difference(a, b, at) for a, b, at in pairs if a != b)
