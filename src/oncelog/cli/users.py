"""``oncelog users``: who may log in by SCRAM, as `kafka-configs --entity-type users` has it.

The first users are added before the broker runs, by its log directory; later ones at the broker.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from oncelog.cli.connecting import administrator, connection_options
from oncelog.cli.output import Column, print_rows, print_text
from oncelog.cli.tool import Failure, ToolGroup, data_dir_option, json_option, run
from oncelog.core.sasl import HASHES
from oncelog.core.secret import Secret
from oncelog.core.security_limits import SCRAM_ITERATIONS_MIN, SCRAM_STORED_ITERATIONS_MAX

if TYPE_CHECKING:
    from oncelog.client.user_admin import Alteration
    from oncelog.controller.image import MetadataImage

__all__ = ["command"]

_Row = tuple[str, str, int]

_COLUMNS: Final = (
    Column("user", "User", style="cyan"),
    Column("mechanism", "Mechanism"),
    Column("iterations", "Iterations", numeric=True),
)
_MECHANISM: Final = click.Choice(tuple(HASHES), case_sensitive=False)


@click.group("users", cls=ToolGroup)
def command() -> None:
    """List, add and remove users that log in by SCRAM."""


@command.command("add")
@click.argument("user")
@click.option("--mechanism", type=_MECHANISM, default="SCRAM-SHA-512", show_default=True)
@click.option(
    "--iterations",
    type=click.IntRange(SCRAM_ITERATIONS_MIN, SCRAM_STORED_ITERATIONS_MAX),
    default=SCRAM_ITERATIONS_MIN,
    show_default=True,
    metavar="N",
    help="How long a guess of the password takes, and a login at the client.",
)
@click.option(
    "--password-file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Its first line is the password. Otherwise standard input has it.",
)
@data_dir_option
@connection_options
def add_command(
    user: str,
    mechanism: str,
    iterations: int,
    password_file: str | None,
    directories: tuple[str, ...],
    servers: str,
) -> None:
    """Add a user, or give it another password."""
    from oncelog.client import ScramCredentialInfo, UserScramCredentialUpsertion

    info = ScramCredentialInfo(mechanism, iterations)
    password = _password(password_file)
    _alter([UserScramCredentialUpsertion(user, info, password)], directories, servers)
    print_text(f"{user} can log in by {mechanism}")


@command.command("remove")
@click.argument("user")
@click.option("--mechanism", type=_MECHANISM, help="Only the credential of this one.")
@data_dir_option
@connection_options
def remove_command(
    user: str, mechanism: str | None, directories: tuple[str, ...], servers: str
) -> None:
    """Remove a user: all its credentials, or that of one mechanism."""
    from oncelog.client import UserScramCredentialDeletion

    known = [row[1] for row in _rows(directories, servers, user)]
    if not known or (mechanism is not None and mechanism not in known):
        by = f" by {mechanism}" if mechanism else ""
        raise Failure(f"no user {user} can log in{by}: see `oncelog users list`")
    for each in known if mechanism is None else [mechanism]:
        # A request may change a user once.
        _alter([UserScramCredentialDeletion(user, each)], directories, servers)
        print_text(f"{user} cannot log in by {each} any more")


@command.command("list")
@data_dir_option
@connection_options
@json_option()
def list_command(directories: tuple[str, ...], servers: str, as_json: bool) -> None:
    """List who can log in, and how; passwords are shown nowhere."""
    rows = _rows(directories, servers)
    print_rows(_COLUMNS, rows, as_json=as_json, empty="there are no users")


def _password(file: str | None) -> Secret:
    """Return the password of a file, of a person at the terminal, or of standard input."""
    if file is not None:
        try:
            text = Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise Failure(f"cannot read the password in {file}: it is no UTF-8 text") from None
    elif sys.stdin.isatty():
        text = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        text = sys.stdin.readline()
    first = text.splitlines()[0] if text else ""
    if not first:
        raise Failure("the password is empty: name --password-file, or give it to standard input")
    return Secret(first)


def _alter(alterations: Sequence[Alteration], directories: tuple[str, ...], servers: str) -> None:
    if directories:
        _alter_stopped(alterations, directories)
        return

    async def work() -> None:
        async with administrator(servers, "users") as admin:
            await admin.alter_user_scram_credentials(alterations)

    run(work, servers)


def _alter_stopped(alterations: Sequence[Alteration], directories: tuple[str, ...]) -> None:
    from oncelog.broker.apis.alter_user_scram_credentials import event_of
    from oncelog.broker.controller.stopped import decide_stopped
    from oncelog.cli.stopped import on_stopped
    from oncelog.client.user_admin import alteration_request

    event = event_of(alteration_request(alterations), random.SystemRandom())
    outcomes = on_stopped(directories, lambda store, known: decide_stopped(store, known, event))
    for outcome in outcomes:
        if outcome.error:
            named = f"{outcome.user}: " if outcome.user else ""
            raise Failure(f"{named}{outcome.message} ({outcome.error.name.upper()})")


def _rows(directories: tuple[str, ...], servers: str, user: str | None = None) -> list[_Row]:
    """Return the credentials of a user, or of all."""
    if directories:
        from oncelog.broker.controller.stopped import read_stopped
        from oncelog.cli.stopped import on_stopped

        found = _stored(on_stopped(directories, read_stopped))
    else:
        found = run(lambda: _asked(servers), servers)
    return [row for row in found if user in (None, row[0])]


def _stored(image: MetadataImage) -> list[_Row]:
    return [
        (user, mechanism, one.iterations)
        for user, credentials in sorted(image.scram_credentials.items())
        for mechanism, one in credentials.items()
    ]


async def _asked(servers: str) -> list[_Row]:
    async with administrator(servers, "users") as admin:
        found = await admin.describe_user_scram_credentials()
    return [(user, *info) for user, infos in sorted(found.items()) for info in infos]
