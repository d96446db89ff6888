"""``oncelog quotas``: what users and clients may use, as `kafka-configs` has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from oncelog.cli.connecting import administrator, connection_options
from oncelog.cli.output import Column, print_rows, print_text
from oncelog.cli.tool import Failure, ToolGroup, json_option, run
from oncelog.core.quotas import DEFAULT, QUOTA_KEYS, ClientQuotaEntity

__all__ = ["command"]

F = TypeVar("F", bound=Callable[..., Any])

_EACH: Final = "<default>"
_COLUMNS: Final = (
    Column("user", "User", style="cyan"),
    Column("client_id", "Client id", style="cyan"),
    Column("key", "Quota"),
    Column("value", "Value", numeric=True),
)


@click.group("quotas", cls=ToolGroup)
def command() -> None:
    """List, set and remove quotas of users and clients."""


def _entity_options(function: F) -> F:
    for option, text in (
        ("--client-id", "A client id; with --user: of that user."),
        ("--user", "A user."),
    ):
        function = click.option(option, metavar="NAME", help=text)(function)
        what = option.removeprefix("--")
        function = click.option(
            f"--each-{what}", is_flag=True, help=f"Each {what} that has no quota by its name."
        )(function)
    return function


@command.command("set")
@click.argument("values", metavar="KEY=VALUE...", nargs=-1, required=True)
@_entity_options
@connection_options
def set_command(
    values: tuple[str, ...],
    user: str | None,
    each_user: bool,
    client_id: str | None,
    each_client_id: bool,
    servers: str,
) -> None:
    """Set quotas, each a key of Kafka's and a number: producer_byte_rate=1048576."""
    entity = _entity(user, each_user, client_id, each_client_id)
    wanted = dict(map(_pair, values))
    _alter(entity, wanted, servers)
    print_text(f"the quotas of {entity} have changed")


@command.command("remove")
@click.argument("keys", metavar="[KEY...]", nargs=-1)
@_entity_options
@connection_options
def remove_command(
    keys: tuple[str, ...],
    user: str | None,
    each_user: bool,
    client_id: str | None,
    each_client_id: bool,
    servers: str,
) -> None:
    """Remove quotas of these keys; without any all of them."""
    entity = _entity(user, each_user, client_id, each_client_id)
    known = run(lambda: _asked(servers), servers).get(entity, {})
    missing = [key for key in keys if key not in known]
    if missing or not known:
        raise Failure(f"{entity} has no quota {missing[0] if missing else ''}".rstrip())
    _alter(entity, dict.fromkeys(keys or known), servers)
    print_text(f"removed from {entity}: {', '.join(keys or sorted(known))}")


@command.command("list")
@connection_options
@json_option()
def list_command(servers: str, as_json: bool) -> None:
    """List all quotas, the most precise first."""
    found = run(lambda: _asked(servers), servers)
    rows = [
        (_shown(entity.user), _shown(entity.client_id), key, _number(value))
        for entity, values in sorted(found.items(), key=lambda each: _order(each[0]))
        for key, value in sorted(values.items())
    ]
    print_rows(_COLUMNS, rows, as_json=as_json, empty="there are no quotas")


def _order(entity: ClientQuotaEntity) -> tuple[object, ...]:
    """Place an entity as a broker looks for it."""
    names = entity.user, entity.client_id
    return tuple((name is None, name == DEFAULT, name or "") for name in names)


def _shown(name: str | None) -> str:
    if name is None:
        return "-"
    return _EACH if name == DEFAULT else name


def _number(value: float) -> int | str:
    return int(value) if value.is_integer() else str(value)


def _entity(
    user: str | None, each_user: bool, client_id: str | None, each_client_id: bool
) -> ClientQuotaEntity:
    names = []
    for option, name, is_each in (
        ("user", user, each_user),
        ("client-id", client_id, each_client_id),
    ):
        if name is not None and is_each:
            raise Failure(f"--{option} and --each-{option} exclude each other")
        if name == "":
            raise Failure(f"--{option} is empty: --each-{option} is for all without a quota")
        names.append(DEFAULT if is_each else name)
    if names == [None, None]:
        raise Failure("whose? name --user, --client-id, --each-user or --each-client-id")
    return ClientQuotaEntity(*names)


def _pair(text: str) -> tuple[str, float]:
    key, equals, value = text.partition("=")
    if key not in QUOTA_KEYS:
        raise Failure(f"{key} is no quota: it is one of {', '.join(QUOTA_KEYS)}")
    try:
        if equals:
            return key, float(value)
    except ValueError:
        pass
    raise Failure(f"{text} is no KEY=VALUE with a number")


def _alter(entity: ClientQuotaEntity, values: Mapping[str, float | None], servers: str) -> None:
    async def work() -> None:
        async with administrator(servers, "quotas") as admin:
            await admin.alter_client_quotas({entity: values})

    run(work, servers)


async def _asked(servers: str) -> dict[ClientQuotaEntity, dict[str, float]]:
    async with administrator(servers, "quotas") as admin:
        return await admin.describe_client_quotas()
