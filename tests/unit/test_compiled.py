"""Compiled modules take the place of their sources while these are unchanged, and never else."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from oncelog import compiled
from oncelog.compiled import FOLDER, MANIFEST_NAME, Finder, Manifest, digest, fresh_modules

SOURCE = b"VALUE = 1\n"


@pytest.fixture
def built(tmp_path: Path) -> tuple[Path, Path]:
    """(folder, package): one source, and a stand-in for what was compiled from it."""
    folder, package = tmp_path / "built", tmp_path / "oncelog"
    for place in (folder, package):
        place.mkdir()
    (package / "hot.py").write_bytes(SOURCE)
    (folder / "hot_compiled.py").write_text("VALUE = 'compiled'\n")
    manifest: Manifest = {
        "inputs": "",
        "sources": {"hot.py": digest(SOURCE)},
        "modules": {"oncelog.hot": "hot_compiled.py"},
    }
    (folder / MANIFEST_NAME).write_text(json.dumps(manifest))
    return folder, package


def test_modules_of_unchanged_sources_are_used(built: tuple[Path, Path]) -> None:
    folder, package = built
    assert fresh_modules(folder, package) == {"oncelog.hot": folder / "hot_compiled.py"}


def test_one_changed_source_passes_all_compiled_modules_over(built: tuple[Path, Path]) -> None:
    folder, package = built
    (package / "hot.py").write_bytes(SOURCE.replace(b"1", b"2"))
    assert fresh_modules(folder, package) == {}


def test_a_source_of_the_same_content_may_be_newer(built: tuple[Path, Path]) -> None:
    folder, package = built
    os.utime(package / "hot.py", (2**31, 2**31))
    assert fresh_modules(folder, package)


@pytest.mark.parametrize("damage", [b"", b"{}", b"[]", b"\xff"])
def test_without_a_sound_manifest_nothing_is_used(built: tuple[Path, Path], damage: bytes) -> None:
    folder, package = built
    (folder / MANIFEST_NAME).write_bytes(damage)
    assert fresh_modules(folder, package) == {}


def test_without_a_source_or_a_build_nothing_is_used(built: tuple[Path, Path]) -> None:
    folder, package = built
    (package / "hot.py").unlink()
    assert fresh_modules(folder, package) == {}
    assert fresh_modules(folder / "none", package) == {}


def test_the_finder_knows_its_own_modules_only(built: tuple[Path, Path]) -> None:
    finder = Finder(fresh_modules(*built))
    spec = finder.find_spec("oncelog.hot")
    assert spec is not None
    assert spec.origin == str(built[0] / "hot_compiled.py")
    assert finder.find_spec("oncelog.cold") is None


@pytest.mark.parametrize(("asked", "count"), [(None, 0), ("", 0), ("0", 0), ("1", 1)])
def test_compiled_modules_are_used_only_where_they_are_asked_for(
    built: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, asked: str | None, count: int
) -> None:
    finders: list[object] = []
    monkeypatch.setattr(sys, "meta_path", finders)
    monkeypatch.setattr(compiled, "FOLDER", built[0])
    monkeypatch.setattr(compiled, "PACKAGE", built[1])
    monkeypatch.delenv("ONCELOG_COMPILED", raising=False)
    if asked is not None:
        monkeypatch.setenv("ONCELOG_COMPILED", asked)
    compiled.activate()
    assert len(finders) == count


def test_a_checkout_that_was_changed_since_it_was_compiled_runs_interpreted(
    built: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    finders: list[object] = []
    monkeypatch.setattr(sys, "meta_path", finders)
    monkeypatch.setattr(compiled, "FOLDER", built[0])
    monkeypatch.setattr(compiled, "PACKAGE", built[1])
    monkeypatch.setenv("ONCELOG_COMPILED", "1")
    assert not compiled.is_outdated()
    (built[1] / "hot.py").write_bytes(SOURCE + b"VALUE = 2\n")
    compiled.activate()
    assert finders == []
    assert compiled.is_outdated()
    (built[0] / MANIFEST_NAME).unlink()
    assert not compiled.is_outdated()


def version_of(**environment: str) -> str:
    command = [sys.executable, "-m", "oncelog", "--version"]
    return subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_the_version_says_how_it_runs() -> None:
    assert version_of(ONCELOG_COMPILED="0").endswith(", interpreted")
    is_built = bool(fresh_modules(FOLDER, FOLDER.parents[2] / "src" / "oncelog"))
    expected = "compiled" if is_built else "interpreted"
    assert version_of(ONCELOG_COMPILED="1").endswith(f", {expected}")
