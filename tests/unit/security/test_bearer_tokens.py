"""Bearer tokens: what is signed by a key of the file, what is not, and messages that are none."""

import base64
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.config_definition import ConfigError
from oncelog.security.bearer import BearerMechanism, TokenVerdict
from oncelog.security.mechanism import Accepted, Challenge, SaslRefusal
from oncelog.security.tokens import SignedTokens, TokenClaims, UnsecuredTokens, read_keys

NOW_S = 1_700_000_000
NOW_MS = NOW_S * 1000.0
INVALID = TokenVerdict(refusal="invalid_token")
CLAIMS = {"sub": "alice", "exp": NOW_S + 60}
RSA_KEY = rsa.generate_private_key(65537, 2048)
OTHER_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())


def jwk(key: Any, key_id: str, **fields: str) -> dict[str, Any]:
    kind: Any = (
        jwt.algorithms.RSAAlgorithm
        if isinstance(key, rsa.RSAPrivateKey)
        else jwt.algorithms.ECAlgorithm
    )
    return {**kind.to_jwk(key.public_key(), as_dict=True), "kid": key_id, **fields}


KEYS = read_keys(
    json.dumps(
        {
            "keys": [
                jwk(RSA_KEY, "one", alg="RS256"),
                jwk(EC_KEY, "two"),
                jwk(OTHER_KEY, "for-encryption", use="enc"),
            ]
        }
    )
)
TOKENS = SignedTokens(TokenClaims(), KEYS)


def signed(
    claims: dict[str, Any] = CLAIMS,
    key: Any = RSA_KEY,
    algorithm: str = "RS256",
    key_id: str | None = "one",
) -> str:
    return jwt.encode(claims, key, algorithm, {"kid": key_id} if key_id else None)


def unsecured(claims: object, header: object = {"alg": "none"}) -> str:
    texts = [
        base64.urlsafe_b64encode(json.dumps(one).encode()).decode() for one in (header, claims)
    ]
    return ".".join(text.rstrip("=") for text in texts) + "."


def test_a_token_that_a_key_of_the_file_signed_is_taken_until_it_ends() -> None:
    verdict = TokenVerdict("alice", NOW_MS + 60_000)
    assert TOKENS(signed(), NOW_MS) == verdict
    assert TOKENS(signed(key=EC_KEY, algorithm="ES256", key_id="two"), NOW_MS) == verdict


@pytest.mark.parametrize(
    "token",
    [
        signed(key=OTHER_KEY),
        signed(key=OTHER_KEY, key_id="for-encryption"),
        signed(key_id="unknown"),
        signed(key_id=None),
        signed(algorithm="RS512"),
        signed(algorithm="PS256"),
        signed(key=EC_KEY, algorithm="ES256", key_id="one"),
        unsecured(CLAIMS),
        unsecured(CLAIMS, {"alg": "none", "kid": "one"}),
        unsecured(CLAIMS, {"alg": "RS256", "kid": "one"}),
        signed()[:-6],
        "",
        "..",
        "a.b.c",
    ],
)
def test_a_token_that_is_not_signed_so_is_refused(token: str) -> None:
    assert TOKENS(token, NOW_MS) == INVALID


def test_a_token_signed_with_the_public_key_as_a_shared_secret_is_refused() -> None:
    # The classic confusion: the file is public, so by HMAC with it everyone could sign.
    header = {"alg": "HS256", "kid": "one", "typ": "JWT"}
    body = unsecured(CLAIMS, header).rstrip(".")
    import hmac

    secret = json.dumps(jwk(RSA_KEY, "one")).encode()
    mac = base64.urlsafe_b64encode(hmac.digest(secret, body.encode(), "sha256")).decode()
    assert TOKENS(f"{body}.{mac.rstrip('=')}", NOW_MS) == INVALID


def test_a_shared_secret_in_the_file_is_refused() -> None:
    secret = base64.urlsafe_b64encode(bytes(32)).decode().rstrip("=")
    with pytest.raises(ConfigError, match="public keys alone"):
        read_keys(json.dumps({"keys": [{"kty": "oct", "k": secret, "kid": "s"}]}))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"keys": [3]}', '{"keys": [{}]}', '{"keys":[]}'])
def test_a_file_without_keys_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^the JWKS"):
        read_keys(text)


def test_a_lone_key_needs_no_name() -> None:
    keys = read_keys(json.dumps({"keys": [jwk(RSA_KEY, "one")]}))
    assert SignedTokens(TokenClaims(), keys)(signed(key_id=None), NOW_MS).name == "alice"


@pytest.mark.parametrize(
    "claims",
    [
        {"sub": "alice"},
        {"exp": NOW_S + 60},
        {"sub": "", "exp": NOW_S + 60},
        {"sub": 7, "exp": NOW_S + 60},
        {"sub": "a" * 1025, "exp": NOW_S + 60},
        {"sub": "alice", "exp": NOW_S - 30},
        {"sub": "alice", "exp": "soon"},
        {"sub": "alice", "exp": True},
        {"sub": "alice", "exp": 1e300},
        {"sub": "alice", "exp": NOW_S + 60, "nbf": NOW_S + 31},
        {"sub": "alice", "exp": NOW_S + 60, "iat": NOW_S + 31},
        {"sub": "alice", "exp": NOW_S + 60, "iat": None},
        [],
        "text",
    ],
)
def test_claims_that_are_missing_wrong_or_out_of_time_refuse_a_token(claims: Any) -> None:
    assert UnsecuredTokens(TokenClaims())(unsecured(claims), NOW_MS) == INVALID


def test_issuer_audience_and_name_are_as_configured() -> None:
    demanded = TokenClaims("client", ("kafka", "other"), "https://issuer", 0)
    tokens = UnsecuredTokens(demanded)
    claims = {"client": "app", "exp": NOW_S + 1, "iss": "https://issuer", "aud": "kafka"}
    assert tokens(unsecured(claims), NOW_MS) == TokenVerdict("app", NOW_MS + 1000)
    assert tokens(unsecured({**claims, "aud": ["x", "other"]}), NOW_MS).name == "app"
    many: list[dict[str, Any]] = [{"aud": "else"}, {"aud": 3}, {"aud": []}, {"client": None}]
    for wrong in [*many, {"iss": "else"}]:
        assert tokens(unsecured({**claims, **wrong}), NOW_MS) == INVALID, wrong


@pytest.mark.parametrize(
    "token",
    [unsecured(CLAIMS) + "x", unsecured(CLAIMS)[:-1], signed(), unsecured(CLAIMS, {"alg": "None"})],
)
def test_an_unsecured_token_has_no_signature(token: str) -> None:
    assert UnsecuredTokens(TokenClaims())(token, NOW_MS) == INVALID


def mechanism() -> BearerMechanism:
    return BearerMechanism(UnsecuredTokens(TokenClaims()))


def message(token: str = unsecured(CLAIMS), header: str = "n,,", extensions: str = "") -> bytes:
    return f"{header}\x01auth=Bearer {token}\x01{extensions}\x01".encode()


@pytest.mark.parametrize(
    "sent",
    [
        message(),
        message(header="n,a=alice,"),
        message(extensions="traceId=123\x01"),
        message().replace(b"Bearer", b"bEaRer  "),
    ],
)
def test_a_message_with_a_token_is_taken(sent: bytes) -> None:
    assert mechanism().take(sent, NOW_MS) == Accepted("alice", b"", NOW_MS + 60_000)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\x01",
        b"\xff",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        message().replace(b"Bearer", b"Basic"),
        message(header="y,,"),
        message(header="n,"),
        message(header="n,b=alice,"),
        message()[:-1],
        message(extensions="auth=Bearer x\x01"),
        message(extensions="1=x\x01"),
        message(extensions="a=\x01"),
        message(extensions="a=\x02\x01"),
    ],
)
def test_a_message_without_one_is_refused(sent: bytes) -> None:
    assert mechanism().take(sent, NOW_MS) == SaslRefusal()


def test_another_identity_than_the_token_s_is_refused() -> None:
    refusal = mechanism().take(message(header="n,a=bob,"), NOW_MS)
    assert isinstance(refusal, SaslRefusal)
    assert "different from the token's principal name" in (refusal.text or "")


def test_no_second_token_is_taken_after_a_refused_one() -> None:
    bearer = mechanism()
    assert bearer.take(message(), NOW_MS + 3_600_000) == Challenge(b'{"status":"invalid_token"}')
    assert bearer.take(message(), NOW_MS) == SaslRefusal('{"status":"invalid_token"}')


@given(st.binary(max_size=64), st.text(max_size=64))
def test_any_bytes_are_answered(data: bytes, text: str) -> None:
    assert isinstance(mechanism().take(data, NOW_MS), SaslRefusal)
    assert TOKENS(text, NOW_MS) == INVALID
    assert UnsecuredTokens(TokenClaims())(text, NOW_MS) == INVALID
