"""A terminal in this process: the commands of ``oncelog``, in pipes and with what they print."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from click.testing import CliRunner

from oncelog.cli.main import main
from tests.support.root_logger import root_logger_as_before

__all__ = ["Printed", "Terminal"]

COLUMNS: Final = 120
FILTERS: Final = frozenset({"sort"})
"""What may stand in a pipe beside ``printf`` and ``oncelog``."""


class Printed(NamedTuple):
    """What a line of the shell printed on the terminal, and its exit code."""

    text: str
    exit_code: int


class _Runner(CliRunner):
    """Click's runner with streams that are terminals; standard output may be a pipe instead."""

    def __init__(self, *, to_pipe: bool) -> None:
        super().__init__()
        self._to_pipe = to_pipe

    @contextmanager
    def isolation(self, *given: Any, **named: Any) -> Iterator[Any]:
        with super().isolation(*given, **named) as streams:
            terminals = [sys.stdin, sys.stderr, *([] if self._to_pipe else [sys.stdout])]
            for stream in terminals:
                vars(stream)["isatty"] = lambda: True
            yield streams


class Terminal:
    """Runs lines of a shell one after the other; `environment` is that of the commands."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = {
            **environment,
            "COLUMNS": str(COLUMNS),
            "LINES": "50",
            "NO_COLOR": "1",
            "TERM": "dumb",
        }

    def run(self, line: str) -> Printed:
        """Run a line: a command, or several in a pipe, each whole before the next begins."""
        shown, stdin, code = "", b"", 0
        commands = line.split(" | ")
        for place, command in enumerate(commands):
            words = shlex.split(command, comments=True)
            if words[0] == "printf":
                stdin = words[1].encode().decode("unicode_escape").encode()
            elif words[:2] == ["oncelog", "simulate"]:
                return self._process(words[1:])
            elif words[0] == "oncelog":
                result = self._oncelog(words[1:], stdin, to_pipe=place + 1 < len(commands))
                shown += result.stderr if place + 1 < len(commands) else result.output
                stdin, code = result.stdout_bytes, result.exit_code or code
            else:
                assert words[0] in FILTERS, line
                done = subprocess.run(words, input=stdin, capture_output=True, check=True)
                shown = shown.replace(stdin.decode(), "") + done.stdout.decode()
        return Printed(shown, code)

    def _process(self, words: list[str]) -> Printed:
        """A command that forks, which a process with threads does better not."""
        command = [sys.executable, "-m", "oncelog", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return Printed(done.stdout + done.stderr, done.returncode)

    def _oncelog(self, words: list[str], stdin: bytes, *, to_pipe: bool) -> Any:
        # Options of its own name in the environment, so that a block may leave addresses out.
        with root_logger_as_before():
            return _Runner(to_pipe=to_pipe).invoke(
                main, words, input=stdin, env=self._environment, auto_envvar_prefix="ONCELOG"
            )
