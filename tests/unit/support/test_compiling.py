"""What is compiled, and when a build counts as that of the sources as they are."""

import json
import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import setup
from oncelog.compiled import MANIFEST_NAME, PACKAGE
from tests.support.compiling import compiled_sources, inputs, is_current, manifest_of, places_of


def test_every_group_has_sources_and_none_is_compiled_twice() -> None:
    paths = [path for group, _ in setup.groups() for path in group]
    assert len(paths) == len(set(paths))
    assert all(group for group, _ in setup.groups())
    assert all((PACKAGE / name).is_file() for name in compiled_sources())


def test_messages_and_packages_stay_interpreted() -> None:
    names = compiled_sources()
    assert "protocol/produce.py" in names
    assert not any("/messages/" in name or name.endswith("__init__.py") for name in names)


def test_no_compiled_source_has_coroutines_but_the_one_of_the_dispatcher() -> None:
    # mypy takes an attribute for unchanged across an await, and what mypyc makes relies on it.
    awaiting = {name for name in compiled_sources() if "async def" in (PACKAGE / name).read_text()}
    assert awaiting == {"broker/net/dispatch.py"}


def test_no_compiled_source_declares_messages() -> None:
    # A codec is made of a class's annotations, of which mypyc keeps only the plain types.
    for name in compiled_sources():
        assert "from oncelog.protocol.fields import" not in (PACKAGE / name).read_text(), name


def test_a_build_is_current_until_one_of_its_inputs_changes(tmp_path: Path) -> None:
    given = inputs()
    assert not is_current(tmp_path, given)
    (tmp_path / MANIFEST_NAME).write_text(json.dumps(manifest_of(given, tmp_path)))
    assert is_current(tmp_path, given)
    for name in ("storage/log.py", "mypy", "python", "setup.py"):
        assert not is_current(tmp_path, given | {name: "another"})


def test_modules_are_named_by_their_place(tmp_path: Path) -> None:
    suffix = EXTENSION_SUFFIXES[0]
    for name in (f"oncelog/storage/log{suffix}", f"oncelog_core__mypyc{suffix}", "oncelog/x.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert places_of(tmp_path) == {
        "oncelog.storage.log": f"oncelog/storage/log{suffix}",
        "oncelog_core__mypyc": f"oncelog_core__mypyc{suffix}",
    }


def test_modules_of_an_earlier_list_are_not_used(tmp_path: Path) -> None:
    suffix = EXTENSION_SUFFIXES[0]
    for name in ("oncelog/storage/log", "oncelog/runtime/disk", "oncelog_storage__mypyc"):
        path = tmp_path / f"{name}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    modules = manifest_of(inputs(), tmp_path)["modules"]
    assert modules.keys() == {"oncelog.storage.log", "oncelog_storage__mypyc"}


COMMANDS = (["bdist_wheel", "--dist-dir", "x"], ["build_ext", "-j", "2"])


@pytest.mark.parametrize("given", COMMANDS)
@pytest.mark.parametrize(("asked", "expected"), [("1", True), ("0", False), ("", False)])
def test_a_build_compiles_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, given: list[str], asked: str, expected: bool
) -> None:
    monkeypatch.setenv("ONCELOG_COMPILED", asked)
    assert setup.compiles(given) == expected
    assert setup.requirements(["egg_info"]) == ([setup.MYPYC] if expected else [])


@pytest.mark.parametrize("given", [["sdist"], ["dist_info"], ["editable_wheel", "build_ext"]])
def test_an_sdist_and_an_editable_install_compile_nothing(
    monkeypatch: pytest.MonkeyPatch, given: list[str]
) -> None:
    monkeypatch.setenv("ONCELOG_COMPILED", "1")
    assert not setup.compiles(given)


def test_without_a_c_compiler_a_build_that_needs_one_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(setup, "c_compiler", lambda: None)
    with pytest.raises(SystemExit, match="needs a C compiler"):
        setup.modules()


def test_a_c_compiler_without_the_header_of_python_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CC", sys.executable)
    has_header = setup.c_compiler()
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    assert setup.c_compiler() is None
    (tmp_path / "Python.h").touch()
    assert setup.c_compiler() == sys.executable
    assert has_header in (None, sys.executable)
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    assert setup.c_compiler() is None


@pytest.mark.slow
def test_a_pure_wheel_has_no_platform(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "src/oncelog/__init__.py"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((setup.ROOT / name).read_bytes())
    code = f"from setuptools.build_meta import build_wheel; build_wheel({str(tmp_path)!r})"
    environment = os.environ | {"ONCELOG_COMPILED": "0"}
    subprocess.run(
        [sys.executable, "-c", code], cwd=source, env=environment, capture_output=True, check=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
