"""A Java program is compiled once for each content of its source."""

from pathlib import Path

import pytest

from tests.support import java_program
from tests.support.java_program import compiled
from tests.support.peer.kafka import PeerUnavailable


def program(folder: Path, content: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "Same.java").write_text(f"class Same {{ {content} }}")
    return folder


def test_programs_of_one_name_do_not_take_the_place_of_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java_program, "CLASSES", tmp_path / "cache")
    one = program(tmp_path / "one", "int one; static class Inner {}")
    other = program(tmp_path / "other", "int other;")
    try:
        first = compiled("Same", one, class_path="")
    except PeerUnavailable as absent:
        pytest.skip(str(absent))
    assert {file.name for file in first.iterdir()} == {"Same.class", "Same$Inner.class"}
    assert b"other" in (compiled("Same", other, class_path="") / "Same.class").read_bytes()
    made_at = (first / "Same.class").stat().st_mtime_ns
    assert compiled("Same", one, class_path="") == first
    assert (first / "Same.class").stat().st_mtime_ns == made_at
