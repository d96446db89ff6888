"""The tutorial of docs/spark.md, block by block, as a newcomer would run it."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.evidence import ROOT
from tests.support.peer.child import free_port, wait_ready

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
START_TIMEOUT_S = 30
COMMAND_TIMEOUT_S = 60


def tutorial() -> list[tuple[str, str]]:
    """(language, text) of each block of the section."""
    text = (ROOT / "docs" / "spark.md").read_text()
    section = text.split("\n## Ten minutes\n")[1].split("\n## ")[0]
    return BLOCK.findall(section)


class Shell:
    """Runs the tutorial's commands in a folder, against a port that is free."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers = f"127.0.0.1:{free_port()}"
        self._broker: subprocess.Popen[bytes] | None = None
        # The command of this environment, whatever is on the PATH.
        search = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        self._environment = {**os.environ, "PATH": search}
        self._environment["ONCELOG_BOOTSTRAP_SERVER"] = self._servers

    def here(self, text: str) -> str:
        """The text with this broker's address."""
        return text.replace("127.0.0.1:9092", self._servers)

    def serve(self, command: str) -> None:
        """Start the broker and wait for it."""
        words = self.here(command).split()
        self._broker = subprocess.Popen(words, cwd=self._folder, env=self._environment)
        wait_ready(int(self._servers.partition(":")[2]), self._broker, START_TIMEOUT_S)

    def run(self, commands: str) -> str:
        """What the commands print."""
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", self.here(commands)],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=True,
        )
        return done.stdout

    def stop(self) -> None:
        if self._broker is not None:
            self._broker.terminate()
            self._broker.wait(START_TIMEOUT_S)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.stop()


@pytest.fixture
def names() -> Iterator[dict[str, Any]]:
    """What the tutorial's Python has defined; a session that it started is stopped."""
    running = SparkSession.getActiveSession()
    made: dict[str, Any] = {}
    yield made
    if running is None and "spark" in made:
        made["spark"].stop()


@pytest.mark.soak
def test_every_block_of_the_tutorial_does_what_it_says(
    names: dict[str, Any], shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = ""
    for language, text in tutorial():
        if language == "python":
            # Spark's JVM has a working folder of its own.
            exec(compile(shell.here(text).replace("./", f"{tmp_path}/"), "spark.md", "exec"), names)
        elif language == "text":
            assert printed == text
        elif text.startswith("oncelog serve"):
            shell.serve(text)
        else:
            printed = shell.run(text)


def test_the_pipeline_of_the_tutorial_is_at_most_15_lines() -> None:
    first = next(text for language, text in tutorial() if language == "python")
    assert len([line for line in first.splitlines() if line.strip()]) <= 15


@pytest.mark.parametrize("document", ["spark.md"])
def test_every_link_inside_the_guide_leads_to_a_heading_or_a_file(document: str) -> None:
    path = ROOT / "docs" / document
    text = path.read_text()
    headings = {
        re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("#")
    }
    for target in re.findall(r"\]\(([^)]+)\)", text):
        place, _, heading = target.partition("#")
        if place.startswith("http"):
            continue
        assert not place or (path.parent / place).exists(), target
        assert place or heading in headings, target
