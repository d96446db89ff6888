"""``oncelog features``: the feature levels of a cluster, as in Apache's `kafka-features`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from oncelog.cli.connecting import administrator, connection_options
from oncelog.cli.output import Column, print_rows
from oncelog.cli.tool import ToolGroup, json_option, parse_pairs, run
from oncelog.core.limits import INT16_MAX

if TYPE_CHECKING:
    from oncelog.client import FeatureLevels
    from oncelog.client.feature_admin import FeatureChange

__all__ = ["command"]

F = TypeVar("F", bound=Callable[..., Any])

_COLUMNS: Final = (
    Column("feature", "Feature", style="cyan"),
    Column("min_supported", "Supported from", numeric=True),
    Column("max_supported", "To", numeric=True),
    Column("finalized", "Finalized", numeric=True, style="bold"),
    Column("epoch", "Epoch", numeric=True),
)
_CHANGED: Final = (
    Column("feature", "Feature", style="cyan"),
    Column("before", "From", numeric=True),
    Column("level", "To", numeric=True, style="bold"),
    Column("state", "Outcome"),
)


@click.group("features", cls=ToolGroup)
def command() -> None:
    """Show, upgrade and downgrade levels of features."""


@command.command("describe")
@click.option(
    "--node-id", type=click.IntRange(0), metavar="N", help="Which broker to ask; any otherwise."
)
@connection_options
@json_option()
def describe_command(node_id: int | None, servers: str, as_json: bool) -> None:
    """Show which levels are supported, and which are finalized; 0 is off."""

    async def work() -> dict[str, FeatureLevels]:
        async with administrator(servers, "features") as admin:
            return await admin.describe_features(node_id)

    rows = list(run(work, servers).values())
    print_rows(_COLUMNS, rows, as_json=as_json, empty="this cluster has no features")


def _change_options(function: F) -> F:
    """Add the options that upgrade and downgrade share."""
    function = click.option("--dry-run", is_flag=True, help="Have it checked, and change nothing.")(
        function
    )
    return click.option(
        "--feature",
        "features",
        metavar="NAME=LEVEL",
        multiple=True,
        required=True,
        help="A feature and its new level (transaction.version=2); repeatable.",
    )(function)


@command.command("upgrade")
@_change_options
@connection_options
@json_option()
def upgrade_command(features: tuple[str, ...], dry_run: bool, servers: str, as_json: bool) -> None:
    """Raise levels: all of them, or none."""
    _change(features, "upgrade", servers, dry_run=dry_run, as_json=as_json)


@command.command("downgrade")
@_change_options
@click.option("--unsafe", is_flag=True, help="Even if metadata of the higher level is destroyed.")
@connection_options
@json_option()
def downgrade_command(
    features: tuple[str, ...], dry_run: bool, unsafe: bool, servers: str, as_json: bool
) -> None:
    """Lower levels: all of them, or none. Level 0 switches a feature off."""
    change: FeatureChange = "unsafe downgrade" if unsafe else "downgrade"
    _change(features, change, servers, dry_run=dry_run, as_json=as_json)


def _change(
    features: Iterable[str], change: FeatureChange, servers: str, *, dry_run: bool, as_json: bool
) -> None:
    levels = _levels(features)

    async def work() -> dict[str, FeatureLevels]:
        async with administrator(servers, "features") as admin:
            before = await admin.describe_features()
            await admin.update_features(levels, change, dry_run=dry_run)
            return before

    before = run(work, servers)
    state = "can be changed" if dry_run else "changed"
    rows = [
        (name, before[name].finalized if name in before else None, level, state)
        for name, level in levels.items()
    ]
    print_rows(_CHANGED, rows, as_json=as_json)


def _levels(features: Iterable[str]) -> dict[str, int]:
    """The levels of ``NAME=LEVEL`` texts. Raises `click.BadParameter`."""
    texts = list(features)
    pairs = parse_pairs("--feature", texts)
    if len(pairs) < len(texts):
        raise click.BadParameter("a feature is named twice", param_hint="--feature")
    levels = {}
    for name, text in pairs.items():
        is_number = text.isascii() and text.isdigit() and len(text) <= len(str(INT16_MAX))
        if not is_number or int(text) > INT16_MAX:
            hint = f"the level of {name}, {text[:20]!r}, is no number from 0 to {INT16_MAX}"
            raise click.BadParameter(hint, param_hint="--feature")
        levels[name] = int(text)
    return levels
