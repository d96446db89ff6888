"""What the configs of a listener with SASL say: mechanisms, users of PLAIN, whose tokens. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

from oncelog.core.config_definition import (
    ConfigError,
    ConfigValue,
    as_bool,
    as_int,
    as_list,
    as_str,
)
from oncelog.core.jaas import parse_jaas
from oncelog.core.sasl import BEARER, HASHES, MECHANISMS, PLAIN
from oncelog.core.secret import Secret

__all__ = ["BrokerLogin", "SaslListener", "broker_login", "sasl_listener"]

_UNSECURED: Final = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured."
    "OAuthBearerUnsecuredValidatorCallbackHandler"
)
_USER: Final = "user_"
_KEYS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
_BROKERS_MECHANISM: Final = "sasl.mechanism.inter.broker.protocol"
_BROKERS_MECHANISMS: Final = (PLAIN, *HASHES)

ValueOf = Callable[[str, str], ConfigValue]
"""The value of a key for a mechanism ("": for all) on one listener."""


@dataclass(frozen=True, slots=True)
class SaslListener:
    """The configs of one listener, checked."""

    mechanisms: tuple[str, ...]
    sessions_ms: Mapping[str, int]
    """`connections.max.reauth.ms` by mechanism."""
    passwords: Mapping[str, Secret] = field(repr=False)
    """Of the users of PLAIN."""
    keys_file: str | None
    """The JWKS file; None: tokens are not signed, or OAUTHBEARER is not enabled."""
    name_claim: str
    audiences: tuple[str, ...]
    issuer: str | None
    clock_skew_ms: int


@dataclass(frozen=True, slots=True)
class BrokerLogin:
    """Who a broker is to the other brokers."""

    mechanism: str
    username: str
    password: Secret


def broker_login(prefix: str, mechanisms: tuple[str, ...], value_of: ValueOf) -> BrokerLogin:
    """Return how a broker logs in at the listener of others. Raises `ConfigError`.

    As in Kafka it is in the login line of the listener's own mechanism, beside the users of PLAIN.
    """
    mechanism = value_of(_BROKERS_MECHANISM, "")
    known = ", ".join(_BROKERS_MECHANISMS)
    if mechanism is None:
        raise ConfigError(
            f"{_BROKERS_MECHANISM} has to name how brokers log in at each other's "
            f"{prefix[:-1]}: one of {known}; or name a listener without SASL by "
            "inter.broker.listener.name"
        )
    if mechanism not in _BROKERS_MECHANISMS:
        raise ConfigError(
            f"{_BROKERS_MECHANISM}={mechanism} is not supported: it is none of {known}"
        )
    name = as_str(mechanism)
    if name not in mechanisms:
        raise ConfigError(
            f"{_BROKERS_MECHANISM} must be included in sasl.enabled.mechanisms when SASL is used "
            "for inter-broker communication"
        )
    options = _login_options(prefix, name, value_of) or {}
    if not options.get("username") or not options.get("password"):
        raise ConfigError(
            f"{_login_key(prefix, name)} has to name the user that this broker is to the others, "
            'as username="broker" password="password"'
        )
    return BrokerLogin(name, options["username"], Secret(options["password"]))


def _login_key(prefix: str, mechanism: str) -> str:
    return f"{prefix}{mechanism.lower()}.sasl.jaas.config"


def _login_options(prefix: str, mechanism: str, value_of: ValueOf) -> dict[str, str] | None:
    """Return the options of a mechanism's login line; None where there is none."""
    text = value_of("sasl.jaas.config", mechanism)
    if text is None:
        return None
    try:
        return parse_jaas(as_str(text), mechanism).options
    except ConfigError as error:
        raise ConfigError(f"{_login_key(prefix, mechanism)}: {error}") from None


def sasl_listener(prefix: str, value_of: ValueOf) -> SaslListener:
    """Return the configs of the listener whose keys begin with `prefix`. Raises `ConfigError`."""
    mechanisms = as_list(value_of("sasl.enabled.mechanisms", ""))
    known = ", ".join(MECHANISMS)
    if not mechanisms:
        raise ConfigError(
            f"sasl.enabled.mechanisms has to name mechanisms for {prefix[:-1]}: of {known}"
        )
    if unknown := [name for name in mechanisms if name not in MECHANISMS]:
        raise ConfigError(
            f"sasl.enabled.mechanisms={','.join(mechanisms)} is not supported: {unknown[0]} is "
            f"none of {known}"
        )
    issuer = value_of("sasl.oauthbearer.expected.issuer", "")
    keys_file = _keys_file(prefix, value_of) if BEARER in mechanisms else None
    if keys_file is not None:
        _check_claims(value_of)
    return SaslListener(
        mechanisms,
        {name: as_int(value_of("connections.max.reauth.ms", name)) for name in mechanisms},
        _passwords(prefix, value_of) if PLAIN in mechanisms else {},
        keys_file,
        as_str(value_of("sasl.oauthbearer.sub.claim.name", "")),
        as_list(value_of("sasl.oauthbearer.expected.audience", "") or ()),
        None if issuer is None else as_str(issuer),
        as_int(value_of("sasl.oauthbearer.clock.skew.seconds", "")) * 1000,
    )


def _passwords(prefix: str, value_of: ValueOf) -> dict[str, Secret]:
    options = _login_options(prefix, PLAIN, value_of) or {}
    found = {
        name.removeprefix(_USER): Secret(password)
        for name, password in options.items()
        if name.startswith(_USER)
    }
    if not found or not all(map(len, found)) or Secret("") in found.values():
        key = _login_key(prefix, PLAIN)
        raise ConfigError(f'{key} has to name the users of PLAIN, as user_alice="password"')
    return found


def _keys_file(prefix: str, value_of: ValueOf) -> str | None:
    handler = value_of("sasl.server.callback.handler.class", BEARER)
    if handler == _UNSECURED:
        return None
    if handler is not None:
        raise ConfigError(
            f"{prefix}oauthbearer.sasl.server.callback.handler.class={handler} is not supported: a "
            "Java class cannot be loaded"
        )
    url = value_of(_KEYS_URL, "")
    if url is None:
        raise ConfigError(
            f"OAUTHBEARER needs {_KEYS_URL}=file:///..., the keys that sign tokens; for tokens "
            f"that are not signed set {prefix}oauthbearer.sasl.server.callback.handler.class="
            f"{_UNSECURED}"
        )
    parts = urlsplit(as_str(url))
    if parts.scheme != "file" or parts.netloc or not parts.path:
        raise ConfigError(f"{_KEYS_URL}={url} is not supported: only file:///path/of/a/file is")
    return unquote(parts.path)


def _check_claims(value_of: ValueOf) -> None:
    """Check that tokens are verified to be from the right issuer, and for this cluster."""
    for claim, what in (
        ("audience", "signed tokens have to be for this cluster"),
        ("issuer", "signed tokens have to be of one issuer"),
    ):
        expected, allowed = (
            f"sasl.oauthbearer.expected.{claim}",
            f"sasl.oauthbearer.allow.unverified.{claim}",
        )
        if not value_of(expected, "") and not as_bool(value_of(allowed, "")):
            raise ConfigError(f"{what}: set {expected}, or {allowed}=true to take those of any")
