"""Tests that share a broker or a JVM stay together, and the longest come first."""

from tests.support.dealing import group_of, place_of


def test_a_shared_folder_is_one_group_and_every_other_file_one_of_its_own() -> None:
    assert group_of("tests/interop/test_kcat.py::test_a") == "tests/interop"
    assert group_of("tests/interop/test_java.py::test_b[x::y]") == "tests/interop"
    assert group_of("tests/unit/core/test_config.py::test_c") == "tests/unit/core/test_config.py"


def test_the_longest_group_comes_first() -> None:
    ids = ["tests/unit/core/test_config.py::a", "tests/interop/test_kcat.py::b", "tests/spark/t.py"]
    assert sorted(ids, key=place_of) == list(reversed(ids))
