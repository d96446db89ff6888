"""Every planted bug fits the code as it is, and only failing tests count as a catch."""

from pathlib import Path

import pytest

from tests.support.mutations import judge, load, names
from tests.support.patches import BadPatch, patched

GOOD = """
file = "src/a.py"
before = "x = 1"
after = "x = 2"
tests = ["tests/test_a.py::test_x"]
why = "x would be two"
"""
TEST = "tests/test_a.py::test_x"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with one file, one test and one mutation."""
    for folder in ("src", "tests/mutations"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "src/a.py").write_text("x = 1\n")
    (tmp_path / "tests/test_a.py").write_text("def test_x():\n    assert x == 1\n")
    (tmp_path / "tests/mutations/a.toml").write_text(GOOD)
    return tmp_path


@pytest.mark.parametrize("name", names())
def test_a_mutation_fits_the_code(name: str) -> None:
    load(name)


def test_a_mutation_is_planted(root: Path) -> None:
    assert patched("a", [load("a", root).edit], root) == {"src/a.py": "x = 2\n"}


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("why", "reason", "reason, why"),
        ('"x would be two"', '" "', "`why` is empty"),
        ('"x = 2"', '"x = 1"', "changes nothing"),
        ("x = 1", "y = 1", "src/a.py has `before` 0 times"),
        ("src/a.py", "src/b.py", "no src/b.py"),
        ("test_a.py", "test_b.py", "no test tests/test_b.py"),
        ("::test_x", "::test_y", "has no test_y"),
        ('["tests/test_a.py::test_x"]', "[]", "`tests` is a list"),
        ("file =", "file", "a: "),
    ],
)
def test_a_mutation_that_does_not_fit_is_refused_by_name(
    root: Path, old: str, new: str, reason: str
) -> None:
    (root / "tests/mutations/a.toml").write_text(GOOD.replace(old, new))
    with pytest.raises(BadPatch, match=r"^a: ") as refused:
        load("a", root)
    assert reason in str(refused.value)


def test_a_mutation_that_fits_twice_is_refused(root: Path) -> None:
    (root / "src/a.py").write_text("x = 1\nx = 1\n")
    with pytest.raises(BadPatch, match="2 times"):
        load("a", root)


def test_a_failing_test_is_a_catch() -> None:
    assert judge([TEST], 1, f"FAILED {TEST} - assert 2 == 1\n") == ""
    assert judge([TEST], 1, f"FAILED {TEST}[case] - assert 2 == 1\n") == ""
    assert judge(["tests/test_a.py"], 1, f"FAILED {TEST} - assert 2 == 1\n") == ""
    assert judge(["tests"], 1, f"FAILED {TEST} - assert 2 == 1\n") == ""


@pytest.mark.parametrize(
    ("code", "output"),
    [
        (0, ""),
        (2, f"ERROR {TEST}\n"),
        (4, f"FAILED {TEST} - not found\n"),
        (5, ""),
        (1, f"ERROR {TEST} - a fixture\n"),
        (1, f"FAILED {TEST}_and_more - assert 2 == 1\n"),
    ],
)
def test_anything_else_is_no_catch(code: int, output: str) -> None:
    assert judge([TEST], code, output) != ""
