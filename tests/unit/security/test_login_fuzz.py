"""Frames of all kinds to the state machine of a login: nobody gets in, and little is allocated."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from itertools import islice

import pytest

from oncelog.core.sasl import ScramCredential, credential_of, salted_password
from oncelog.core.secret import Secret
from oncelog.protocol import codec
from oncelog.protocol.api import VERSIONS, ApiKey
from oncelog.protocol.messages.sasl_handshake import SaslHandshakeRequest
from oncelog.security.authentication import Authentication, SaslMoment, SaslRules, SaslState
from oncelog.security.bearer import BearerMechanism
from oncelog.security.plain import PlainMechanism
from oncelog.security.scram import ScramMechanism, decoy
from oncelog.security.tokens import TokenClaims, UnsecuredTokens
from tests.support.login_frames import SECRET, login_frames

SCRAM = "SCRAM-SHA-256"
EXTRA_BYTES_MAX = 64 * 1024
"""What a frame may cost besides itself."""

COPIES_COUNT_MAX = 6
"""Of a frame, as bytes, text, and parts of it; it is at most 64 KB itself."""

SALT = b"0123456789abcdef"
ALICE = credential_of(SCRAM, salted_password(SCRAM, SECRET, SALT, 4096), SALT, 4096)


def found(name: str) -> ScramCredential | None:
    return ALICE if name == "alice" else None


RULES = SaslRules(
    {
        "PLAIN": lambda _: PlainMechanism({"alice": Secret(SECRET)}),
        SCRAM: lambda nonce: ScramMechanism(
            SCRAM, found, lambda name: decoy(b"secret", SCRAM, name, [ALICE]), nonce
        ),
        "OAUTHBEARER": lambda _: BearerMechanism(UnsecuredTokens(TokenClaims())),
    },
    {},
    100,
    receive_bytes_max=524_288,
)


def attempts(seed: int, count: int) -> Iterator[tuple[Authentication, bytes]]:
    """Exchanges, each with the next frame that it has room for."""
    draw = random.Random(seed)
    one = Authentication(RULES)
    for frame in islice(login_frames(seed), count):
        if one.state is SaslState.FAILED or not draw.randrange(8):
            one = Authentication(RULES)
        limit = one.frame_bytes_max
        assert limit is not None
        if len(frame) <= limit:
            yield one, frame


def one_of_each_api() -> Iterator[tuple[Authentication, bytes]]:
    """Requests in the middle of an exchange, which the answer of their own API refuses."""
    for api, versions in VERSIONS.items():
        for version in range(versions.min, versions.max + 1):
            one = Authentication(RULES)
            request = SaslHandshakeRequest(mechanism="PLAIN")
            yield one, codec.encode_request(ApiKey.SASL_HANDSHAKE, 1, 1, None, request)
            yield one, api.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(200)


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(4_000, marks=pytest.mark.slow),
        pytest.param(1_000_000, marks=[pytest.mark.soak, pytest.mark.timeout(900)]),
    ],
)
def test_no_frame_lets_anyone_in_shows_a_secret_or_allocates_much(count: int) -> None:
    moment = SaslMoment(1e12, 0.0, "nonce")
    secrets = [SECRET.encode(), ALICE.stored_key, ALICE.server_key]
    # What the first frames of each API make is kept, so it is no cost of a frame.
    for one, frame in [*attempts(0, 4_000), *one_of_each_api()]:
        one.take(frame, moment)
    tracemalloc.start()
    try:
        for one, frame in attempts(count, count):
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            outcome = one.take(frame, moment)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before <= EXTRA_BYTES_MAX + COPIES_COUNT_MAX * len(frame)
            assert outcome.principal is None
            assert not outcome.passes_on or frame[:2] == b"\0\x12"
            said = (outcome.reply or b"") + outcome.reason.encode()
            assert not any(secret in said for secret in secrets)
    finally:
        tracemalloc.stop()
