"""Builds TLS and SASL from Kafka's configs.

Names are those of Kafka's Java clients; names of other clients are accepted as listed in `ALIASES`.
Errors name configs, never values of secret ones.
"""

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from oncelog.client.settings.stores import read_store
from oncelog.core.config_definition import ConfigError
from oncelog.core.jaas import Login, parse_jaas
from oncelog.core.sasl import BEARER, MECHANISMS
from oncelog.core.secret import Secret, reveal
from oncelog.peer.sasl.settings import Sasl
from oncelog.runtime.cipher_suites import versions_and_ciphers
from oncelog.runtime.network import Network, SystemNetwork
from oncelog.runtime.pem import Store, pem
from oncelog.runtime.tls import Tls, TlsError

__all__ = ["ALIASES", "SECRET_NAMES", "SECURITY_NAMES", "Security"]

ALIASES: Final = {
    # librdkafka's names, which Python's users write.
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
}

SECRET_NAMES: Final = frozenset(
    {
        "sasl.jaas.config",
        "sasl.password",
        "sasl.oauthbearer.token",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.secret",
        "ssl.key.password",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.password",
    }
)

SECURITY_NAMES: Final = frozenset(
    {
        *ALIASES,
        *SECRET_NAMES,
        "security.protocol",
        "sasl.mechanism",
        "sasl.username",  # this and sasl.password are librdkafka's
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.method",  # librdkafka's
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.extensions",  # librdkafka's
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.token.provider",  # ours, as is sasl.oauthbearer.token
        "ssl.ca.location",  # librdkafka's, as are the next two
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.certificates",
        "ssl.keystore.type",
        "ssl.keystore.location",
        "ssl.keystore.certificate.chain",
        "ssl.endpoint.identification.algorithm",
        "ssl.enabled.protocols",
        "ssl.cipher.suites",
    }
)

_SECURITY_PROTOCOLS: Final = {
    "PLAINTEXT": (False, False),
    "SSL": (True, False),
    "SASL_PLAINTEXT": (False, True),
    "SASL_SSL": (True, True),
}
"""Kafka's names, and whether each has TLS and SASL."""

_STORE_TYPES: Final = ("PEM", "PKCS12", "JKS")


@dataclass(frozen=True, slots=True)
class Security:
    """How to connect to a broker: without either, in plain text and unauthenticated."""

    tls: Tls | None = None
    sasl: Sasl | None = None

    @classmethod
    def parse(cls, given: Mapping[str, object]) -> "Security":
        """Parse configs by Kafka's names (no others). Raises `ConfigError` in one sentence."""
        named = {ALIASES.get(name, name): value for name, value in given.items()}
        protocol = str(named.pop("security.protocol", "PLAINTEXT")).upper()
        if protocol not in _SECURITY_PROTOCOLS:
            known = ", ".join(_SECURITY_PROTOCOLS)
            raise ConfigError(f"security.protocol {protocol!r} must be one of {known}")
        has_tls, has_sasl = _SECURITY_PROTOCOLS[protocol]
        for prefix, is_used in (("ssl.", has_tls), ("sasl.", has_sasl)):
            unused = sorted(name for name in named if name.startswith(prefix))
            if unused and not is_used:
                wanted = "SASL_SSL" if prefix == "sasl." or has_sasl else "SSL"
                raise ConfigError(
                    f"{unused[0]} has no effect with security.protocol={protocol}; set "
                    f"security.protocol={wanted}, or leave it out"
                )
        texts = _Texts(named)
        return cls(_tls(texts) if has_tls else None, _sasl(texts, named) if has_sasl else None)

    def network(self) -> Network:
        """Return the real network, with TLS if configured. Raises `ConfigError`."""
        try:
            return SystemNetwork(self.tls.context() if self.tls is not None else None)
        except TlsError as error:
            raise ConfigError(str(error)) from None


class _Texts:
    """The configs as texts; "" counts as unset."""

    def __init__(self, named: Mapping[str, object]) -> None:
        self._named = named

    def get(self, name: str, default: str | None = None) -> str | None:
        value = self._named.get(name)
        return (
            default if value is None else reveal(value) if isinstance(value, Secret) else str(value)
        )

    def secret(self, name: str) -> Secret | None:
        value = self.get(name)
        return Secret(value) if value else None

    def listed(self, name: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in (self.get(name) or "").split(",") if part.strip())


# --- TLS ------------------------------------------------------------------------------


def _tls(texts: _Texts) -> Tls:
    for name in ("ssl.truststore.type", "ssl.keystore.type"):
        if (kind := texts.get(name, "PEM")) not in _STORE_TYPES:
            raise ConfigError(f"{name} {kind!r} must be one of {', '.join(_STORE_TYPES)}")
    own = _own_certificate(texts)
    if own is not None and (not own.certificates or own.key is None):
        missing = "no private key" if own.certificates else "no certificate"
        raise ConfigError(
            f"the client's certificate is incomplete, {missing} is given: ssl.keystore.location, or"
            " ssl.keystore.certificate.chain with ssl.keystore.key"
        )
    protocols, ciphers = versions_and_ciphers(
        texts.listed("ssl.enabled.protocols"), texts.listed("ssl.cipher.suites")
    )
    return Tls(
        trusted=_trusted(texts),
        certificates=own.certificates if own else None,
        key=own.key if own else None,
        key_password=texts.secret("ssl.key.password"),
        protocols=protocols,
        ciphers=ciphers,
        verify_host=_verifies_host(texts),
    )


def _trusted(texts: _Texts) -> str | None:
    names = ("ssl.truststore.certificates", "ssl.truststore.location", "ssl.ca.location")
    name = _only_one(texts, names)
    if name is None:
        return None
    value = texts.get(name) or ""
    if name.endswith(".certificates"):
        store = pem(name, value)
    else:
        store = read_store(name, value, texts.secret("ssl.truststore.password"))
    if not store.certificates:
        raise ConfigError(f"{name} holds no certificate")
    return store.certificates


def _own_certificate(texts: _Texts) -> Store | None:
    names = ("ssl.keystore.location", "ssl.keystore.certificate.chain", "ssl.certificate.location")
    name = _only_one(texts, names)
    if name is None:
        if texts.get("ssl.keystore.key") or texts.get("ssl.key.location"):
            raise ConfigError("a private key is given, and no certificate (ssl.keystore.*)")
        return None
    value = texts.get(name) or ""
    if name == "ssl.keystore.certificate.chain":
        chain = pem(name, value)
        key = texts.get("ssl.keystore.key")
        return Store(chain.certificates, pem("ssl.keystore.key", key).key if key else None)
    store = read_store(name, value, texts.secret("ssl.keystore.password"))
    if (path := texts.get("ssl.key.location")) is not None:
        return Store(store.certificates, read_store("ssl.key.location", path, None).key)
    return store


def _only_one(texts: _Texts, names: tuple[str, ...]) -> str | None:
    given = [name for name in names if texts.get(name)]
    if len(given) > 1:
        raise ConfigError(f"{given[0]} and {given[1]} exclude each other")
    return given[0] if given else None


def _verifies_host(texts: _Texts) -> bool:
    name = "ssl.endpoint.identification.algorithm"
    value = (texts.get(name, "https") or "none").strip().lower() or "none"
    if value not in ("https", "none"):
        raise ConfigError(f"{name} {value!r} must be https, or empty for no check")
    return value == "https"


# --- SASL -----------------------------------------------------------------------------


def _sasl(texts: _Texts, named: Mapping[str, object]) -> Sasl:
    mechanism = (texts.get("sasl.mechanism") or "").upper()
    if mechanism not in MECHANISMS:
        known = ", ".join(MECHANISMS)
        what = f"sasl.mechanism {mechanism!r} is not" if mechanism else "sasl.mechanism must be"
        raise ConfigError(f"{what} one of {known}; GSSAPI and AWS_MSK_IAM are not there")
    jaas = texts.get("sasl.jaas.config")
    login = parse_jaas(jaas, mechanism) if jaas else Login()
    if mechanism == BEARER:
        source = _token_source(texts, login, named.get("sasl.oauthbearer.token.provider"))
        return Sasl(mechanism, token=source, extensions=_extensions(texts, login))
    username = texts.get("sasl.username") or login.options.get("username")
    password = texts.get("sasl.password") or login.options.get("password")
    if not username or password is None:
        missing = "sasl.password" if username else "sasl.username"
        raise ConfigError(f"{missing} is missing for {mechanism} (or name it in sasl.jaas.config)")
    return Sasl(mechanism, username, Secret(password))


def _token_source(texts: _Texts, login: Login, provider: object) -> Callable[[], Secret]:
    # Imports an HTTP client, which few need.
    from oncelog.peer.sasl.tokens import ClientCredentials, FileToken

    if provider is not None:
        return _Provider(provider if callable(provider) else _import(str(provider)))
    if token := texts.secret("sasl.oauthbearer.token"):
        return _Given(token)
    url = texts.get("sasl.oauthbearer.token.endpoint.url")
    if not url:
        raise ConfigError(
            "OAUTHBEARER needs one of sasl.oauthbearer.token, sasl.oauthbearer.token.provider and "
            "sasl.oauthbearer.token.endpoint.url"
        )
    if url.startswith("file:"):
        return FileToken(re.sub(r"^file:(//(localhost)?(?=/))?", "", url))
    prefix = "sasl.oauthbearer.client.credentials.client."
    client_id = texts.get(f"{prefix}id") or login.options.get("clientId")
    client_secret = texts.get(f"{prefix}secret") or login.options.get("clientSecret")
    if not url.startswith(("https://", "http://")) or not client_id or not client_secret:
        raise ConfigError(
            "sasl.oauthbearer.token.endpoint.url must be https:// (with "
            f"{prefix}id and {prefix}secret) or file://"
        )
    scope = texts.get("sasl.oauthbearer.scope") or login.options.get("scope")
    return ClientCredentials(url, client_id, Secret(client_secret), scope)


def _extensions(texts: _Texts, login: Login) -> tuple[tuple[str, str], ...]:
    pairs = {
        name.removeprefix("extension_"): value
        for name, value in login.options.items()
        if name.startswith("extension_")
    }
    for part in texts.listed("sasl.oauthbearer.extensions"):
        name, separator, value = part.partition("=")
        if not separator:
            raise ConfigError("sasl.oauthbearer.extensions must be like name=value,name=value")
        pairs[name.strip()] = value.strip()
    for name, value in pairs.items():
        if not re.fullmatch("[A-Za-z]+", name) or name == "auth" or not value.isprintable():
            raise ConfigError(f"the SASL extension {name!r} has a forbidden name or value")
    return tuple(pairs.items())


def _import(text: str) -> Callable[[], object]:
    """The function that ``package.module:function`` names."""
    module, separator, name = text.partition(":")
    try:
        found = getattr(importlib.import_module(module), name) if separator else None
    except (ImportError, AttributeError, ValueError):
        found = None
    if not callable(found):
        raise ConfigError(
            f"sasl.oauthbearer.token.provider {text!r} must be like package.module:function"
        )
    result: Callable[[], object] = found
    return result


@dataclass(frozen=True, slots=True)
class _Given:
    token: Secret

    def __call__(self) -> Secret:
        return self.token


@dataclass(frozen=True, slots=True)
class _Provider:
    function: Callable[[], object]

    def __call__(self) -> Secret:
        token = self.function()
        if not isinstance(token, str):
            raise ConfigError("sasl.oauthbearer.token.provider must return the token as a str")
        return Secret(token)
