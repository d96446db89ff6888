"""The tests of docs/testing.md, copied into an empty project and run as the page says.

``python -m tests.support.copied`` does so with each Python that is here, in an environment of its
own, where pip installs what the page names; docs/evidence.md keeps what they said.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from tests.support import evidence, pythons
from tests.support.documents.blocks import ROOT, blocks
from tests.support.fresh_python import FreshPython, StepFailed, run
from tests.support.release import build

PAGE = "docs/testing.md"
CHECKOUT = "~/oncelog"
"""What stands on the page for a checkout: the wheel is installed in its place."""
_COPIED = re.compile(r"^Copy \[\S+\]\((\S+\.py)\)", re.MULTILINE)
_VERDICT = re.compile(r"^(\d+) passed in \S+s", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Run:
    """What an empty project said."""

    python: str
    passed: int
    seconds: float


def copy_tests(folder: Path) -> None:
    """Write the page's tests into files, and copy the file that it says to copy."""
    tests = [block.text for block in blocks(PAGE) if "def test_" in block.text]
    for number, text in enumerate(tests):
        (folder / f"test_page_{number}.py").write_text(text)
    (linked,) = _COPIED.findall((ROOT / PAGE).read_text())
    shutil.copy((ROOT / PAGE).parent / linked, folder)


def packages(wheel: Path) -> list[str]:
    """What the page has pip install, the wheel in place of the checkout."""
    commands = [block.text for block in blocks(PAGE) if block.language == "sh"]
    (line,) = re.findall(r"^pip install (.*)", "".join(commands), re.MULTILINE)
    return [str(wheel) if word == CHECKOUT else word for word in shlex.split(line)]


def passed(printed: str) -> int:
    """How many tests passed, if nothing else happened: no warning either. Raises `StepFailed`."""
    verdict = _VERDICT.search(printed)
    if verdict is None:
        raise StepFailed(printed)
    return int(verdict[1])


def run_here(folder: Path) -> int:
    """Run them with this interpreter and its libraries. Raises `StepFailed`."""
    copy_tests(folder)
    return passed(run(sys.executable, "-m", "pytest", "-q", cwd=folder))


def run_fresh(version: str, interpreter: Path, wheel: Path, folder: Path) -> Run:
    """Run them with an interpreter, where nothing else is installed. Raises `StepFailed`."""
    begun = time.monotonic()
    python = FreshPython.made(folder / f"environment-{version}", interpreter)
    python.install(*packages(wheel))
    project = folder / f"project-{version}"
    project.mkdir()
    copy_tests(project)
    found = passed(python.run("pytest", "-q", cwd=project))
    return Run(version, found, round(time.monotonic() - begun, 1))


def run_all(console: Console) -> bool:
    """With each Python that is here; whether all of them passed the same tests."""
    runs: list[Run] = []
    problems: dict[str, str] = {}
    untested: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="oncelog-copied-") as name:
        folder = Path(name)
        _, wheel = build(ROOT, folder)
        for version in pythons.VERSIONS:
            interpreter = pythons.interpreter(version)
            if isinstance(interpreter, str):
                untested[version] = interpreter
                continue
            try:
                runs.append(run_fresh(version, interpreter, wheel, folder))
                console.print(f"Python {version}: {runs[-1].passed} passed")
            except StepFailed as failure:
                problems[version] = str(failure)[-2000:]
                console.print(f"Python {version}: {failure}", markup=False, highlight=False)
    all_passed = not problems and len({run.passed for run in runs}) == 1
    tested = ", ".join(f"Python {run.python}" for run in runs)
    count = f"{min((run.passed for run in runs), default=0)} tests of {PAGE} on {tested}"
    verdict = "passed" if all_passed else "failed"
    evidence.note("copied", verdict, count, "python -m tests.support.copied")
    return all_passed


if __name__ == "__main__":
    sys.exit(0 if run_all(Console()) else 1)
