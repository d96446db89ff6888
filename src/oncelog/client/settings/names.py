"""Converts Kafka's config names to the keywords of our classes.

`Producer`, `Consumer`, `Admin` and `TransactionDriver` accept both at once::

    Producer("host:9092", {"security.protocol": "SSL"}, linger_ms=5)

A name may carry the prefix ``kafka.``, as Spark's options do. One map may serve several classes:
configs of another class are ignored.
"""

import functools
import inspect
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, ParamSpec, cast

from oncelog.client.settings.configs import ConnectionOptions
from oncelog.client.settings.elsewhere import SETTINGS
from oncelog.client.settings.security import SECRET_NAMES, SECURITY_NAMES, Security
from oncelog.client.settings.table import BY_ROLE, REFUSED, WITHOUT_EFFECT, Role
from oncelog.core.config_definition import ConfigError
from oncelog.core.secret import Secret
from oncelog.core.spelling import nearest

__all__ = ["PREFIX", "Role", "client_options", "hide_secrets", "kafka_names"]

PREFIX: Final = "kafka."
P = ParamSpec("P")

_NAMES: Final = frozenset(name for table in BY_ROLE.values() for name in table) | SECURITY_NAMES
_CLASSES: Final = {
    Role.PRODUCER: "Producer",
    Role.CONSUMER: "Consumer",
    Role.ADMIN: "Admin",
    Role.DRIVER: "TransactionDriver",
}
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
    """Let the constructor of a class accept Kafka's names beside its keywords.

    They come as its argument ``settings``, or as keywords. Raises `ConfigError` and `TypeError` in
    one sentence, for settings and arguments in the style of other clients as well.
    """

    def decorate(construct: Callable[P, None]) -> Callable[P, None]:
        parameters = inspect.signature(construct).parameters.values()
        places = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD][1:]
        known = {each.name for each in parameters} | ConnectionOptions.__annotations__.keys()
        known -= {"self", "settings", "cluster_options"}

        @functools.wraps(construct)
        def constructed(*args: P.args, **kwargs: P.kwargs) -> None:
            myself, *given = args
            options = client_options(role, _together(role, places, given, kwargs))
            for name in options.keys() - known:
                raise TypeError(_unknown(role, name, known))
            if "bootstrap_servers" not in options:
                raise TypeError(f'{_CLASSES[role]} needs an address, as in "localhost:9092"')
            cast("Callable[..., None]", construct)(myself, **options)

        return constructed

    return decorate


def _together(
    role: Role, places: Sequence[str], given: Sequence[object], keywords: Mapping[str, object]
) -> dict[str, object]:
    """Return the arguments of a constructor by name, those in ``settings`` among them."""
    who = _CLASSES[role]
    found = dict(zip(places, given, strict=False))
    if "bootstrap_servers" in found and "bootstrap_servers" in keywords and role is Role.CONSUMER:
        raise TypeError("Consumer takes no topics: give them to subscribe([...]) or assign([...])")
    if len(given) > len(places):
        raise TypeError(f"{who} takes {', '.join(places)}; everything else by its name")
    settings = found.pop("settings", None)
    if settings is None:
        settings = keywords.get("settings", {}) or {}
    if not isinstance(settings, Mapping):
        raise TypeError(
            f'{who} takes a dict of settings after the address, as in {{"client.id": "me"}}, '
            f"not {type(settings).__name__}"
        )
    for others in (keywords, settings):
        for name, value in others.items():
            if name in found:
                raise ConfigError(f"{name} is given twice")
            if name != "settings":
                found[name] = value
    return found


def _unknown(role: Role, name: str, known: Collection[str]) -> str:
    """The sentence for a keyword that a class does not have."""
    dotted = name.replace("_", ".")
    owners = [each for each in BY_ROLE if name in _keywords(each)]
    if name in SETTINGS or dotted in SETTINGS:
        hint = SETTINGS.get(name) or SETTINGS[dotted]
    elif dotted in BY_ROLE[role]:
        hint = f"use {BY_ROLE[role][dotted][0]}"
    elif dotted in SECURITY_NAMES:
        hint = f'use {{"{dotted}": ...}}, after the address'
    elif owners:
        hint = f"it is one of {_CLASSES[owners[0]]}"
    elif dotted in WITHOUT_EFFECT:
        hint = "it has no effect here; leave it out"
    elif near := nearest(name, known):
        hint = f"did you mean {near[0]}?"
    else:
        hint = "settings have Kafka's names, with underscores as keywords"
    return f"{_CLASSES[role]} has no setting {name}: {hint}"


def _keywords(role: Role) -> set[str]:
    return {keyword for keyword, _ in BY_ROLE[role].values()}


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
    if name in SETTINGS:
        raise ConfigError(f"{name} is not a known setting: {SETTINGS[name]}")
    near = nearest(name, _NAMES | WITHOUT_EFFECT)
    hint = (
        f": did you mean {near[0]}?" if near else " of a Kafka client, or not one that is had here"
    )
    raise ConfigError(f"{name} is not a known setting{hint}")
