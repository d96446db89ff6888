"""The commands of docs/cli.md, carried out one after the other as they stand there."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner, Result

from oncelog import EmbeddedBroker
from oncelog.cli.main import main

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "cli.md"
SECTIONS = (
    "Topics",
    "Producing",
    "Consuming",
    "Groups",
    "Settings, brokers and old records",
    "Features",
    "How fast, and whether at all",
)

Oncelog = Callable[..., Result]


class Step(NamedTuple):
    """A line of a shell, and the lines below it."""

    line: str
    output: list[str]


def steps() -> Iterator[Step]:
    text = DOCUMENT.read_text()
    for section in SECTIONS:
        part = text.split(f"\n## {section}\n")[1].split("\n## ")[0]
        for block in re.findall(r"```console\n(.*?)```", part, re.DOTALL):
            for piece in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                line, *output = piece.splitlines()
                yield Step(line, output)


@pytest.fixture
def shell() -> Iterator[Callable[[str], Result | None]]:
    with EmbeddedBroker() as broker:
        environment = {"ONCELOG_BOOTSTRAP_SERVER": broker.bootstrap_servers}

        def call(line: str) -> Result | None:
            """A pipe of commands, each whole before the next begins."""
            result: Result | None = None
            stdin = b""
            for piece in line.split(" | "):
                name, *arguments = shlex.split(piece)
                if name == "printf":
                    stdin = arguments[0].encode().decode("unicode_escape").encode()
                    continue
                assert name == "oncelog", line
                result = CliRunner().invoke(main, arguments, input=stdin, env=environment)
                stdin = result.stdout_bytes
            return result

        yield call


def records(result: Result | None) -> list[tuple[object, ...]]:
    assert result is not None
    found = [json.loads(line) for line in result.stdout.splitlines()]
    return sorted((r["partition"], r["offset"], r.get("key"), r["value"]) for r in found)


@pytest.mark.slow
def test_the_commands_of_the_document_do_what_it_says(
    shell: Callable[[str], Result | None],
) -> None:
    for step in steps():
        if step.output and step.output[-1].endswith("[y/N]:"):
            continue  # It asks at a terminal, and nobody says yes.
        result = shell(step.line)
        assert result is not None
        failed = [text for text in step.output if text.startswith("Error: ")]
        assert (result.exit_code != 0) == bool(failed), (step.line, result.output)
        if failed:
            assert result.stderr.splitlines() == failed


@pytest.mark.slow
def test_the_copy_of_a_topic_holds_the_same_records(
    shell: Callable[[str], Result | None],
) -> None:
    lines = [step.line for step in steps() if "orders-copy" in step.line]
    assert len(lines) == 2
    shell("oncelog topics create orders --partitions 4")
    shell(r"printf 'ann:3 figs\nbob:1 pear\nann:2\n' | oncelog produce orders --key-separator :")
    for line in lines:
        result = shell(line)
        assert result is not None
        assert result.exit_code == 0, result.output
    reading = "oncelog consume {} --from-beginning --until-end --json"
    copied = records(shell(reading.format("orders-copy")))
    assert len(copied) == 3
    assert copied == records(shell(reading.format("orders")))
