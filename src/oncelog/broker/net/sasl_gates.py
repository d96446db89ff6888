"""Makes the rules of listeners with SASL from their configs and the users in the metadata."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from oncelog.broker.net.sasl import SaslGate
from oncelog.controller.image import MetadataImage
from oncelog.core.config import BrokerConfig
from oncelog.core.config_definition import ConfigError
from oncelog.core.sasl import BEARER, HASHES, PLAIN, ScramCredential
from oncelog.core.sasl_listener import SaslListener
from oncelog.runtime.clock import Clock
from oncelog.runtime.file_mark import mark_of
from oncelog.runtime.installation import require_extra
from oncelog.security.authentication import SaslRules
from oncelog.security.bearer import BearerMechanism, TokenVerdict, Verify
from oncelog.security.mechanism import Mechanism
from oncelog.security.plain import PlainMechanism
from oncelog.security.scram import ScramMechanism, decoy
from oncelog.security.tokens import SignedTokens, TokenClaims, UnsecuredTokens, read_keys

__all__ = ["Image", "sasl_gates"]

log = logging.getLogger(__name__)

Image = Callable[[], MetadataImage]


def sasl_gates(
    config: BrokerConfig, image: Image, clock: Clock, rng: random.Random
) -> dict[str, SaslGate]:
    """Return the gates of the listeners that have SASL, by name.

    Raises `ConfigError` for a JWKS file that cannot be read, `ExtraMissing` without PyJWT.
    """
    found = {}
    users = _Users(image, rng)
    for name, listener in config.sasl_listeners.items():
        own = config.within(name)
        rules = SaslRules(
            _mechanisms(listener, users),
            listener.sessions_ms,
            own.get_int("connection.failed.authentication.delay.ms"),
            own.get_int("sasl.server.max.receive.size"),
        )
        found[name] = SaslGate(rules, clock, rng)
    return found


class _Users:
    """The users in the metadata, and what is shown to those that are not there."""

    def __init__(self, image: Image, rng: random.Random) -> None:
        self._image = image
        self._own_secret = rng.randbytes(32)
        """Of decoys while the cluster has no user, and so no secret."""
        self._seen: Mapping[str, Mapping[str, ScramCredential]] | None = None
        self._models: dict[str, Sequence[ScramCredential]] = {}

    def find(self, mechanism: str, name: str) -> ScramCredential | None:
        """Return a user's credential for a mechanism."""
        return self._image().scram_credentials.get(name, {}).get(mechanism)

    def decoy(self, mechanism: str, name: str) -> ScramCredential:
        """Return what a user is shown who has none."""
        image = self._image()
        if image.scram_credentials is not self._seen:
            self._seen, self._models = image.scram_credentials, {}
        models = self._models.get(mechanism)
        if models is None:
            every = image.scram_credentials.values()
            models = [each[mechanism] for each in every if mechanism in each]
            self._models[mechanism] = models
        stored = image.scram_secret
        secret = self._own_secret if stored is None else stored.value.encode()
        return decoy(secret, mechanism, name, models)


def _mechanisms(listener: SaslListener, users: _Users) -> Mapping[str, Callable[[str], Mechanism]]:
    found: dict[str, Callable[[str], Mechanism]] = {}
    for name in listener.mechanisms:
        if name == PLAIN:
            found[name] = lambda _: PlainMechanism(listener.passwords)
        elif name in HASHES:
            found[name] = _scram(name, users)
        elif name == BEARER:
            found[name] = partial(_bearer, _verify(listener))
    return found


def _bearer(verify: Verify, nonce: str) -> Mechanism:
    return BearerMechanism(verify)


def _scram(mechanism: str, users: _Users) -> Callable[[str], Mechanism]:
    return lambda nonce: ScramMechanism(
        mechanism,
        lambda name: users.find(mechanism, name),
        lambda name: users.decoy(mechanism, name),
        nonce,
    )


def _verify(listener: SaslListener) -> Verify:
    claims = TokenClaims(
        listener.name_claim, listener.audiences, listener.issuer, listener.clock_skew_ms
    )
    if listener.keys_file is None:
        return UnsecuredTokens(claims)
    require_extra("OAUTHBEARER with signed tokens", "oauth", ["jwt", "cryptography"])
    return _KeysFile(listener.keys_file, claims)


class _KeysFile:
    """Judges tokens by a JWKS file, which is read again when it has changed.

    While it cannot be read the keys before are used.
    """

    def __init__(self, path: str, claims: TokenClaims) -> None:
        self._path = path
        self._claims = claims
        self._mark = mark_of(path)
        self._tokens = self._read()

    def __call__(self, token: str, now_ms: float) -> TokenVerdict:
        """Judge a token. The file is a few KB on this machine, and seldom changes."""
        mark = mark_of(self._path)
        if mark != self._mark:
            self._mark = mark
            try:
                self._tokens = self._read()
                log.info("%s has other keys now", self._path)
            except ConfigError as error:
                log.error("%s; the keys before are used", error)
        return self._tokens(token, now_ms)

    def _read(self) -> SignedTokens:
        try:
            text = Path(self._path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise ConfigError(f"cannot read {self._path}: {reason}") from None
        try:
            return SignedTokens(self._claims, read_keys(text))
        except ConfigError as error:
            raise ConfigError(f"{self._path}: {error}") from None
