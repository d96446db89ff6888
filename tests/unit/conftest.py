"""What the unit tests share: folders in memory."""

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
