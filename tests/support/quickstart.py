"""docs/quickstart.md as a newcomer goes through it, with a kill in the middle of its loop.

``python -m tests.support.quickstart`` begins with an empty folder and times it: an environment,
`pip install` of the wheel in place of the checkout with pip's cache warm, a broker, records, the
loop, SIGKILL, the loop again, and the page's own look at what came out.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from tests.support import evidence
from tests.support.broker import BrokerProcess
from tests.support.documents.blocks import ROOT, Block, blocks
from tests.support.fresh_python import FreshPython, StepFailed, environment, run
from tests.support.release import build

PAGE: Final = "docs/quickstart.md"
ADDRESS: Final = "127.0.0.1:9092"
RECORDS: Final = 20_000
"""How many the page has."""
SECONDS_MAX: Final = 60
LINES_MAX: Final = 25
COMMITS_BEFORE_KILL: Final = 3
_SERVE: Final = "oncelog serve --data-dir data &\n"
_KILL: Final = "kill -9 $!"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came out of the loop: what a reader sees, and what the killed process had committed."""

    read: list[str]
    killed_at: int
    """Records that were committed when it was killed, at least."""
    records: int

    def is_exactly_once(self) -> bool:
        """Whether each record is there once, although the loop was killed half-way."""
        expected = sorted(f"WORD {number}" for number in range(1, self.records + 1))
        return sorted(self.read) == expected and 0 < self.killed_at < self.records


def block(language: str, begins: str = "") -> Block:
    """The page's only block of this language that begins so."""
    (found,) = [
        each for each in blocks(PAGE) if each.language == language and each.text.startswith(begins)
    ]
    return found


def carry_out(
    commands: Path,
    folder: Path,
    records: int = RECORDS,
    settings: dict[str, str] | None = None,
) -> Outcome:
    """Go through the page behind its install; `commands` holds `python` and `oncelog`.

    Raises `StepFailed`.
    """
    assert block("sh", "oncelog serve").text == _SERVE
    oncelog = (str(commands / "oncelog"),)
    broker = BrokerProcess(folder / "data", settings, oncelog=oncelog, variables=environment())
    with broker:
        shell = _Shell(commands, folder, broker.bootstrap_servers)
        shell.run(block("sh", "oncelog topics").text.replace(str(RECORDS), str(records)))
        script = block("python").text.replace(ADDRESS, broker.bootstrap_servers)
        (folder / "shout.py").write_text(script)
        assert _KILL in block("sh", "python shout.py &").text
        with shell.loop() as committed:
            killed_at = sum(next(committed) for _ in range(COMMITS_BEFORE_KILL))
        first, *_ = block("console").text.removeprefix("$ ").split(" | ")
        with shell.loop() as committed:
            # With its first commit the killed one's last transaction is settled. What is missing
            # afterwards is committed by this one, and said on its output.
            next(committed)
            while len(read := shell.run(first).splitlines()) < records:
                missing = records - len(read)
                while missing > 0:
                    missing -= next(committed)
        return Outcome(read, killed_at, records)


class _Shell:
    """A shell in the newcomer's folder, with the environment activated."""

    def __init__(self, commands: Path, folder: Path, servers: str) -> None:
        self._folder = folder
        self._python = commands / "python"
        before = environment()
        self._variables = {
            "PATH": f"{commands}:{before['PATH']}",
            "ONCELOG_BOOTSTRAP_SERVER": servers,
        }

    def run(self, text: str) -> str:
        """What a block prints. Raises `StepFailed`."""
        return run("bash", "-e", "-c", text, cwd=self._folder, variables=self._variables)

    @contextmanager
    def loop(self) -> Iterator[Iterator[int]]:
        """Run the loop and yield the sizes of its transactions, until it is killed at the end."""
        with subprocess.Popen(
            [self._python, "shout.py"],
            cwd=self._folder,
            env=environment() | self._variables,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield self._sizes(process)
            finally:
                process.kill()

    @staticmethod
    def _sizes(process: subprocess.Popen[str]) -> Iterator[int]:
        assert process.stdout is not None
        for line in process.stdout:
            yield int(line.removeprefix("committed "))
        raise StepFailed("the loop has ended by itself")


def walk(wheel: Path, folder: Path) -> tuple[Outcome, float]:
    """All of it from an empty folder, and the seconds that it took. Raises `StepFailed`."""
    begun = time.monotonic()
    python = FreshPython.made(folder / ".venv")
    python.install(wheel)
    outcome = carry_out(python.folder / "bin", folder)
    return outcome, time.monotonic() - begun


def timed(console: Console) -> bool:
    """Whether the walk is exactly once and within its bounds; with evidence."""
    with tempfile.TemporaryDirectory(prefix="oncelog-quickstart-") as name:
        folder = Path(name)
        _, wheel = build(ROOT, folder)
        FreshPython.made(folder / "warm").install(wheel)
        empty = folder / "empty"
        empty.mkdir()
        outcome, seconds = walk(wheel, empty)
    lines_count = len(block("python").text.splitlines())
    is_exact = outcome.is_exactly_once()
    passed = is_exact and seconds <= SECONDS_MAX and lines_count <= LINES_MAX
    console.print(
        f"{'exactly once' if is_exact else 'NOT EXACTLY ONCE'} after {seconds:.1f} s "
        f"(at most {SECONDS_MAX}), {lines_count} lines, killed at {outcome.killed_at} of "
        f"{outcome.records} records"
    )
    count = f"{outcome.records:,} records in {lines_count} lines after {seconds:.1f} s"
    verdict = "passed" if passed else "failed"
    evidence.note("quickstart", verdict, count, "python -m tests.support.quickstart")
    return passed


if __name__ == "__main__":
    sys.exit(0 if timed(Console()) else 1)
