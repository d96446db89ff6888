"""SaslHandshake and SaslAuthenticate over a connection (KIP-43, KIP-152, KIP-368)."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

from oncelog.core.errors import ErrorCode
from oncelog.core.security_limits import SASL_CHALLENGE_BYTES_MAX
from oncelog.peer.sasl.exchange import SaslAuthenticationError
from oncelog.peer.sasl.settings import Sasl
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fields import RequestFor, ResponseT
from oncelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog.protocol.messages.sasl_handshake import SaslHandshakeRequest

__all__ = ["Ask", "authenticate"]

T = TypeVar("T")
P = ParamSpec("P")


class Ask(Protocol):
    """Sends a request and returns its answer."""

    async def __call__(self, api: ApiKey, request: RequestFor[ResponseT], /) -> ResponseT:
        """Send `request` in the best common version; return the response."""


async def authenticate(ask: Ask, sasl: Sasl, peer: str) -> int:
    """Authenticate to `peer`; return the session's lifetime in ms, 0 without an end.

    Raises `SaslAuthenticationError`, or what `ask` raises.
    """
    try:
        return await _exchange(ask, sasl)
    except SaslAuthenticationError as error:
        text = f"{peer}: SASL {sasl.mechanism} as {sasl.principal}: {error}"
        raise SaslAuthenticationError(text, error.code) from None


async def _exchange(ask: Ask, sasl: Sasl) -> int:
    await _shake_hands(ask, sasl)
    exchange = sasl.exchange()
    out: bytes | None = await _in_executor(exchange.first)
    lifetime_ms = 0
    while out is not None:
        challenge, lifetime_ms = await _send(ask, out)
        out = await _in_executor(exchange.answer, challenge)
    if not exchange.is_complete:
        raise SaslAuthenticationError("the broker ended the exchange too early")
    return lifetime_ms


async def _shake_hands(ask: Ask, sasl: Sasl) -> None:
    request = SaslHandshakeRequest(mechanism=sasl.mechanism)
    answer = await ask(ApiKey.SASL_HANDSHAKE, request)
    code = answer.error_code
    if code is ErrorCode.illegal_sasl_state:
        raise SaslAuthenticationError(
            "this listener knows no SASL; use security.protocol=PLAINTEXT or SSL", code
        )
    if code is ErrorCode.unsupported_sasl_mechanism:
        known = ", ".join(answer.mechanisms) or "none"
        raise SaslAuthenticationError(f"the broker's mechanisms are {known}", code)
    if code is not ErrorCode.none:
        raise SaslAuthenticationError(code.name.upper(), code)


async def _send(ask: Ask, out: bytes) -> tuple[bytes, int]:
    """Send a message of the mechanism; return (the broker's message, session lifetime in ms)."""
    request = SaslAuthenticateRequest(auth_bytes=out)
    answer = await ask(ApiKey.SASL_AUTHENTICATE, request)
    if answer.error_code is not ErrorCode.none:
        reason = (answer.error_message or answer.error_code.name.upper())[:300]
        raise SaslAuthenticationError(reason, answer.error_code)
    if len(answer.auth_bytes) > SASL_CHALLENGE_BYTES_MAX:
        raise SaslAuthenticationError(f"the broker's message has {len(answer.auth_bytes)} bytes")
    return bytes(answer.auth_bytes), answer.session_lifetime_ms


async def _in_executor(call: Callable[P, T], *arguments: P.args, **_: P.kwargs) -> T:
    """Run a call that blocks (key derivation, a token endpoint) in a thread."""
    return await asyncio.get_running_loop().run_in_executor(None, call, *arguments)
