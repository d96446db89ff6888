"""The code in docs/testing.md runs."""

import re
from pathlib import Path

import pytest

from tests.unit.testing.test_plugin import run

pytest_plugins = ["pytester"]

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "testing.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
TESTS = [block for block in BLOCKS if "def test_" in block]
PROGRAMS = [block for block in BLOCKS if "def test_" not in block]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_of_the_guide_runs(program: str) -> None:
    exec(compile(program, str(DOCUMENT), "exec"), {})


@pytest.mark.parametrize("source", TESTS)
def test_the_tests_of_the_guide_pass(pytester: pytest.Pytester, source: str) -> None:
    pytest.importorskip("confluent_kafka")
    result = run(pytester, source, "-o", "asyncio_mode=auto")
    result.assert_outcomes(passed=source.count("def test_"))


def test_there_is_code_of_both_kinds() -> None:
    assert PROGRAMS
    assert TESTS
