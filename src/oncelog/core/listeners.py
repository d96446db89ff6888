"""Finds this broker's listener among the listeners of a Kafka properties file. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from oncelog.core.config_definition import ConfigError

__all__ = ["Endpoint", "Listeners", "parse_listener", "protocols_of"]

PLAINTEXT: Final = "PLAINTEXT"
_OWN_NAMES: Final = {name: name for name in (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")}


class Endpoint(NamedTuple):
    """A listener's address. Host "" is every interface; port 0 is any free port."""

    host: str
    port: int


def parse_listener(key: str, text: str) -> Endpoint:
    """``PLAINTEXT://host:port`` (or ``host:port``) as an `Endpoint`. Raises `ConfigError`."""
    return Listeners(_OWN_NAMES, ()).parse(key, text)


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

    def has(self, name: str, entries: Iterable[str]) -> bool:
        """Whether one of the broker's own entries has this listener name."""
        own = (text for text in entries if not self.is_controllers(text))
        return name.upper() in map(_name, own)

    def only(self, key: str, entries: Iterable[str]) -> Endpoint:
        """The one listener that is not a controller's. Raises `ConfigError`."""
        found = [self.parse(key, text) for text in entries if not self.is_controllers(text)]
        if len(found) != 1:
            raise ConfigError(f"{key} has to name exactly one listener")
        return found[0]

    def parse(self, key: str, text: str) -> Endpoint:
        """``NAME://host:port`` (or ``host:port``) as an `Endpoint`. Raises `ConfigError`."""
        name = _name(text)
        protocol = self._protocols.get(name)
        if protocol is None:
            raise ConfigError(
                f"{key}={text} is not supported: no security protocol is defined for the listener "
                f"{name}, see listener.security.protocol.map"
            )
        if protocol != PLAINTEXT:
            raise ConfigError(
                f"{key}={text} is not supported: listeners other than PLAINTEXT need authentication"
            )
        host, colon, port = text.strip().rpartition("://")[2].rpartition(":")
        if not colon or not port.isdigit() or not 0 <= int(port) <= 65535:
            raise ConfigError(f"Invalid value {text} for configuration {key}: expected HOST:PORT")
        return Endpoint(host.strip("[]"), int(port))


def _name(text: str) -> str:
    scheme, separator, _ = text.strip().rpartition("://")
    return scheme.upper() if separator else PLAINTEXT
