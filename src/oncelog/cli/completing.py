"""Completes names that the cluster knows, beside commands and options.

The user waits for the completion, so a cluster that does not reply within a second is ignored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import click

from oncelog.cli.connecting import administrator
from oncelog.cli.tool import run

if TYPE_CHECKING:
    from oncelog.client import Admin

__all__ = [
    "complete_groups",
    "complete_resources",
    "complete_topics",
    "complete_transactional_ids",
]

PATIENCE_S: Final = 1.0


def complete_topics(ctx: click.Context, parameter: click.Parameter, start: str) -> list[str]:
    """Return the topics with this prefix; internal ones only after an underscore."""
    return [
        name
        for name in _asked(ctx, _topics)
        if name.startswith(start) and (start or not name.startswith("__"))
    ]


def complete_groups(ctx: click.Context, parameter: click.Parameter, start: str) -> list[str]:
    """Return the groups with this prefix."""
    return [name for name in _asked(ctx, _groups) if name.startswith(start)]


def complete_transactional_ids(
    ctx: click.Context, parameter: click.Parameter, start: str
) -> list[str]:
    """Return the transactional ids with this prefix."""
    return [name for name in _asked(ctx, _transactional_ids) if name.startswith(start)]


def complete_resources(ctx: click.Context, parameter: click.Parameter, start: str) -> list[str]:
    """Return the resources with this prefix, as `oncelog acls` names them."""
    kind, colon, begun = start.partition(":")
    if not colon:
        return [
            word for word in (*(f"{each}:" for each in _NAMED), "cluster") if word.startswith(kind)
        ]
    complete = _NAMED.get(kind)
    return (
        [] if complete is None else [f"{kind}:{name}" for name in complete(ctx, parameter, begun)]
    )


_NAMED: Final = {
    "topic": complete_topics,
    "group": complete_groups,
    "transactional-id": complete_transactional_ids,
}


async def _topics(admin: Admin) -> list[str]:
    return sorted(await admin.list_topics())


async def _groups(admin: Admin) -> list[str]:
    return [one.group_id for one in await admin.list_groups()]


async def _transactional_ids(admin: Admin) -> list[str]:
    return [one.transactional_id for one in await admin.list_transactions()]


def _asked(ctx: click.Context, ask: Callable[[Admin], Awaitable[list[str]]]) -> list[str]:
    servers: str | None = ctx.params.get("servers")
    if servers is None:
        return []

    async def work() -> list[str]:
        async with asyncio.timeout(PATIENCE_S), administrator(servers, "completion") as admin:
            return await ask(admin)

    try:
        # The context carries the settings of the connection.
        with ctx.scope(cleanup=False):
            return run(work, servers)
    except (click.ClickException, TimeoutError):
        return []
