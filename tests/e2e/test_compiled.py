"""The compiled rooms of these sources: they can be built, and serve as the interpreted ones do.

`make test` runs interpreted otherwise, so nothing else in it would see that they cannot be used.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import setup
from tests.support.mutations import copy_tree
from tests.support.patches import environment

TESTED = (
    "tests/scenarios/wire",
    "tests/unit/broker/apis/test_produce.py",
    "tests/unit/cli/log/test_repair.py",
    "tests/unit/client/test_payload.py",
)
BUILD = {"ONCELOG_OPTIMISE": "0"}
"""What is wrong with a build is so without optimisation, in a third of the time."""
RUNS_COMPILED = """
from oncelog.broker.apis import produce
from oncelog.compiled import how_it_runs
assert not produce.__file__.endswith(".py"), produce.__file__
assert how_it_runs() == "compiled", how_it_runs()
"""


@pytest.mark.skipif(setup.c_compiler() is None, reason="there is no C compiler, or no Python.h")
@pytest.mark.timeout(600)
def test_a_compiled_broker_answers_as_the_interpreted_one(tmp_path: Path) -> None:
    copy_tree(tmp_path)
    shutil.copy2(setup.__file__, tmp_path)
    build = [sys.executable, "-m", "tests.support.compiling"]
    run(build, tmp_path, BUILD)
    for command in (["-c", RUNS_COMPILED], ["-m", "pytest", "-q", *TESTED]):
        run([sys.executable, *command], tmp_path, BUILD | {"ONCELOG_COMPILED": "1"})


def run(command: list[str], tree: Path, variables: dict[str, str]) -> None:
    """Run it in the copy, to a good end."""
    ran = subprocess.run(
        command,
        cwd=tree,
        env=environment(tree) | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
