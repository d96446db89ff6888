"""Converts Kafka's config names to the keywords of our classes.

`Producer`, `Consumer`, `Admin` and `TransactionDriver` accept both at once::

    Producer("host:9092", linger_ms=5, **{"security.protocol": "SSL"})

A name may carry the prefix ``kafka.``, as Spark's options do. One map may serve several classes:
configs of another class are ignored.
"""

import difflib
import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, ParamSpec

from oncelog.client.settings.security import SECRET_NAMES, SECURITY_NAMES, Security
from oncelog.client.settings.table import BY_ROLE, REFUSED, WITHOUT_EFFECT, Role
from oncelog.core.config_definition import ConfigError
from oncelog.core.secret import Secret

__all__ = ["PREFIX", "Role", "client_options", "hide_secrets", "kafka_names"]

PREFIX: Final = "kafka."
P = ParamSpec("P")

_NAMES: Final = frozenset(name for table in BY_ROLE.values() for name in table) | SECURITY_NAMES
_SECRET_WORDS: Final = ("password", "secret", "token", "jaas", "keystore.key")

log = logging.getLogger("oncelog.client")


def client_options(role: Role, given: Mapping[str, object]) -> dict[str, Any]:
    """Return a class's keywords for `given`: Kafka's names, and keywords unchanged.

    Raises `ConfigError` in one sentence for an unknown name (with the nearest known one), one that
    is not supported here, a bad value, or a config that is given twice.
    """
    options: dict[str, Any] = {name: value for name, value in given.items() if not _is_kafkas(name)}
    security: dict[str, object] = {}
    ignored = []
    for spelled, value in given.items():
        if not _is_kafkas(spelled):
            continue
        name = spelled.removeprefix(PREFIX)
        if name in SECURITY_NAMES:
            security[name] = value
        elif name in BY_ROLE[role]:
            keyword, parse = BY_ROLE[role][name]
            if keyword in options:
                raise ConfigError(f"{name} is given twice")
            options[keyword] = parse(name, value)
        elif name in WITHOUT_EFFECT:
            ignored.append(name)
        else:
            _check_others(name, value)
    if security:
        options["security"] = Security.parse(security)
    if ignored:
        log.info("without effect on this client: %s", ", ".join(sorted(ignored)))
    return options


def hide_secrets(given: Mapping[str, object]) -> dict[str, Any]:
    """The same settings, secret values as `Secret`: safe to keep where they may be shown."""
    return {
        name: Secret(value) if isinstance(value, str) and _is_secret(name) else value
        for name, value in given.items()
    }


def kafka_names(role: Role) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Let the constructor of a class accept Kafka's names beside its keywords."""

    def decorate(construct: Callable[P, None]) -> Callable[P, None]:
        @functools.wraps(construct)
        def constructed(*args: P.args, **kwargs: P.kwargs) -> None:
            options = client_options(role, kwargs) if any(map(_is_kafkas, kwargs)) else kwargs
            if "bootstrap_servers" in options and len(args) > 1:
                raise ConfigError("bootstrap.servers is given twice")
            construct(*args, **options)

        return constructed

    return decorate


def _is_kafkas(name: str) -> bool:
    """Whether it is a name of Kafka's: they have dots, which a keyword cannot have."""
    return "." in name or name == "retries"


def _is_secret(name: str) -> bool:
    name = name.removeprefix(PREFIX).lower()
    return name in SECRET_NAMES or any(word in name for word in _SECRET_WORDS)


def _check_others(name: str, value: object) -> None:
    """Raise `ConfigError` unless it is a setting of another class, with a value that it takes."""
    for table in BY_ROLE.values():
        if name in table:
            table[name][1](name, value)
            return
    if name in REFUSED:
        raise ConfigError(f"{name} cannot be set: {REFUSED[name]}")
    if name.startswith("sasl.kerberos."):
        raise ConfigError(f"{name} cannot be set: GSSAPI is not there")
    near = difflib.get_close_matches(name, sorted(_NAMES | WITHOUT_EFFECT), n=1)
    hint = (
        f": did you mean {near[0]}?" if near else " of a Kafka client, or not one that is had here"
    )
    raise ConfigError(f"{name} is not a known setting{hint}")
