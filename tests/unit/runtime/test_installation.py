"""A missing extra is named with the command that installs it where oncelog came from."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path

import pytest

import oncelog
from oncelog.runtime import installation
from oncelog.runtime.installation import ExtraMissing, how_to_install, require_extra, version

PIP = f"{sys.executable} -m pip install"


def came_from(monkeypatch: pytest.MonkeyPatch, direct_url: dict[str, object] | None) -> None:
    class Found:
        @staticmethod
        def read_text(name: str) -> str | None:
            assert name == "direct_url.json"
            return None if direct_url is None else json.dumps(direct_url)

    monkeypatch.setattr(Distribution, "from_name", lambda _: Found)


@pytest.mark.parametrize(
    ("direct_url", "what"),
    [
        (None, "'oncelog[spark]'"),
        ({"url": "file:///a%20b/c", "dir_info": {"editable": True}}, "-e '/a b/c[spark]'"),
        ({"url": "file:///src/oncelog", "dir_info": {}}, "'/src/oncelog[spark]'"),
        ({"url": "file:///w/o.whl", "archive_info": {}}, "'/w/o.whl[spark]'"),
        ({"url": "https://h/o.whl", "archive_info": {}}, "'oncelog[spark] @ https://h/o.whl'"),
    ],
    ids=["an index", "an editable checkout", "a checkout", "a wheel", "an address"],
)  # fmt: skip
def test_the_command_installs_from_where_it_came(
    monkeypatch: pytest.MonkeyPatch, direct_url: dict[str, object] | None, what: str
) -> None:
    came_from(monkeypatch, direct_url)
    assert how_to_install("spark") == f"{PIP} {what}"


def test_sources_that_are_not_installed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> Distribution:
        raise PackageNotFoundError

    monkeypatch.setattr(Distribution, "from_name", missing)
    checkout = Path(installation.__file__).resolve().parents[3]
    assert (checkout / "pyproject.toml").exists()
    assert how_to_install("demo") == f"{PIP} '{checkout}[demo]'"


def test_only_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    came_from(monkeypatch, None)
    require_extra("a test", "dev", ["json", "pytest"])
    with pytest.raises(ExtraMissing) as caught:
        require_extra("the demo", "demo", ["json", "no_such_package", "nor_this"])
    assert str(caught.value) == (
        f"the demo needs no_such_package, nor_this, which are not installed: {PIP} 'oncelog[demo]'"
    )


WITHOUT = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"pyspark", "confluent_kafka"}:
            raise ModuleNotFoundError(name)
from importlib.util import find_spec as real
import importlib.util
importlib.util.find_spec = lambda name, package=None: (
    None if name in {"pyspark", "confluent_kafka"} else real(name, package)
)
sys.meta_path.insert(0, Nothing())
"""


def without_extras(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT + code]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
def test_spark_without_its_extra_says_how_to_install_it() -> None:
    last = without_extras("import oncelog.spark").stderr.splitlines()[-1]
    assert "oncelog.spark needs pyspark, which is not installed: " in last
    assert " -m pip install " in last
    assert "[spark]" in last


@pytest.mark.slow
def test_the_demo_without_its_extra_is_one_line() -> None:
    done = without_extras("from oncelog.cli.main import main; main(['demo'])")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        "Error: the demo needs pyspark, confluent_kafka, which are not installed"
    )
    assert "[demo]" in line


def test_the_version_is_that_of_the_package() -> None:
    assert version() == oncelog.__version__
