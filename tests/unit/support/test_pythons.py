"""The suite on several Pythons: what is found, what is counted, what may be claimed."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support import pythons
from tests.support.evidence import ROOT, TABLE

CLAIM = "Programming Language :: Python :: "
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
REPORT = """<testsuites><testsuite tests="5" failures="1" errors="0" skipped="2">
<testcase name="a"/><testcase name="b"/><testcase name="c"><failure message="no"/></testcase>
<testcase name="d"><skipped message="no jars"/></testcase>
<testcase name="e"><skipped message="no jars"/></testcase>
</testsuite></testsuites>"""


def test_only_versions_that_passed_are_claimed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    claimed = {c.removeprefix(CLAIM) for c in project["classifiers"] if c.startswith(CLAIM)}
    (row,) = re.findall(r"^\| pythons \| passed \| (.+?) \|", TABLE.read_text(), re.MULTILINE)
    assert claimed == set(re.findall(r"tests on (3\.\d+)", row))
    assert project["requires-python"] == f">={pythons.VERSIONS[0]}"
    assert set(re.findall(r"\b3\.\d+", row)) == set(pythons.VERSIONS)


def test_the_running_python_is_found_and_a_missing_one_has_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert pythons.interpreter(HERE) == Path(sys.executable)
    assert "neither on the PATH nor" in str(pythons.interpreter("3.99"))


def test_an_interpreter_of_another_version_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    impostor = tmp_path / "versions" / "3.99.1" / "bin" / "python"
    impostor.parent.mkdir(parents=True)
    impostor.symlink_to(sys.executable)
    assert str(pythons.interpreter("3.99")) == f"{impostor} is not usable: it is Python {HERE}"


def test_without_spark_everything_else_is_still_asked_for() -> None:
    everything = pythons.requirements("dev", without="")
    rest = pythons.requirements("dev", without="spark")
    assert {text for text in everything if text not in rest} == set(
        pythons.requirements("spark", without="")
    )
    assert any(text.startswith("confluent-kafka") for text in rest)


def test_passed_failed_and_skipped_are_counted_with_their_reasons(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    result = pythons.counted(report, 1, "3.12.1", 9, "installed")
    assert (result.passed, result.failed, result.skipped) == (2, 1, 2)
    assert result.skip_reasons == {"no jars": 2}


def test_a_run_without_a_report_or_with_a_bad_end_has_failed(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    assert pythons.counted(report, 4, "3.12.1", 9, "installed").failed == 1
    report.write_text('<testsuites><testsuite tests="0"/></testsuites>')
    assert pythons.counted(report, 5, "3.12.1", 9, "installed").failed == 1
