"""Where Go cannot be had, the reason is said; what was built once is not built again."""

import sys
from pathlib import Path

import pytest

from tests.support.go_program import GoUnavailable, built


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "go.mod").write_text("module program\n")
    return folder


def test_a_machine_without_go_is_said(source: Path, tmp_path: Path) -> None:
    with pytest.raises(GoUnavailable, match="Go is not installed"):
        built(source, str(tmp_path / "no-go"), tmp_path / "cache")


def test_a_module_that_cannot_be_had_is_said(source: Path, tmp_path: Path) -> None:
    with pytest.raises(GoUnavailable, match="go mod download"):
        built(source, sys.executable, tmp_path / "cache")


def test_a_program_is_built_once_for_each_state_of_its_sources(
    source: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\n[ $1 = build ] && echo built > $3 || true\n")
    go.chmod(0o755)
    first = built(source, str(go), tmp_path / "cache")
    assert first.read_text() == "built\n"
    assert built(source, str(tmp_path / "no-go"), tmp_path / "cache") == first
    (source / "main.go").write_text("package main\n")
    assert built(source, str(go), tmp_path / "cache") != first
