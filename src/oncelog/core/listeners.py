"""Finds this broker's listeners among those of a Kafka properties file. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Final, NamedTuple

from oncelog.core.config_definition import ConfigError

__all__ = [
    "LISTENER_PREFIX",
    "PLAINTEXT",
    "SSL",
    "Endpoint",
    "ListenerConfig",
    "Listeners",
    "RegisteredListener",
    "inter_broker_listener",
    "parse_listener",
    "protocols_of",
]

LISTENER_PREFIX: Final = "listener.name."
"""Keys that begin with it and a listener's name in lower case are of that listener alone."""

PLAINTEXT: Final = "PLAINTEXT"
SSL: Final = "SSL"
SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
SASL_SSL: Final = "SASL_SSL"
_OWN_NAMES: Final = {name: name for name in (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)}


class Endpoint(NamedTuple):
    """A listener's address. Host "" is every interface; port 0 is any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class ListenerConfig(NamedTuple):
    """One listener of this broker; its name is in upper case."""

    name: str
    protocol: str
    bound: Endpoint
    """Where it listens."""
    advertised: Endpoint | None
    """Where clients and brokers reach it; None: where it listens."""
    is_advertised: bool
    """Whether they are told of it at all."""

    @property
    def has_tls(self) -> bool:
        """Whether its connections are encrypted."""
        return self.protocol in (SSL, SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """Whether its clients authenticate by SASL."""
        return self.protocol in (SASL_PLAINTEXT, SASL_SSL)

    @property
    def prefix(self) -> str:
        """The beginning of the keys that are of this listener alone."""
        return f"{LISTENER_PREFIX}{self.name.lower()}."


class RegisteredListener(NamedTuple):
    """A listener as a broker has registered it."""

    endpoint: Endpoint
    protocol: str


def parse_listener(key: str, text: str) -> Endpoint:
    """``PLAINTEXT://host:port`` (or ``host:port``) as an `Endpoint`. Raises `ConfigError`."""
    return _endpoint(key, text) if _name(text) == PLAINTEXT else _refuse(key, text)


def _refuse(key: str, text: str) -> Endpoint:
    raise ConfigError(
        f"{key}={text} is not supported: only plain text is spoken there, expected HOST:PORT"
    )


def protocols_of(entries: Iterable[str]) -> dict[str, str]:
    """Protocol by listener, from `listener.security.protocol.map`. Raises `ConfigError`."""
    found = {}
    for entry in entries:
        name, colon, protocol = entry.partition(":")
        if not colon or not name.strip() or not protocol.strip():
            raise ConfigError(
                f"Invalid value {entry} for configuration listener.security.protocol.map: "
                "expected NAME:PROTOCOL"
            )
        found[name.strip().upper()] = protocol.strip().upper()
    return found or _OWN_NAMES


class Listeners:
    """Reads entries of `listeners`, knowing each name's protocol and which are a controller's."""

    def __init__(self, protocols: Mapping[str, str], controllers: Iterable[str]) -> None:
        self._protocols = protocols
        self._controllers = frozenset(name.upper() for name in controllers)

    def is_controllers(self, text: str) -> bool:
        """Whether an entry is a controller's listener, which this broker does not open."""
        return _name(text) in self._controllers

    def own(
        self, entries: tuple[str, ...], advertised: tuple[str, ...] | None
    ) -> tuple[ListenerConfig, ...]:
        """The listeners that are not a controller's, in order. Raises `ConfigError`."""
        bound = self._endpoints("listeners", entries)
        if not bound:
            raise ConfigError("listeners has to name at least one listener of a broker")
        _check_ports(",".join(entries), bound.values())
        told = None if advertised is None else self._advertised(advertised, bound)
        return tuple(
            ListenerConfig(
                name,
                self._protocols[name],
                endpoint,
                None if told is None else told.get(name),
                told is None or name in told,
            )
            for name, endpoint in bound.items()
        )

    def _endpoints(self, key: str, entries: tuple[str, ...]) -> dict[str, Endpoint]:
        found: dict[str, Endpoint] = {}
        for text in entries:
            if self.is_controllers(text):
                continue
            name = self._served(key, text)
            if name in found:
                listed = ",".join(entries)
                raise ConfigError(
                    f"Each listener must have a different name, {key}: {listed}; give each a name "
                    "in listener.security.protocol.map"
                )
            found[name] = _endpoint(key, text)
        return found

    def _served(self, key: str, text: str) -> str:
        """Return the name of an entry's listener, whose protocol is served."""
        name = _name(text)
        protocol = self._protocols.get(name)
        if protocol is None:
            raise ConfigError(
                f"{key}={text} is not supported: no security protocol is defined for the listener "
                f"{name}, see listener.security.protocol.map"
            )
        if protocol not in _OWN_NAMES:
            raise ConfigError(
                f"{key}={text} is not supported: the protocol of a listener is one of "
                f"{', '.join(_OWN_NAMES)}"
            )
        return name

    def _advertised(
        self, entries: tuple[str, ...], bound: Mapping[str, Endpoint]
    ) -> dict[str, Endpoint]:
        key = "advertised.listeners"
        found = self._endpoints(key, entries)
        if not found.keys() <= bound.keys():
            raise ConfigError(
                f"{key} listener names must be equal to or a subset of the ones defined in "
                f"listeners. Found {','.join(found)}. The valid options based on the current "
                f"configuration are {','.join(bound)}"
            )
        if not found:
            raise ConfigError(f"{key} has to name at least one listener of a broker")
        if any(endpoint.host == "0.0.0.0" for endpoint in found.values()):
            raise ConfigError(
                f"{key} cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address."
            )
        return found


def inter_broker_listener(
    listeners: Iterable[ListenerConfig], name: str | None, protocol: str | None
) -> str:
    """The name of the listener by which brokers reach each other. Raises `ConfigError`.

    `name` and `protocol` are the values of `inter.broker.listener.name` and
    `security.inter.broker.protocol`. Without both it is the one that is advertised, or PLAINTEXT.
    """
    if name and protocol:
        raise ConfigError(
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be "
            "set."
        )
    told = [listener.name for listener in listeners if listener.is_advertised]
    wanted = (name or protocol or (told[0] if len(told) == 1 else PLAINTEXT)).upper()
    if wanted not in told:
        raise ConfigError(
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. "
            f"The valid options based on currently configured listeners are {','.join(told)}"
        )
    return wanted


def _check_ports(listed: str, endpoints: Iterable[Endpoint]) -> None:
    """Check that no two listen at one port, but for an IPv4 and an IPv6 address (KIP-797)."""
    hosts_by_port: dict[int, list[str]] = {}
    for host, port in endpoints:
        hosts_by_port.setdefault(port, []).append(host)
    for port, hosts in hosts_by_port.items():
        if port == 0 or len(hosts) == 1:
            continue
        versions = [version for host in hosts if (version := _ip_version(host))]
        names_count = len(hosts) - len(versions)
        if names_count > 1:
            raise ConfigError(f"Each listener must have a different port, listeners: {listed}")
        if len(versions) == 2:
            if names_count or set(versions) != {4, 6}:
                raise ConfigError(
                    "If you have two listeners on the same port then one needs to be IPv4 and the "
                    f"other IPv6, listeners: {listed}, port: {port}"
                )
        else:
            raise ConfigError(
                "Each listener must have a different port unless exactly one listener has an IPv4 "
                f"address and the other IPv6 address, listeners: {listed}, port: {port}"
            )


def _ip_version(host: str) -> int | None:
    try:
        return ip_address(host).version
    except ValueError:
        return None


def _endpoint(key: str, text: str) -> Endpoint:
    host, colon, port = text.strip().rpartition("://")[2].rpartition(":")
    if not colon or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise ConfigError(f"Invalid value {text} for configuration {key}: expected HOST:PORT")
    return Endpoint(host.strip("[]"), int(port))


def _name(text: str) -> str:
    scheme, separator, _ = text.strip().rpartition("://")
    return scheme.upper() if separator else PLAINTEXT
