"""The versions that pyproject.toml claims are those that nox runs the tests on."""

import tomllib

import noxfile

CLAIM = "Programming Language :: Python :: 3."
UNTESTED = "3.14"
"""Not to be had where the sessions ran last: claimed once it has passed."""


def test_the_claimed_pythons_are_those_of_the_sessions() -> None:
    project = tomllib.loads((noxfile.ROOT / "pyproject.toml").read_text())["project"]
    claimed = [c.removeprefix(CLAIM) for c in project["classifiers"] if c.startswith(CLAIM)]
    wanted = [python for python in noxfile.PYTHONS if python != UNTESTED]
    assert sorted(f"3.{minor}" for minor in claimed) == wanted
    assert project["requires-python"] == f">={noxfile.PYTHONS[0]}"


def test_the_range_of_pyspark_is_that_of_the_sessions() -> None:
    project = tomllib.loads((noxfile.ROOT / "pyproject.toml").read_text())["project"]
    extra = project["optional-dependencies"]["spark"]
    (wanted,) = (text for text in extra if text.startswith("pyspark"))
    oldest, newest = noxfile.SPARKS[0], noxfile.SPARKS[-1]
    assert wanted == f"pyspark>={oldest},<4.{int(newest.removeprefix('4.')) + 1}"
