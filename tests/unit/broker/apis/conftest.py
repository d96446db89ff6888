"""The broker of the tests of transactional requests; other files have a `context` of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.broker.apis.producing import prepare
from tests.unit.broker.context import Running, running


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[Running]:
    """A broker with the topic `t` and the topics of both coordinators."""
    async with running(tmp_path / "data") as begun:
        await prepare(begun)
        yield begun
