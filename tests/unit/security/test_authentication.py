"""The state machine of a connection's SASL exchange: bounds, and frames of every kind.

tests/scenarios/sasl has its behaviour as text.
"""

import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import ErrorCode
from oncelog.protocol import codec
from oncelog.protocol.api import VERSIONS, ApiKey
from oncelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog.protocol.messages.sasl_handshake import SaslHandshakeRequest
from oncelog.security.authentication import (
    Authentication,
    SaslMoment,
    SaslOutcome,
    SaslRules,
    SaslState,
)
from oncelog.security.mechanism import Accepted, SaslRefusal
from oncelog.security.plain import PlainMechanism

MOMENT = SaslMoment(1_700_000_000_000.0, 0.0, "nonce")


class Anyone:
    """Accepts everyone, until `expires_ms`."""

    def __init__(self, expires_ms: float | None) -> None:
        self._expires_ms = expires_ms

    def take(self, message: bytes, now_ms: float) -> Accepted:
        return Accepted("alice", b"", self._expires_ms)


def machine(expires_ms: float | None = None, session_ms: float = 0) -> Authentication:
    return Authentication(
        SaslRules(
            {"PLAIN": lambda _: PlainMechanism({}), "ANYONE": lambda _: Anyone(expires_ms)},
            {"ANYONE": session_ms},
            100,
            receive_bytes_max=524_288,
        )
    )


def shake(machine: Authentication, mechanism: str = "ANYONE", version: int = 1) -> SaslOutcome:
    request = SaslHandshakeRequest(mechanism=mechanism)
    frame = codec.encode_request(ApiKey.SASL_HANDSHAKE, version, 1, None, request)
    return machine.take(frame, MOMENT)


def say(machine: Authentication, version: int = 2, message: bytes = b"x") -> Any:
    request = SaslAuthenticateRequest(auth_bytes=message)
    frame = codec.encode_request(ApiKey.SASL_AUTHENTICATE, version, 1, None, request)
    reply = machine.take(frame, MOMENT).reply
    assert reply is not None
    _, offset = codec.parse_response_header(ApiKey.SASL_AUTHENTICATE, version, reply)
    return codec.parse_response(ApiKey.SASL_AUTHENTICATE, version, reply, offset)


def test_a_frame_is_bounded_by_64_kb_until_the_mechanism_is_chosen() -> None:
    one = machine()
    assert one.frame_bytes_max == 65536
    shake(one)
    assert one.frame_bytes_max == 524_288
    say(one)
    assert one.frame_bytes_max is None


@pytest.mark.parametrize(
    ("expires_in_ms", "session_ms", "lifetime_ms"),
    [(None, 0, 0), (None, 500, 500), (300, 0, 300), (300, 500, 300), (700, 500, 500), (-5, 0, 0)],
)
def test_a_session_ends_with_its_token_or_by_the_listener_s_setting(
    expires_in_ms: float | None, session_ms: float, lifetime_ms: int
) -> None:
    expires_ms = None if expires_in_ms is None else MOMENT.wall_ms + expires_in_ms
    one = machine(expires_ms, session_ms)
    shake(one)
    assert say(one).session_lifetime_ms == lifetime_ms
    has_end = expires_in_ms is not None or session_ms > 0
    assert one.ends_at_ms == (lifetime_ms if has_end else None)


def test_clients_that_know_no_sessions_are_told_apart() -> None:
    for version in (0, 1):
        one = machine()
        shake(one)
        say(one, version)
        assert one.knows_sessions is (version > 0)


def test_nothing_is_taken_after_a_frame_that_closes() -> None:
    """Also where what came behind it was read with it."""
    one = machine()
    assert one.take(bytes(20), MOMENT).closes
    assert shake(one) == SaslOutcome(closes=True, reason="a frame after the end")


@pytest.mark.parametrize("message", [b"", b"x"])
def test_what_knows_the_password_goes_with_the_exchange(message: bytes) -> None:
    made: list[weakref.ref[Anyone]] = []

    class Careful(Anyone):
        def take(self, message: bytes, now_ms: float) -> Any:
            return super().take(message, now_ms) if message else SaslRefusal()

    def make(nonce: str) -> Careful:
        mechanism = Careful(None)
        made.append(weakref.ref(mechanism))
        return mechanism

    one = Authentication(SaslRules({"ANYONE": make}, {}, 100, receive_bytes_max=524_288))
    shake(one)
    assert made[0]() is not None
    say(one, message=message)
    assert one.state is (SaslState.DONE if message else SaslState.FAILED)
    assert made[0]() is None


@pytest.mark.parametrize("version", [-1, 2, 99])
def test_a_handshake_of_an_unknown_version_is_not_answered(version: int) -> None:
    request = SaslHandshakeRequest(mechanism="ANYONE")
    frame = codec.encode_request(ApiKey.SASL_HANDSHAKE, 1, 1, None, request)
    frame = frame[:2] + version.to_bytes(2, "big", signed=True) + frame[4:]
    outcome = machine().take(frame, MOMENT)
    assert outcome.closes
    assert outcome.reply is None


@pytest.mark.parametrize("api", sorted(VERSIONS))
def test_no_other_api_is_answered_before_the_handshake(api: int) -> None:
    if api in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE):
        return
    frame = api.to_bytes(2, "big") + bytes(2) + bytes(200)
    outcome = machine().take(frame, MOMENT)
    assert outcome == SaslOutcome(closes=True, reason=f"API {api} before it is authenticated")


@pytest.mark.parametrize("api", sorted(VERSIONS))
def test_within_the_exchange_another_api_answers_illegal_state_or_nothing(api: int) -> None:
    if api == ApiKey.SASL_AUTHENTICATE:
        return
    for version in range(VERSIONS[api].min, VERSIONS[api].max + 1):
        one = machine()
        shake(one)
        frame = api.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(200)
        outcome = one.take(frame, MOMENT)
        assert outcome.closes
        assert outcome.is_refusal
        if outcome.reply is not None:
            key = ApiKey(api)
            _, offset = codec.parse_response_header(key, version, outcome.reply)
            answer = codec.parse_response(key, version, outcome.reply, offset)
            assert answer.error_code in (ErrorCode.illegal_sasl_state, ErrorCode.none)


FRAMES = st.one_of(
    st.binary(max_size=80),
    st.builds(
        lambda key, version, rest: key.to_bytes(2, "big") + version.to_bytes(2, "big") + rest,
        st.sampled_from([17, 36, 18, 3, 0]),
        st.integers(0, 5),
        st.binary(max_size=80),
    ),
)


@given(st.booleans(), st.lists(FRAMES, max_size=4))
def test_no_bytes_pass_as_a_user(has_begun: bool, frames: list[bytes]) -> None:
    one = machine()
    if has_begun:
        shake(one, "PLAIN")
    for frame in frames:
        outcome = one.take(frame, MOMENT)
        assert outcome.principal is None
        assert not outcome.passes_on or frame[:2] == b"\x00\x12"
    assert one.state is not SaslState.DONE
