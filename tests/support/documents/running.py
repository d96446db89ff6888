"""Somebody who carries out the blocks of a document, from its beginning to its end."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, chdir, nullcontext, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Final, NamedTuple

import yaml  # type: ignore[import-untyped]  # mkdocs brings it, without stubs

from oncelog import EmbeddedBroker
from oncelog.cli.properties import parse_properties
from oncelog.core.config import BrokerConfig
from tests.support.documents.blocks import ROOT, Block, blocks, listing_of
from tests.support.documents.comparing import matches
from tests.support.documents.scenes import SCENES
from tests.support.documents.terminal import Printed, Terminal
from tests.support.peer.child import free_port

__all__ = ["Difference", "differences"]

SHORTER: Final = {
    "--runs 500": "--runs 2 --duration 1",
    "--runs 200": "--runs 2 --duration 1",
    "--seed 42": "--seed 42 --duration 1",
}
"""What takes long as it stands -> what is carried out instead."""
_ADDRESS: Final = re.compile(r"127\.0\.0\.1:\d+")
_STEP: Final = re.compile(r"^\$ ", re.MULTILINE)


class Difference(NamedTuple):
    """A block that does not say what happens, and the text with which it would."""

    block: Block
    text: str


def differences(document: str, folder: Path) -> list[Difference]:
    """Carry out a document's blocks in a folder; the blocks that say something else.

    Raises what a block raises that does not run.
    """
    with ExitStack() as stack:
        reader = _Reader(stack, folder)
        found = []
        for block in blocks(document):
            text = block.text if listing_of(block) else reader.carry_out(block)
            if text != block.text:
                found.append(Difference(block, text))
        return found


class _Reader:
    """A folder, a broker for the commands, and what the last Python block printed."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack = stack
        self._folder = folder
        for name in ("tests", "examples"):
            (folder / name).symlink_to(ROOT / name)
        metrics = f"127.0.0.1:{free_port()}"
        config = {"oncelog.metrics.address": metrics}
        broker = stack.enter_context(EmbeddedBroker(config=config))
        self._servers = broker.bootstrap_servers
        self._environment = {
            "HOME": str(folder),
            "SHELL": "/bin/bash",
            "ONCELOG_BOOTSTRAP_SERVER": self._servers,
            "ONCELOG_METRICS_ADDRESS": metrics,
        }
        self._printed = ""

    def carry_out(self, block: Block) -> str:
        """The block's text as it should be. Raises what keeps it from running."""
        with chdir(self._folder), self._scene(block) as environment:
            terminal = Terminal(self._environment | environment)
            match block.language:
                case "python":
                    self._python(block)
                case "text" if block.follows:
                    return block.text if matches(block.text, self._printed) else self._printed
                case "console":
                    return "".join(self._steps(block, terminal))
                case "sh":
                    for line in block.text.replace("\\\n", " ").splitlines():
                        printed = self._run(line, terminal)
                        assert printed.exit_code == 0, f"{block}: {line}: {printed.text}"
                case "properties":
                    BrokerConfig(parse_properties(block.text))
                case "pyi":
                    ast.parse(block.text)
                case "yaml":
                    assert yaml.safe_load(block.text), str(block)
                case _:
                    raise AssertionError(f"{block}: neither runs nor stands in listed.toml")
        return block.text

    def _scene(self, block: Block) -> AbstractContextManager[dict[str, str]]:
        for (document, begins), scene in SCENES.items():
            if document == block.document and block.text.startswith(begins):
                return scene(self._folder)
        return nullcontext({})

    def _python(self, block: Block) -> None:
        names = {"servers": self._servers, "password": "secret", "__name__": "example"}
        code = compile("\n" * block.line + block.text, block.document, "exec")
        with redirect_stdout(StringIO()) as printed:
            exec(code, names)
        self._printed = printed.getvalue()

    def _steps(self, block: Block, terminal: Terminal) -> Iterator[str]:
        """Each line behind a prompt, with what it prints below it."""
        for step in _STEP.split(block.text)[1:]:
            line, _, shown = step.partition("\n")
            printed = self._run(line, terminal)
            is_meant_to_fail = "Error: " in shown or shown.rstrip().endswith("[y/N]:")
            assert (printed.exit_code != 0) == is_meant_to_fail, f"{block}: {line}: {printed.text}"
            if shown and not matches(shown, printed.text):
                shown = self._as_seen(printed.text)
            yield f"$ {line}\n{shown}"

    def _as_seen(self, printed: str) -> str:
        """What a person sees who has a broker at the usual address."""
        lines = printed.replace(self._servers, "127.0.0.1:9092").expandtabs().splitlines()
        return "".join(f"{line.rstrip()}\n" for line in lines)

    def _run(self, line: str, terminal: Terminal) -> Printed:
        for long, short in SHORTER.items():
            line = line.replace(long, short)
        if line.startswith("oncelog serve"):
            return self._serve(line)
        return terminal.run(line)

    def _serve(self, line: str) -> Printed:
        """Start a broker that lives as long as the reader, wherever ports are free."""
        words = _ADDRESS.sub("127.0.0.1:0", line).split()[1:]
        for option, value in (("--listen", "127.0.0.1:0"), ("--data-dir", str(free_port()))):
            if option not in words:
                words += [option, value]
        broker = subprocess.Popen(
            [sys.executable, "-m", "oncelog", *words],
            cwd=self._folder,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._stack.enter_context(broker)  # waits for its end
        self._stack.callback(broker.terminate)
        assert broker.stdout is not None
        ready = broker.stdout.readline()
        assert "ready on" in ready, f"{line}: {ready}"
        return Printed("", 0)
