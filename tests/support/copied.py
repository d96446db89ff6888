"""The tests of docs/testing.md, copied into an empty project.

``nox -s docs`` runs them with each Python that is here, in an environment of its own where pip
installs what the page names.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

from tests.support.documents.blocks import ROOT, blocks
from tests.support.fresh_python import StepFailed, run

PAGE = "docs/testing.md"
CHECKOUT = "~/oncelog"
"""What stands on the page for a checkout: the wheel is installed in its place."""
_COPIED = re.compile(r"^Copy \[[^]]+\]\((\S+\.py)\)", re.MULTILINE)
_VERDICT = re.compile(r"^(\d+) passed in \S+s", re.MULTILINE)


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
    lines = re.findall(r"^pip install (.*)", "".join(commands), re.MULTILINE)
    words = [word for line in lines for word in shlex.split(line)]
    return [word.replace(CHECKOUT, str(wheel)) for word in words]


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
