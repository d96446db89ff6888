"""What the unit tests share: folders in memory, and loggers as they are without the plugin."""

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.scratch import scratch_folder


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Instead of pytest's own, which is on a disk and is kept."""
    with tempfile.TemporaryDirectory(
        prefix="oncelog-unit-", dir=scratch_folder(), ignore_cleanup_errors=True
    ) as name:
        yield Path(name).resolve()


@pytest.fixture(autouse=True)
def _level_of_our_loggers(request: pytest.FixtureRequest) -> Iterator[None]:
    """The plugin, once used in this process, lets lines of level INFO through."""
    ours = logging.getLogger("oncelog")
    level = ours.level
    if "unit/testing" not in str(request.path):
        ours.setLevel(logging.NOTSET)
    yield
    ours.setLevel(level)
