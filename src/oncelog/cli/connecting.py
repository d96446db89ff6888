"""The options of commands that connect to a cluster: its address, and Kafka's client configs.

As in Kafka's tools: ``--bootstrap-server``, and ``--command-config FILE`` with properties; ``-X``
sets one config. The command line takes precedence over the file. Click's context holds the configs,
and `keywords` converts them to a client's options.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from oncelog.cli.logs import logging_options

if TYPE_CHECKING:
    from oncelog.client import Admin, Role

__all__ = ["administrator", "connection_options", "given_setting", "keywords"]

F = TypeVar("F", bound=Callable[..., Any])

ADMIN_TIMEOUT_MS: Final = 20_000
"""How long a command retries after retriable errors of the cluster."""
BOOTSTRAP_DEFAULT: Final = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE: Final = "ONCELOG_BOOTSTRAP_SERVER"
_SETTINGS: Final = "oncelog.client.settings"
_SERVERS: Final = "oncelog.client.servers"
"""Where click's context holds the settings, and the brokers that are among them."""
_GIVEN_BY_THE_FILE: Final = frozenset({"client_id", "timeout_ms", "retry_timeout_ms"})
"""Keywords for which a command has its own value, which the user did not set."""


def connection_options(function: F) -> F:
    """Add the options, those of the log lines too; what is wrong with them is refused here."""
    for option in (logging_options(), _X, _COMMAND_CONFIG, _BOOTSTRAP):
        function = option(function)
    return function


def keywords(role: Role, **own: Any) -> dict[str, Any]:
    """The keywords of a client: the command's `own`, and what the user set.

    A cluster that does not answer is reported at once: a person can repeat the command.
    """
    from oncelog.client import client_options

    context = click.get_current_context(silent=True)
    given = client_options(role, _settings(context) if context is not None else {})
    chosen = {k: v for k, v in given.items() if k not in own or k in _GIVEN_BY_THE_FILE}
    return {"first_contact_ms": 0, **own, **chosen}


def administrator(servers: str, command: str) -> Admin:
    """Return the client of a command that administers the cluster."""
    from oncelog.client import Admin, Role

    own = keywords(Role.ADMIN, client_id=f"oncelog-{command}", timeout_ms=ADMIN_TIMEOUT_MS)
    return Admin(servers, **own)


def given_setting(name: str) -> object:
    """Return a setting that the user gave, by Kafka's name; None if there is none."""
    from oncelog.client.settings.names import PREFIX

    context = click.get_current_context(silent=True)
    return None if context is None else _settings(context).get(f"{PREFIX}{name}")


def _settings(context: click.Context) -> dict[str, Any]:
    found: dict[str, Any] = context.meta.setdefault(_SETTINGS, {})
    return found


def _check_servers(ctx: click.Context, parameter: click.Parameter, text: str) -> str:
    from oncelog.client.settings import parse_bootstrap_servers

    source = ctx.get_parameter_source("servers")
    if source is ParameterSource.DEFAULT and _SERVERS in ctx.meta:
        text = ctx.meta[_SERVERS]
        ctx.set_parameter_source("servers", ParameterSource.DEFAULT_MAP)
    try:
        parse_bootstrap_servers(text)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, parameter) from None
    return text


def _read_file(ctx: click.Context, parameter: click.Parameter, path: str | None) -> None:
    from oncelog.cli.properties import parse_properties
    from oncelog.core.config_definition import ConfigError

    if path is None:
        return
    try:
        found = parse_properties(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise click.BadParameter(f"cannot read {path}: {reason}", ctx, parameter) from None
    except ConfigError as error:
        raise click.BadParameter(str(error), ctx, parameter) from None
    _keep(ctx, {**found, **_settings(ctx)})


def _read_pairs(ctx: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> None:
    pairs = [text.partition("=") for text in texts]
    if any(not separator or not name.strip() for name, separator, _ in pairs):
        raise click.BadParameter("a setting must be like KEY=VALUE", ctx, parameter)
    own = {name.strip(): value.strip() for name, _, value in pairs}
    _keep(ctx, {**_settings(ctx), **own})


def _keep(ctx: click.Context, given: dict[str, Any]) -> None:
    """Keep the settings; file and pairs come in either order, so a client's making checks them.

    With the prefix each is one of Kafka's names, never a keyword of ours.
    """
    from oncelog.client import hide_secrets
    from oncelog.client.settings.names import PREFIX

    named = {PREFIX + name.removeprefix(PREFIX): value for name, value in given.items()}
    servers = named.pop(f"{PREFIX}bootstrap.servers", None)
    if servers:
        ctx.meta[_SERVERS] = servers
    _settings(ctx).update(hide_secrets(named))


_BOOTSTRAP = click.option(
    "--bootstrap-server",
    "servers",
    metavar="HOST:PORT[,...]",
    envvar=BOOTSTRAP_VARIABLE,
    default=BOOTSTRAP_DEFAULT,
    show_default=True,
    callback=_check_servers,
    help=f"The brokers to ask first; also ${BOOTSTRAP_VARIABLE}.",
)
_COMMAND_CONFIG = click.option(
    "--command-config",
    metavar="FILE",
    expose_value=False,
    is_eager=True,  # It may name the brokers, which count where --bootstrap-server is left out.
    callback=_read_file,
    help="Kafka's client settings, as key=value lines: TLS, SASL and more.",
)
_X = click.option(
    "-X",
    metavar="KEY=VALUE",
    multiple=True,
    expose_value=False,
    callback=_read_pairs,
    help="One such setting; repeatable. Others on the machine can see it: keep secrets in a file.",
)
