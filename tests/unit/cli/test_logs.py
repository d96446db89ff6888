"""Log lines of a command: which, and in which form."""

from __future__ import annotations

import json
import logging

import click
import pytest
from click.testing import CliRunner

from oncelog.cli.logs import StderrHandler, logging_options
from oncelog.cli.main import COMMANDS, main


@pytest.fixture(autouse=True)
def _no_level_of_ours() -> None:
    logging.getLogger("oncelog").setLevel(logging.NOTSET)  # Another test may have set it.


@click.command()
@logging_options("info")
def command() -> None:
    log = logging.getLogger("oncelog.sample")
    log.debug("fine print")
    log.info("said %d times", 2)
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("it failed")


def lines(*arguments: str) -> list[str]:
    result = CliRunner().invoke(command, list(arguments))
    assert result.exit_code == 0
    return result.stderr.splitlines()


def test_lines_are_text_unless_told_otherwise() -> None:
    first, *_ = lines()
    assert first.endswith(" INFO oncelog.sample: said 2 times")


def test_json_is_one_object_per_line() -> None:
    said, failed = map(json.loads, lines("--log-format", "json"))
    assert said.pop("time").endswith("Z")
    assert said == {"level": "INFO", "logger": "oncelog.sample", "message": "said 2 times"}
    assert failed["exception"].endswith("ValueError: broken")


def test_a_level_leaves_out_what_is_below_it() -> None:
    assert len(lines("--log-level", "error", "--log-format", "json")) == 1
    assert len(lines("--log-format", "json", "--log-level", "DEBUG")) == 3


def test_a_terminal_that_is_gone_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(click, "echo", gone)
    StderrHandler().emit(logging.makeLogRecord({"msg": "late"}))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_with_h(name: str) -> None:
    short = CliRunner().invoke(main, [name, "-h"])
    long = CliRunner().invoke(main, [name, "--help"])
    assert short.exit_code == 0, short.output
    assert "-h, --help" in short.stdout
    assert short.stdout == long.stdout
