"""Judges bearer tokens: signed ones by the keys of a JWKS file, and unsecured ones (RFC 7519).

A token says when it ends and who it is for; it has to. What is signed is verified by PyJWT, with
the one algorithm of the key that the token names: a token does not choose how it is judged.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from oncelog.core.config_definition import ConfigError
from oncelog.core.security_limits import USER_NAME_LENGTH_MAX
from oncelog.security.bearer import TokenVerdict

if TYPE_CHECKING:
    from jwt import PyJWK
    from jwt.types import Options

__all__ = ["SignedTokens", "TokenClaims", "UnsecuredTokens", "read_keys"]

_INVALID: Final = TokenVerdict(refusal="invalid_token")
_SECONDS_MAX: Final = 1e12
_OURS: Final[Options] = {
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
}
"""What PyJWT leaves to `TokenClaims`."""
_SIGNATURES: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
"""Of public keys only: a reader of a JWKS file must not be able to sign by it."""


@dataclass(frozen=True, slots=True)
class TokenClaims:
    """What a token has to say: Kafka's `sasl.oauthbearer.…` configs."""

    name_claim: str = "sub"
    audiences: Sequence[str] = ()
    issuer: str | None = None
    clock_skew_ms: float = 30_000

    def judge(self, claims: Mapping[str, object], now_ms: float) -> TokenVerdict:
        """Judge the claims of a token whose signature is right, or needs not be."""
        name, expires_s = claims.get(self.name_claim), claims.get("exp")
        if not isinstance(name, str) or not 0 < len(name) <= USER_NAME_LENGTH_MAX:
            return _INVALID
        starts = (claims.get("nbf", 0), claims.get("iat", 0))
        times_ms = [_time_ms(value) for value in (expires_s, *starts)]
        if not all(map(math.isfinite, times_ms)):
            return _INVALID
        expires_ms, *starts_ms = times_ms
        if expires_ms + self.clock_skew_ms <= now_ms:
            return _INVALID
        if any(start_ms - self.clock_skew_ms > now_ms for start_ms in starts_ms):
            return _INVALID
        if self.issuer is not None and claims.get("iss") != self.issuer:
            return _INVALID
        audience = claims.get("aud", ())
        meant = [audience] if isinstance(audience, str) else audience
        if self.audiences and not (
            isinstance(meant, list) and any(one in self.audiences for one in meant)
        ):
            return _INVALID
        return TokenVerdict(name, expires_ms)


def _time_ms(value: object) -> float:
    """Return a claim's time in ms; NaN if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    return float(value) * 1000 if abs(value) < _SECONDS_MAX else math.nan


@dataclass(frozen=True, slots=True)
class UnsecuredTokens:
    """Takes tokens that are not signed (``"alg":"none"``): anyone can make one, so for tests."""

    claims: TokenClaims

    def __call__(self, token: str, now_ms: float) -> TokenVerdict:
        """Judge a token."""
        parts = token.split(".")
        if len(parts) != 3 or parts[2]:
            return _INVALID
        header, claims = _part(parts[0]), _part(parts[1])
        if header is None or header.get("alg") != "none" or claims is None:
            return _INVALID
        return self.claims.judge(claims, now_ms)


def _part(text: str) -> dict[str, object] | None:
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        found: object = json.loads(data)
    except (binascii.Error, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


@dataclass(frozen=True, slots=True)
class SignedTokens:
    """Takes tokens that are signed by one of the keys, which `read_keys` returns."""

    claims: TokenClaims
    keys: Mapping[str | None, PyJWK]

    def __call__(self, token: str, now_ms: float) -> TokenVerdict:
        """Judge a token."""
        import jwt

        try:
            named: str | None = jwt.get_unverified_header(token).get("kid")
            key = self.keys.get(named)
            if key is None and named is None and len(self.keys) == 1:
                key = next(iter(self.keys.values()))
            if key is None:
                return _INVALID
            # Its times are judged by our clock, and the other claims with them.
            claims: Mapping[str, object] = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                options=_OURS,
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            return _INVALID
        return self.claims.judge(claims, now_ms)


def read_keys(text: str) -> dict[str | None, PyJWK]:
    """Return the keys of a JWKS (RFC 7517) by their ids. Raises `ConfigError`."""
    import jwt

    try:
        entries: Sequence[dict[str, object]] = json.loads(text)["keys"]
        found: dict[str | None, PyJWK] = {}
        for entry in entries:
            if entry.get("use", "sig") != "sig":
                continue
            key = jwt.PyJWK(entry)
            if key.algorithm_name not in _SIGNATURES:
                raise ConfigError(
                    f"the JWKS has a key for {key.algorithm_name}; public keys alone are taken"
                )
            found[key.key_id] = key
    except (jwt.PyJWTError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConfigError(f"the JWKS cannot be read: {type(error).__name__}") from None
    if not found:
        raise ConfigError("the JWKS has no key")
    return found
