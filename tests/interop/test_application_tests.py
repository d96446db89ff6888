"""The tests of docs/testing.md, ten for every application among them, copied as the page says."""

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.support import copied

ONES_ON_THE_PAGE = 8
TEN = 10 + 4
"""One of them is for five moments."""


# `nox -s docs` copies them too, on each Python.
@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.skipif(
    not entry_points(group="pytest11", name="oncelog"),
    reason="this environment was installed before there was the plugin",
)
def test_the_tests_of_the_page_pass_as_copied_into_an_empty_folder(tmp_path: Path) -> None:
    assert copied.run_here(tmp_path) == ONES_ON_THE_PAGE + TEN
