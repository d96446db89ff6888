"""The common parts of commands that connect to a cluster: options, errors, event loop.

An error that the user can act on ends in **one line** on standard error that says what to do, and
in exit code 2 for misuse of the command line, 1 for all others. The client library is imported when
a command runs, so that help is printed at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from oncelog.cli.habits import hints
from oncelog.cli.habits.hints import did_you_mean
from oncelog.cli.habits.table import SHARED
from oncelog.cli.habits.translate import Advice, to_command, to_options
from oncelog.cli.output import painted
from oncelog.core.spelling import nearest

if TYPE_CHECKING:
    from oncelog.client import Admin, TopicDescription
    from oncelog.core.errors import OncelogError

__all__ = [
    "ConfigChanges",
    "Failure",
    "ToolCommand",
    "ToolGroup",
    "ask",
    "config_options",
    "data_dir_option",
    "discard_stdout",
    "is_asked",
    "json_option",
    "parse_pairs",
    "reason_of",
    "require_topic",
    "run",
    "stop_on_sigterm",
    "unknown_topic",
]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

MISUSE: Final = 2
SENTENCE_LENGTH_MAX: Final = 200
"""Click shortens longer first sentences of a command's help in the list of commands."""


class Failure(click.ClickException):
    """An error whose message is one sentence: what is wrong, and what to do."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(" ".join(message.split()))
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it from the instance

    def show(self, file: Any = None) -> None:
        """One red line on standard error; plain when that is not a terminal."""
        click.echo(painted(f"Error: {self.message}", fg="red"), err=True)


class ToolCommand(click.Command):
    """A command that knows the spellings of Kafka's tools, and whose misuse is one line too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does, but a `UsageError` becomes a `Failure`."""
        try:
            return super().parse_args(ctx, _translated(to_options, ctx, args))
        except click.UsageError as error:
            raise _misuse(ctx, error) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click does, but first the command's own options, then those of most commands."""
        own: list[tuple[str, str]] = []
        shared: list[tuple[str, str]] = []
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx) if isinstance(option, click.Option) else None
            if record is not None:
                is_shared = not {*SHARED}.isdisjoint(option.opts) and "--json" not in option.opts
                (shared if is_shared else own).append(record)
        for title, records in (("Options", own), ("Options of most commands", shared)):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def invoke(self, ctx: click.Context) -> Any:
        """As click does, but what a command finds wrong with its options is a `Failure`."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise _misuse(ctx, error) from None


class ToolGroup(click.Group):
    """A group of such commands."""

    command_class = ToolCommand

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does, but an unknown option of the group becomes a `Failure`."""
        try:
            return super().parse_args(ctx, _translated(to_command, ctx, args))
        except click.UsageError as error:
            raise _misuse(ctx, error) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click does, but with the whole first sentence of each command's help."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, command.get_short_help_str(SENTENCE_LENGTH_MAX))
                    for name, command in commands
                    if command is not None
                ]
            )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but an unknown command becomes a `Failure` with the nearest names."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if args[0].startswith("-"):
                raise _misuse(ctx, error) from None
            hint = hints.for_command(ctx, args[0])
            raise Failure(f"no such command {args[0]}: {hint}", MISUSE) from None


def _translated(
    translate: Callable[[click.Context, list[str]], list[str]], ctx: click.Context, args: list[str]
) -> list[str]:
    """The arguments in our own words; completion reads those that the table refuses as they are."""
    try:
        return translate(ctx, args)
    except Advice:
        if not ctx.resilient_parsing:
            raise
        return args


def _misuse(ctx: click.Context, error: click.UsageError) -> Exception:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error
    if isinstance(error, Advice):
        return Failure(error.format_message(), MISUSE)
    if isinstance(error, click.NoSuchOption):
        hint = hints.for_option(ctx, error.option_name)
        return Failure(f"no such option {error.option_name}: {hint}", MISUSE)
    text = error.format_message().rstrip(".").replace("\n", " ")
    return Failure(f"{text} (see `{ctx.command_path} --help`)", MISUSE)


def json_option(help_text: str = "Print JSON, one object per line.") -> Callable[[F], F]:
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help=help_text)


def data_dir_option(function: F) -> F:
    """Add ``--data-dir``, of commands that work on a broker that does not run, too."""
    return click.option(
        "--data-dir",
        "directories",
        metavar="DIR",
        multiple=True,
        type=click.Path(file_okay=False),
        help="The log directory of a broker that does not run, not its address; repeatable.",
    )(function)


def parse_pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    """The ``KEY=VALUE`` texts of a repeatable option. Raises `click.BadParameter`."""
    pairs = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint=option)
        pairs[key.strip()] = value.strip()
    return pairs


def config_options(function: F) -> F:
    """Add ``--config`` and ``--delete-config``; `ConfigChanges.of` reads them."""
    function = click.option(
        "--delete-config",
        "deleted",
        metavar="KEY",
        multiple=True,
        help="Give a setting back to its default; repeatable.",
    )(function)
    return click.option(
        "--config",
        "configs",
        metavar="KEY=VALUE",
        multiple=True,
        help="One setting (retention.ms=60000); repeatable.",
    )(function)


class ConfigChanges(NamedTuple):
    """Settings to set, and those to give back to their defaults."""

    to_set: dict[str, str]
    to_delete: tuple[str, ...]

    @staticmethod
    def of(configs: Iterable[str], deleted: tuple[str, ...]) -> ConfigChanges:
        """Build it from the options. Raises `click.UsageError` for one that is in both."""
        to_set = parse_pairs("--config", configs)
        twice = sorted(set(to_set) & set(deleted))
        if twice:
            raise click.UsageError(f"{twice[0]} is both set and deleted")
        return ConfigChanges(to_set, deleted)

    def __bool__(self) -> bool:
        """Whether there is anything to change."""
        return bool(self.to_set or self.to_delete)

    def __str__(self) -> str:
        """Describe the result to a person."""
        changes = [f"{key}={value}" for key, value in self.to_set.items()]
        return ", ".join(changes + [f"{key} back to the default" for key in self.to_delete])


def run(work: Callable[[], Coroutine[Any, Any, T]], servers: str) -> T:
    """Run `work` on a loop of its own. Raises `Failure` for everything a person can act on.

    A signal that ended it raises `click.exceptions.Exit` with the shell's exit code for it.
    """
    from oncelog.core.errors import OncelogError
    from oncelog.runtime.loop import new_event_loop

    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(work())
    except OncelogError as error:
        raise explain(error, servers) from None
    except KeyboardInterrupt:
        raise click.exceptions.Exit(128 + signal.SIGINT) from None
    except asyncio.CancelledError:
        raise click.exceptions.Exit(128 + signal.SIGTERM) from None


def ask(question: str) -> None:
    """Ask a person at the terminal; a no is a `Failure`, and Ctrl-C ends the command at once.

    An event loop that runs would only cancel its task on Ctrl-C, and the prompt would stay.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        click.echo(err=True)
        raise click.exceptions.Exit(128 + signal.SIGINT) from None
    finally:
        signal.signal(signal.SIGINT, before)
    if not agreed:
        raise Failure("nothing was changed")


def is_asked(*, yes: bool) -> bool:
    """Whether to ask: there is a terminal, and the option did not answer."""
    return not yes and sys.stdin.isatty() and sys.stderr.isatty()


def stop_on_sigterm() -> None:
    """Let SIGTERM cancel the running task, as SIGINT does: it can put things in order first."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


def explain(error: OncelogError, servers: str) -> Failure:
    """The sentence for an error of the client's."""
    from oncelog.client import (
        AuthenticationError,
        ClientError,
        ConnectionLostError,
        DeliveryTimeoutError,
        FencedError,
        RetriableError,
    )
    from oncelog.core.errors import ErrorCode

    if isinstance(error, ConnectionLostError):
        hint = "is it running? Start one with `oncelog serve`, or name another: --bootstrap-server"
        return Failure(
            f"no broker answers at {servers} ({reason_of(error.message, servers)}): {hint}"
        )
    if not isinstance(error, ClientError):
        return Failure(str(error))
    name = error.code.name.upper()
    if isinstance(error, AuthenticationError):
        return Failure(error.message)
    if isinstance(error, FencedError) or error.code is ErrorCode.invalid_producer_epoch:
        return Failure(
            f"another producer with this transactional id took over, or it timed out ({name})"
        )
    if error.code is ErrorCode.unknown_topic_or_partition:
        return Failure(f"unknown topic {error.message}: see `oncelog topics list`")
    if error.code is ErrorCode.unsupported_version:
        return Failure(f"the broker at {servers} cannot do this: {error.message}")
    if isinstance(error, DeliveryTimeoutError):
        return Failure(f"no acknowledgement in time, it may or may not be in the topic ({name})")
    if error.code is ErrorCode.message_too_large:
        return Failure(f"the record is larger than the topic's max.message.bytes ({name})")
    if isinstance(error, RetriableError):
        return Failure(
            f"the cluster could not do this in time ({name}: {error.message}); try again"
        )
    return Failure(f"{error.message or 'refused'} ({name})")


def reason_of(text: str, servers: str) -> str:
    """Why a broker at `servers` was not reached, without what the caller says itself."""
    return text.removeprefix("no broker answers: ").removeprefix(f"{servers}: ")


async def require_topic(admin: Admin, name: str, *, hint: str = "") -> TopicDescription:
    """The topic, or a `Failure` that suggests the nearest names."""
    from oncelog.client import FatalError
    from oncelog.core.errors import ErrorCode

    try:
        return await admin.describe_topic(name)
    except FatalError as error:
        if error.code is not ErrorCode.unknown_topic_or_partition:
            raise
        raise await unknown_topic(admin, name, hint) from None


async def unknown_topic(admin: Admin, name: str, hint: str = "") -> Failure:
    """The failure for a topic that does not exist."""
    names = nearest(name, await admin.list_topics())
    advice = [text for text in (did_you_mean(names), hint) if text]
    return Failure(f"unknown topic {name}: {' '.join(advice) or 'see `oncelog topics list`'}")


def discard_stdout() -> None:
    """Drop buffered output after a closed pipe, so that the exit does not raise again."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)
