from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.storage.context import LogContext


@pytest.fixture
def make_log(tmp_path: Path) -> Callable[..., LogContext]:
    return lambda **settings: LogContext(tmp_path / "flights-0", **settings)


@pytest.fixture
def ctx(make_log: Callable[..., LogContext]) -> LogContext:
    return make_log()
