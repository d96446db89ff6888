"""The broker's side of a connection's SASL exchange (KIP-43, KIP-152, KIP-255, KIP-368).

Frames in, outcomes out, as Kafka's `SaslServerAuthenticator`:

| state | takes | else |
|---|---|---|
| FRESH | ApiVersions, then SaslHandshake is next; SaslHandshake | close before the body is parsed |
| HANDSHAKE | SaslHandshake | close |
| TOKENS | SaslAuthenticate; bare messages after a handshake v0 | ILLEGAL_SASL_STATE |
| DONE | every request; SaslHandshake authenticates again where the session has an end | |
| FAILED | nothing | close |

A client that is refused is answered after a delay, and closed. Every refusal of a mechanism has
one text, unless the text is true of every user alike. A session that authenticates again keeps
mechanism and principal; so the principal of a request that was started before stays right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from oncelog.core.errors import ErrorCode, ProtocolError, require
from oncelog.core.security_limits import (
    REAUTHENTICATION_PAUSE_MS_MIN,
    UNAUTHENTICATED_FRAME_BYTES_MAX,
)
from oncelog.protocol import codec
from oncelog.protocol.api import ApiKey, accepts, is_software_name
from oncelog.protocol.headers import RequestHeader, parse_request_header
from oncelog.protocol.messages.api_versions import ApiVersionsRequest
from oncelog.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from oncelog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from oncelog.security.mechanism import Accepted, Challenge, Mechanism, SaslRefusal

__all__ = ["Authentication", "SaslMoment", "SaslOutcome", "SaslRules", "SaslState"]


class SaslState(Enum):
    """Where the exchange is; the module has the table of what each state takes."""

    FRESH = "fresh"
    HANDSHAKE = "handshake"
    TOKENS = "tokens"
    DONE = "done"
    FAILED = "failed"


_MOVES: Final[Mapping[SaslState, frozenset[SaslState]]] = {
    SaslState.FRESH: frozenset({SaslState.HANDSHAKE, SaslState.TOKENS, SaslState.FAILED}),
    SaslState.HANDSHAKE: frozenset({SaslState.TOKENS, SaslState.FAILED}),
    SaslState.TOKENS: frozenset({SaslState.DONE, SaslState.FAILED}),
    SaslState.DONE: frozenset({SaslState.TOKENS, SaslState.FAILED}),
    SaslState.FAILED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class SaslRules:
    """What a listener demands."""

    mechanisms: Mapping[str, Callable[[str], Mechanism]]
    """By name, what makes an exchange of a fresh nonce."""
    sessions_ms: Mapping[str, float]
    """`connections.max.reauth.ms` by mechanism; 0 or missing: its sessions have no end."""
    failed_delay_ms: float
    receive_bytes_max: int
    """`sasl.server.max.receive.size`."""


class SaslMoment(NamedTuple):
    """What a step needs besides the frame: two clocks, and a fresh random nonce."""

    wall_ms: float
    monotonic_ms: float
    nonce: str


class SaslOutcome(NamedTuple):
    """What to do with a frame: at most one of its fields that act is set, but for `reply`."""

    reply: bytes | None = None
    """A frame to send, without its size."""
    principal: str | None = None
    """The user that the client is from now on."""
    passes_on: bool = False
    """The frame is a request for its handler."""
    closes: bool = False
    """Close, after `delay_ms` in which nothing is read, and after the reply."""
    delay_ms: float = 0
    reason: str = ""
    """Why it is closed, for the log: it names no secret."""
    is_refusal: bool = False
    """Whether an authentication has failed, which is counted."""
    is_expired: bool = False
    """Whether the session has ended, which is counted."""


_PASSES: Final = SaslOutcome(passes_on=True)


class Authentication:
    """One connection's exchange.

    `principal` is the user that the client is; `is_again` says that it authenticates once more.
    """

    def __init__(self, rules: SaslRules) -> None:
        self.state = SaslState.FRESH
        self.mechanism = ""
        self.principal: str | None = None
        self.is_again = False
        self.ends_at_ms: float | None = None
        """When the session ends (monotonic clock); None: never."""
        self.knows_sessions = False
        """Whether the client's versions of SaslAuthenticate have a session's lifetime."""
        self._rules = rules
        self._exchange: Mechanism | None = None
        self._misfit = ""
        """Why its next frame is the last: it asks for another mechanism than before (KIP-368)."""
        self._is_bare = False
        self._began_again_ms: float | None = None

    @property
    def frame_bytes_max(self) -> int | None:
        """The largest frame that may come next; None: as of any connection."""
        if self.state is SaslState.DONE:
            return None
        if self.state is SaslState.TOKENS:
            return self._rules.receive_bytes_max
        return UNAUTHENTICATED_FRAME_BYTES_MAX

    @property
    def frame_bound(self) -> str:
        """What that bound is called."""
        is_chosen = self.state is SaslState.TOKENS
        return "sasl.server.max.receive.size" if is_chosen else "before a mechanism is chosen"

    def refuse_frame(self, reason: str) -> SaslOutcome:
        """Refuse the client for a frame that is too large, as Kafka does."""
        return self._refuse(reason, None)

    def take(self, frame: bytes | bytearray, moment: SaslMoment) -> SaslOutcome:
        """Take the client's next frame."""
        try:
            if self._misfit and self.state is SaslState.TOKENS:
                return self._refuse(self._misfit, None)
            if self.state is SaslState.DONE:
                return self._take_request(frame, moment)
            if self.state is SaslState.TOKENS and self._is_bare:
                return self._take_token(bytes(frame), moment, None)
            if self.state is SaslState.FAILED:
                return self._fail("a frame after the end")
            return self._take_header(frame, parse_request_header(frame), moment)
        except ProtocolError as error:
            return self._fail(
                f"malformed request while it is not authenticated ({error.message}); is the "
                "client's security.protocol right?"
            )

    def _take_request(self, frame: bytes | bytearray, moment: SaslMoment) -> SaslOutcome:
        """Pass on what an authenticated client asks, while its session lasts."""
        if self.ends_at_ms is None:
            return _PASSES
        header = parse_request_header(frame)
        if header.api_key == ApiKey.SASL_HANDSHAKE and self._may_begin_again(moment):
            self.is_again = True
            self._began_again_ms = moment.monotonic_ms
            return self._shake_hands(frame, header, moment)
        if moment.monotonic_ms > self.ends_at_ms:
            return self._fail("its session has ended", is_expired=True)
        return _PASSES

    def _may_begin_again(self, moment: SaslMoment) -> bool:
        before = self._began_again_ms
        return before is None or moment.monotonic_ms - before >= REAUTHENTICATION_PAUSE_MS_MIN

    def _take_header(
        self, frame: bytes | bytearray, header: RequestHeader, moment: SaslMoment
    ) -> SaslOutcome:
        key = header.api_key
        if self.state is SaslState.TOKENS:
            if key != ApiKey.SASL_AUTHENTICATE:
                return self._unexpected(header)
            return self._take_authenticate(frame, header, moment)
        if key == ApiKey.SASL_HANDSHAKE:
            return self._shake_hands(frame, header, moment)
        if key == ApiKey.API_VERSIONS and self.state is SaslState.FRESH:
            if _is_announced(frame, header):
                self._move(SaslState.HANDSHAKE)
            return _PASSES
        return self._fail(f"API {key} before it is authenticated")

    def _shake_hands(
        self, frame: bytes | bytearray, header: RequestHeader, moment: SaslMoment
    ) -> SaslOutcome:
        api, version = ApiKey.SASL_HANDSHAKE, header.api_version
        if not accepts(api, version):
            return self._fail(f"version {version} of SaslHandshake is not served")
        request: SaslHandshakeRequest = codec.parse_request(api, version, frame, header.body_offset)
        known = self._rules.mechanisms
        is_known = request.mechanism in known
        code = ErrorCode.none if is_known else ErrorCode.unsupported_sasl_mechanism
        response = SaslHandshakeResponse(error_code=code, mechanisms=tuple(known))
        reply = codec.encode_response(api, version, header.correlation_id, response)
        if not is_known:
            text = f"SASL mechanism {request.mechanism[:40]!r} is not enabled"
            return self._refuse(text, reply)
        self._is_bare = version == 0
        if self.is_again and request.mechanism != self.mechanism:
            self._misfit = (
                f"SASL mechanism '{request.mechanism}' requested by client is not supported for "
                f"re-authentication of mechanism '{self.mechanism}'"
            )
        else:
            self.mechanism = request.mechanism
            self._exchange = known[request.mechanism](moment.nonce)
        self._move(SaslState.TOKENS)
        return SaslOutcome(reply)

    def _take_authenticate(
        self, frame: bytes | bytearray, header: RequestHeader, moment: SaslMoment
    ) -> SaslOutcome:
        version = header.api_version
        if not accepts(ApiKey.SASL_AUTHENTICATE, version):
            return self._fail(f"version {version} of SaslAuthenticate is not served")
        self.knows_sessions |= version > 0
        request: SaslAuthenticateRequest = codec.parse_request(
            ApiKey.SASL_AUTHENTICATE, version, frame, header.body_offset
        )
        return self._take_token(bytes(request.auth_bytes), moment, header)

    def _take_token(
        self, token: bytes, moment: SaslMoment, header: RequestHeader | None
    ) -> SaslOutcome:
        """Take a message of the mechanism, bare where there is no header."""
        require(self._exchange is not None, "a message of a mechanism needs its exchange")
        assert self._exchange is not None
        match self._exchange.take(token, moment.wall_ms):
            case Challenge(data):
                return SaslOutcome(_token_reply(header, data))
            case Accepted(name, data, expires_ms):
                if self.is_again and name != self.principal:
                    text = (
                        "Cannot change principals during re-authentication from User."
                        f"{self.principal}: User.{name}"
                    )
                    return self._refuse(text, _refusal_reply(header, text))
                self.principal = name
                lifetime_ms = self._begin_session(expires_ms, moment)
                return SaslOutcome(_token_reply(header, data, lifetime_ms), principal=name)
            case SaslRefusal(text):
                shown = text or (
                    f"Authentication failed during {self._what} due to invalid credentials with "
                    f"SASL mechanism {self.mechanism}"
                )
                return self._refuse(shown, _refusal_reply(header, shown))

    def _begin_session(self, expires_ms: float | None, moment: SaslMoment) -> int:
        """Return the session's lifetime in ms, as the client is told; 0 without an end."""
        self._move(SaslState.DONE)
        ends = [] if expires_ms is None else [expires_ms - moment.wall_ms]
        if (session_ms := self._rules.sessions_ms.get(self.mechanism, 0)) > 0:
            ends.append(session_ms)
        lifetime_ms = max(0, int(min(ends))) if ends else 0
        self.ends_at_ms = moment.monotonic_ms + lifetime_ms if ends else None
        return lifetime_ms

    @property
    def _what(self) -> str:
        return "re-authentication" if self.is_again else "authentication"

    def _unexpected(self, header: RequestHeader) -> SaslOutcome:
        """Refuse another request than SaslAuthenticate, in the answer of its own API."""
        api, version = header.api_key, header.api_version
        reply = None
        if accepts(api, version):
            reply = _illegal_state(ApiKey(api), version, header.correlation_id)
        return self._refuse(f"API {api} during SASL authentication", reply)

    def _refuse(self, reason: str, reply: bytes | None) -> SaslOutcome:
        self._move(SaslState.FAILED)
        return SaslOutcome(
            reply,
            closes=True,
            delay_ms=self._rules.failed_delay_ms,
            reason=reason,
            is_refusal=True,
        )

    def _fail(self, reason: str, *, is_expired: bool = False) -> SaslOutcome:
        """Close at once and without an answer."""
        if self.state is not SaslState.FAILED:
            self._move(SaslState.FAILED)
        return SaslOutcome(closes=True, reason=reason, is_expired=is_expired)

    def _move(self, state: SaslState) -> None:
        require(state in _MOVES[self.state], f"SASL moves from {self.state} to {state}")
        self.state = state
        if state is not SaslState.TOKENS:
            self._exchange = None  # It may know a password.


def _is_announced(frame: bytes | bytearray, header: RequestHeader) -> bool:
    """Whether ApiVersions is answered without an error, so that it may not come again."""
    version = header.api_version
    if not accepts(ApiKey.API_VERSIONS, version):
        return False
    request: ApiVersionsRequest = codec.parse_request(
        ApiKey.API_VERSIONS, version, frame, header.body_offset
    )
    names = (request.client_software_name, request.client_software_version)
    return version < 3 or all(map(is_software_name, names))


def _illegal_state(api: ApiKey, version: int, correlation_id: int) -> bytes | None:
    """Return the answer of an API that has an error of its own; None for others."""
    try:
        response = codec.response_class(api)(error_code=ErrorCode.illegal_sasl_state)
        return codec.encode_response(api, version, correlation_id, response)
    except (TypeError, ImportError, AttributeError, codec.MisfitError):
        return None


def _token_reply(header: RequestHeader | None, data: bytes, lifetime_ms: int = 0) -> bytes:
    if header is None:
        return data
    return _authenticate_reply(
        header, SaslAuthenticateResponse(auth_bytes=data, session_lifetime_ms=lifetime_ms)
    )


def _refusal_reply(header: RequestHeader | None, text: str) -> bytes | None:
    if header is None:
        return None  # Bare messages have no form of a refusal.
    code = ErrorCode.sasl_authentication_failed
    return _authenticate_reply(
        header, SaslAuthenticateResponse(error_code=code, error_message=text)
    )


def _authenticate_reply(header: RequestHeader, response: SaslAuthenticateResponse) -> bytes:
    api, version = ApiKey.SASL_AUTHENTICATE, header.api_version
    return codec.encode_response(api, version, header.correlation_id, response)
