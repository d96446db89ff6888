"""The suite on several versions of PySpark: what may be claimed, what counts as refused."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support import sparks
from tests.support.evidence import ROOT, TABLE


def test_pyproject_takes_the_versions_that_passed_and_no_other() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    (wanted,) = (text for text in extras["spark"] if text.startswith("pyspark"))
    newest, oldest = sparks.TAKEN[0], sparks.TAKEN[-1]
    assert wanted == f"pyspark>={oldest},<4.{int(newest.removeprefix('4.')) + 1}"
    row = re.search(r"^\| sparks \| passed \| PySpark (.+?) \|", TABLE.read_text(), re.MULTILINE)
    if row is None:
        pytest.skip("no row in docs/evidence.md yet: `make test-sparks` writes it")
    works = [f"{version} works" for version in sparks.TAKEN]
    refused = [f"{version} refused by name" for version in sparks.REFUSED]
    assert row[1].split(", ") == works + refused


def test_only_the_sentence_that_names_the_version_counts_as_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    last_words = "oncelog.spark.errors.UnsupportedModeError: PySpark 3.4.4 has no ..."
    monkeypatch.setattr(sparks, "said", lambda python, code: f"Traceback\n{last_words}")
    assert sparks.run_import(Path(sys.executable))["verdict"] == "refused by name"
    last_words = "ModuleNotFoundError: No module named 'pyspark.sql.streaming.datasource'"
    assert sparks.run_import(Path(sys.executable))["verdict"] == "fails"
