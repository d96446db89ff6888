"""Tests that share a broker or a JVM stay together, and the longest come first."""

from pathlib import Path

from tests.support.dealing import ALONE, group_of, has_none_of, place_of


def test_a_shared_folder_is_one_group_and_every_other_file_one_of_its_own() -> None:
    assert group_of("tests/interop/test_kcat.py::test_a") == "tests/interop"
    assert group_of("tests/interop/test_java.py::test_b[x::y]") == "tests/interop"
    assert group_of("tests/unit/core/test_config.py::test_c") == "tests/unit/core/test_config.py"


def test_the_longest_group_comes_first() -> None:
    ids = [
        "tests/unit/core/test_config.py::a",
        "tests/simulation/test_runs.py::b",
        "tests/interop/test_kcat.py::c",
        "tests/spark/t.py",
    ]
    assert sorted(ids, key=place_of) == list(reversed(ids))


def test_only_files_with_tests_that_run_alone_are_imported_for_them(tmp_path: Path) -> None:
    alone, other, helper = (tmp_path / name for name in ("test_a.py", "test_b.py", "conftest.py"))
    alone.write_text("pytestmark = [pytest.mark.slow, pytest.mark.alone]")
    other.write_text("pytestmark = [pytest.mark.slow]")
    helper.write_text("")
    assert [has_none_of(ALONE, path) for path in (alone, other, helper, tmp_path)] == [
        False,
        True,
        False,
        False,
    ]
    assert not has_none_of("not soak and not alone", other)
