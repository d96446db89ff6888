"""Rewrites a command line of Kafka's tools, kcat or rpk to ours, by `table`.

It changes nothing that click would accept, and leaves everything behind ``--`` alone. What has an
answer of its own raises `Advice`; what is unknown stays, so that click, or `hints`, refuses it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import click

from oncelog.cli.habits.table import (
    ANSWERS,
    COMMANDS,
    FILES,
    MANY,
    NOTHING,
    OPTIONS,
    PAIRS,
    SHARED,
    VALUES,
    WITH_PARTITIONS,
    Answer,
    Either,
)

__all__ = [
    "Advice",
    "arguments",
    "command_names",
    "option_names",
    "own_options",
    "to_command",
    "to_options",
]

T = TypeVar("T")

COMMAS: Final = re.compile(r",(?![^\[]*\])")
"""Between values; a list in brackets is one value, as in Kafka's tools."""

LIST: Final = re.compile(r"=\[(.*)\]$")


class Advice(click.UsageError):
    """A spelling that is not understood, whose message says what to type instead."""


# --- commands -------------------------------------------------------------------------


def to_command(ctx: click.Context, args: Sequence[str]) -> list[str]:
    """The arguments of a group, begun by one of its commands if the table knows what is meant."""
    if not args or args[0] in own_options(ctx):
        return list(args)
    at = _place_of_command(ctx, args)
    if at is None:
        return list(args)
    before, rest = list(args[:at]), list(args[at + 1 :])
    found = _meaning(ctx, args[at], args)
    if isinstance(found, Answer):
        raise Advice(f"no {args[at]} here: {found.text}", ctx)
    words = found.split()
    if words[0].startswith("-"):
        return [*before, *rest, *words]
    return [*words, *before, *rest]


def command_names(ctx: click.Context) -> dict[str, str]:
    """What may be typed for a command of this group, and the command."""
    names = {name: name for name in _commands(ctx)}
    for word, found in _entries(ctx).items():
        if not word.startswith("-") and isinstance(found, str) and not found.startswith("-"):
            names.setdefault(word, found)
        elif isinstance(found, Either):
            names.setdefault(word, found.otherwise)
    return names


def _place_of_command(ctx: click.Context, args: Sequence[str]) -> int | None:
    """Where the command stands: behind shared options, or as an option among others."""
    at = 0
    while at < len(args) and (takes_value := _shared(args[at])) is not None:
        at += 2 if takes_value else 1
    if at < len(args) and args[at] in own_options(ctx):
        return None
    if at < len(args) and not args[at].startswith("-"):
        return at
    if args[0] != "--":
        for place, word in enumerate(args):
            if word.startswith("-") and _meaning(ctx, word, args) != word:
                return place
    return None


def _shared(word: str) -> bool | None:
    """Whether this shared option needs the next word as its value; None if it is no such option."""
    name, equals, _ = word.partition("=")
    if name.startswith("-X") and name != "-X":
        return False
    for known in (name, *OPTIONS[""].get(name, ())):
        if known in SHARED:
            return SHARED[known] and not equals
    return None


def _meaning(ctx: click.Context, word: str, args: Sequence[str]) -> str | Answer:
    """The words for it here; `word` itself if there are none."""
    known, entries = _commands(ctx), _entries(ctx)
    bare = word.removeprefix("--").removeprefix("kafka-").removesuffix(".sh").removesuffix(".bat")
    if bare in known:
        return bare
    found = entries.get(word) or entries.get(bare)
    if isinstance(found, Either):
        return found.words if found.options & set(args) else found.otherwise
    return found or word


def _entries(ctx: click.Context) -> dict[str, str | Either | Answer]:
    """The table's entries for this group; those for any group if they name a command of it."""
    path = _path(ctx)
    if not path:
        return dict(COMMANDS[""])
    known = _commands(ctx)
    anywhere = {
        word: found
        for word, found in COMMANDS["*"].items()
        if isinstance(found, Answer) or found in known
    }
    return anywhere | dict(COMMANDS.get(path, {}))


def _commands(ctx: click.Context) -> list[str]:
    assert isinstance(ctx.command, click.Group)
    return ctx.command.list_commands(ctx)


def _path(ctx: click.Context) -> str:
    """The command's words behind `oncelog`."""
    words = []
    while ctx.parent is not None:
        words.append(ctx.info_name or "")
        ctx = ctx.parent
    return " ".join(reversed(words))


# --- options --------------------------------------------------------------------------


def to_options(ctx: click.Context, args: Sequence[str]) -> list[str]:
    """The arguments of a command with its own names of options, values and arguments."""
    return _Line(ctx).rewritten(args)


def option_names(ctx: click.Context) -> dict[str, str]:
    """What may be typed for an option of this command, and the option or argument."""
    own, places = own_options(ctx), arguments(ctx)
    names = {
        name: name
        for name, option in own.items()
        if name.startswith("--") and not option.hidden and name != "--help"
    }
    for path in reversed(_paths(ctx)):
        for name, targets in OPTIONS.get(path, {}).items():
            for target in targets:
                last = target.split()[-1]
                if name.startswith("--") and (last in own or last in places):
                    names.setdefault(name, target)
                    break
    return names


def own_options(ctx: click.Context) -> dict[str, click.Option]:
    """The command's options, by each of their names."""
    return {
        name: option
        for option in ctx.command.get_params(ctx)
        if isinstance(option, click.Option)
        for name in (*option.opts, *option.secondary_opts)
    }


def arguments(ctx: click.Context) -> dict[str, click.Argument]:
    """The command's arguments, in its order, by their names in the help: TOPIC, GROUP."""
    return {
        found.make_metavar(ctx).strip("[].").replace("]", ""): found
        for found in ctx.command.params
        if isinstance(found, click.Argument)
    }


def _paths(ctx: click.Context) -> list[str]:
    """The keys of the table for a command, the most special last."""
    words = _path(ctx).split()
    return [" ".join(words[:count]) for count in range(len(words) + 1)]


class _Line:
    """One command line while it is rewritten."""

    def __init__(self, ctx: click.Context) -> None:
        self._ctx = ctx
        self._own = own_options(ctx)
        self._arguments = arguments(ctx)
        self._paths = _paths(ctx)
        self._flags: list[str] = []
        """They stand first, so that an option's own value comes after the one that a flag gives."""
        self._out: list[str] = []
        self._bare_at: list[int] = []
        """Where words without an option stand in `_out`."""
        self._placed: dict[str, list[str]] = {}
        """Values of arguments that came as options."""

    def rewritten(self, args: Sequence[str]) -> list[str]:
        words = deque(args)
        while words:
            word = words.popleft()
            if word == "--":
                words.appendleft(word)
                break
            if word.startswith("-") and word != "-":
                self._take_option(word, words)
            else:
                self._take_bare(word)
        return [*self._flags, *self._in_order(), *words]

    def _take_bare(self, word: str) -> None:
        file_option = FILES.get(self._paths[-1])
        if file_option is not None and word.endswith(".properties"):
            self._out += [file_option, word]
            return
        names = list(self._arguments)
        if names:
            place = names[min(len(self._bare_at), len(names) - 1)]
            word = self._value(place, word) or word
        self._bare_at.append(len(self._out))
        self._out.append(word)

    def _in_order(self) -> list[str]:
        """The words, with arguments that came as options in the command's order at the end."""
        if not self._placed:
            return self._out
        bare = deque(self._out[at] for at in self._bare_at)
        options = [word for at, word in enumerate(self._out) if at not in self._bare_at]
        found: list[str] = []
        for name in self._arguments:
            if name in self._placed:
                found += self._placed[name]
            elif bare:
                found.append(bare.popleft())
        return [*options, *found, *bare]

    def _take_option(self, word: str, words: deque[str]) -> None:
        name, equals, value = _split(word, self._is_known)
        given = [value] if equals else []
        pairs = next((found[name] for found in self._sections(PAIRS) if name in found), None)
        answer = self._answer(name)
        target = self._target(name)
        if name in self._own:
            if not equals and not self._is_flag(name) and words:
                given = [words.popleft()]
            self._put(name, given, is_joined=bool(equals))
        elif name in self._nothing():
            return
        elif pairs is not None:
            self._put_pair(name, pairs, value if equals else _next(words))
        elif answer is not None:
            text = answer.text.format(value=value if equals else _next(words) or "...")
            raise Advice(f"no {name} here: {text}", self._ctx)
        elif target is None:
            self._out.append(word)
        else:
            self._take_other_name(name, target, given, words)

    def _take_other_name(self, name: str, target: str, given: list[str], words: deque[str]) -> None:
        *before, last = target.split()
        for one in before:
            if one.startswith("-"):
                self._flags.append(one)
            else:
                self._placed.setdefault(next(iter(self._arguments)), []).append(one)
        if not given and words and not (last in self._own and self._is_flag(last)):
            given = [words.popleft()]
            while name in MANY and words and "=" in words[0] and not words[0].startswith("-"):
                given.append(words.popleft())
        self._put(last, _separate(given) if name in MANY else given, is_joined=False)

    def _put(self, target: str, values: Sequence[str], *, is_joined: bool) -> None:
        """Write the values of an option or an argument."""
        for given in _separate(values) if target in MANY else values:
            value = self._value(target, given)
            if value is None:
                continue
            if target == WITH_PARTITIONS[0] and WITH_PARTITIONS[1] in self._own:
                value, _, numbers = value.partition(":")
                for number in filter(None, numbers.split(",")):
                    self._out += [WITH_PARTITIONS[1], number]
            if target == "-X" and value.startswith("bootstrap.servers="):
                self._out += ["--bootstrap-server", value.partition("=")[2]]
            elif target not in self._own:
                self._placed.setdefault(target, []).append(value)
            elif is_joined and target.startswith("--"):
                self._out.append(f"{target}={value}")
            else:
                self._out += [target, value]
        if not values:
            self._out.append(target)

    def _put_pair(self, name: str, pairs: Mapping[str, str | Answer], text: str) -> None:
        key, _, value = text.partition("=")
        found = pairs.get(key)
        if found is None:
            raise Advice(f"no {name} {key} here: it may be {', '.join(pairs)}", self._ctx)
        if isinstance(found, Answer):
            raise Advice(f"no {name} {key} here: {found.text.format(value=value)}", self._ctx)
        if "=" in found or self._is_flag(found):
            if value.lower() == "true":
                self._flags.append(found)
        else:
            self._out += [found, value]

    def _value(self, target: str, given: str) -> str | None:
        """What a value is called here, None for nothing."""
        found = VALUES.get(target, {}).get(given, given)
        if isinstance(found, Answer):
            raise Advice(f"no {target} {given} here: {found.text}", self._ctx)
        return found

    def _is_flag(self, name: str) -> bool:
        option = self._own[name]
        return option.is_flag or option.count

    def _is_known(self, name: str) -> bool:
        return (
            name in self._own
            or name in self._nothing()
            or self._answer(name) is not None
            or self._target(name) is not None
            or any(name in found for found in self._sections(PAIRS))
        )

    def _nothing(self) -> frozenset[str]:
        return NOTHING.get(self._paths[-1], frozenset())

    def _answer(self, name: str) -> Answer | None:
        return next((found[name] for found in self._sections(ANSWERS) if name in found), None)

    def _target(self, name: str) -> str | None:
        for found in self._sections(OPTIONS):
            for target in found.get(name, ()):
                last = target.split()[-1]
                if last in self._own or last in self._arguments:
                    return target
        return None

    def _sections(self, table: Mapping[str, T]) -> Iterator[T]:
        """The entries of this command, then those of its groups."""
        return (table[path] for path in reversed(self._paths) if path in table)


def _split(word: str, is_known: Callable[[str], bool]) -> tuple[str, str, str]:
    """(name, "=" if a value is joined to it, the value) of ``--name=value``, -name, -nVALUE."""
    name, equals, value = word.partition("=")
    if word.startswith("--") or len(name) == 2:
        return name, equals, value
    if is_known(f"-{name}"):
        return f"-{name}", equals, value
    return (word, "", "") if is_known(word) else (word[:2], "=", word[2:])


def _separate(values: Sequence[str]) -> list[str]:
    """The values between commas, without the brackets around a list."""
    found = [one for value in values for one in COMMAS.split(value)]
    return [LIST.sub(r"=\1", one) for one in found]


def _next(words: deque[str]) -> str:
    return words.popleft() if words and not words[0].startswith("-") else ""
