"""What an unknown command, option or name may mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import click

from oncelog.cli.habits.translate import arguments, command_names, option_names, own_options
from oncelog.core.spelling import nearest

__all__ = ["did_you_mean", "for_command", "for_option"]

GROUPS = (
    "topics",
    "groups",
    "transactions",
    "brokers",
    "configs",
    "features",
    "log",
    "perf",
    "cluster",
    "users",
    "acls",
    "quotas",
)
"""The commands of `oncelog` that have commands, in the order in which these are suggested."""


def did_you_mean(names: Iterable[str]) -> str:
    """The question for a person, "" when there is nothing to suggest."""
    text = " or ".join(names)
    return f"did you mean {text}?" if text else ""


def for_command(ctx: click.Context, word: str) -> str:
    """What to say about an unknown command of this group."""
    deeper = [
        f"`{ctx.command_path} {name} {found}`"
        for name, group in _groups(ctx)
        if (found := command_names(group).get(word)) is not None
    ]
    names = command_names(ctx)
    meant = dict.fromkeys(names[near] for near in nearest(word, names))
    return did_you_mean(deeper or meant) or f"see `{ctx.command_path} --help`"


def for_option(ctx: click.Context, option: str) -> str:
    """What to say about an unknown option of this command or group."""
    names = _option_names(ctx)
    meant = dict.fromkeys(names[near] for near in nearest(option, names))
    if meant:
        return did_you_mean(meant)
    others = [f"`{sibling.command_path}`" for sibling in _siblings(ctx) if _has(sibling, option)]
    if others:
        return f"{' and '.join(others)} {'has' if len(others) == 1 else 'have'} it"
    return f"see `{ctx.command_path} --help`"


def _option_names(ctx: click.Context) -> Mapping[str, str]:
    if isinstance(ctx.command, click.Group):
        return {f"--{name}": found for name, found in command_names(ctx).items()}
    places = arguments(ctx)
    return {
        name: f"`{ctx.command_path} {found}`" if found.split()[-1] in places else found
        for name, found in option_names(ctx).items()
    }


def _groups(ctx: click.Context) -> list[tuple[str, click.Context]]:
    """The groups within `oncelog`, by name; commands are not imported to find them."""
    return _children(ctx, GROUPS) if ctx.parent is None else []


def _siblings(ctx: click.Context) -> list[click.Context]:
    """The other commands of a command's group; none for those of `oncelog` itself."""
    if ctx.parent is None or ctx.parent.parent is None:
        return []
    assert isinstance(ctx.parent.command, click.Group)
    names = ctx.parent.command.list_commands(ctx.parent)
    return [one for name, one in _children(ctx.parent, names) if name != ctx.info_name]


def _children(ctx: click.Context, names: Iterable[str]) -> list[tuple[str, click.Context]]:
    group = ctx.command
    assert isinstance(group, click.Group)
    return [
        (name, click.Context(found, parent=ctx, info_name=name))
        for name in names
        if (found := group.get_command(ctx, name)) is not None
    ]


def _has(ctx: click.Context, option: str) -> bool:
    return option in own_options(ctx)
