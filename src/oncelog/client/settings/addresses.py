"""Parses the addresses that a client begins at: ``bootstrap_servers``."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["parse_bootstrap_servers"]

PORT_DEFAULT: Final = 9092
PORT_MAX: Final = 65535
_SCHEME: Final = re.compile(r"\w+://")


def parse_bootstrap_servers(servers: str | Sequence[str]) -> list[tuple[str, int]]:
    """Parse ``host:port,host:port``, or a list of such strings.

    Raises `ValueError` for invalid text and `TypeError` for what is no text, in one sentence.
    """
    addresses = []
    for text in (text.strip() for text in _texts(servers)):
        if not text:
            continue
        if scheme := _SCHEME.match(text):
            raise ValueError(f"bootstrap server {text!r} is not host:port: drop {scheme.group()}")
        host, colon, port = text.rpartition(":")
        if not colon or "]" in port:
            host, port = text, str(PORT_DEFAULT)
        if not port.isdigit() or not host or int(port) > PORT_MAX:
            raise ValueError(f"bootstrap server {text!r} is not host:port")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise ValueError("no bootstrap servers given")
    return addresses


def _texts(servers: object) -> Sequence[str]:
    if isinstance(servers, str):
        return servers.split(",")
    if isinstance(servers, Mapping):
        # Not shown: it may have passwords.
        raise TypeError(
            "the address comes first and Kafka's settings second, not one dict: "
            'give ("localhost:9092", {"client.id": "me"})'
        )
    if not isinstance(servers, Sequence | set | frozenset) or isinstance(servers, bytes):
        hint = (
            "its bootstrap_servers"
            if hasattr(type(servers), "bootstrap_servers")
            else "localhost:9092"
        )
        raise TypeError(f"the address must be a str, as {hint}, not {_name(servers)}")
    for text in servers:
        if not isinstance(text, str):
            raise TypeError(f"an address must be a str, as localhost:9092, not {_name(text)}")
    return list(servers)


def _name(given: object) -> str:
    return "None" if given is None else type(given).__name__
