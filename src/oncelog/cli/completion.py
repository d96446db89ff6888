"""``oncelog completion``: what makes the tab key complete commands, options, topics and groups."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click
from click.shell_completion import get_completion_class

from oncelog.cli.output import say
from oncelog.cli.tool import Failure, ToolCommand

__all__ = ["command"]

SHELLS: Final = ("bash", "zsh", "fish")
_VARIABLE: Final = "_ONCELOG_COMPLETE"
_PROGRAM: Final = "oncelog"


@click.command("completion", cls=ToolCommand)
@click.argument("shell", metavar="[bash|zsh|fish]", type=click.Choice(SHELLS), required=False)
@click.option("--install", is_flag=True, help="Set it up for every new shell of yours.")
def command(shell: str | None, install: bool) -> None:
    """Print, or install, the script that has the shell complete commands and topics.

    Without a name it is for the shell in $SHELL.
    """
    name = shell or Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        raise Failure(f"no completion for {name or 'an unknown shell'}: name {', '.join(SHELLS)}")
    if not install:
        click.echo(script(name))
        return
    try:
        path = put(name, Path.home())
    except OSError as error:
        raise Failure(f"cannot write {error.filename}: {error.strerror}") from None
    say(f"{path} is in place: it works in new shells")


def script(shell: str) -> str:
    """Return the script for a shell. Raises `Failure` for a version that is too old."""
    from oncelog.cli.main import main

    found = get_completion_class(shell)
    if found is None:
        raise Failure(f"no completion for {shell}")
    try:
        return found(main, {}, _PROGRAM, _VARIABLE).source()
    except RuntimeError as error:
        raise Failure(str(error)) from None


def put(shell: str, home: Path) -> Path:
    """Write the script where the shell finds it, and tell the shell once."""
    if shell == "fish":
        path = home / ".config" / "fish" / "completions" / f"{_PROGRAM}.fish"
    else:
        path = home / ".local" / "share" / _PROGRAM / f"completion.{shell}"
    text = script(shell)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if shell != "fish":
        _add_line(home / f".{shell}rc", f'. "{path}"')
    return path


def _add_line(path: Path, line: str) -> None:
    text = path.read_text() if path.exists() else ""
    if line in text.splitlines():
        return
    gap = "" if not text or text.endswith("\n") else "\n"
    path.write_text(f"{text}{gap}{line}\n")
