"""What a broker says when it stops."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.unit.broker.context import running


async def stopped(folder: Path, caplog: pytest.LogCaptureFixture, *, kill: bool = False) -> str:
    """The last line of a broker that stops."""
    with caplog.at_level(logging.INFO, "oncelog.broker.broker"):
        async with running(folder) as context:
            if kill:
                context.broker.kill()
        return caplog.messages[-1] if caplog.messages else ""


async def test_a_clean_stop_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    said = await stopped(tmp_path, caplog)
    assert said.startswith("stopped in ")
    assert said.endswith(" s, the logs are closed cleanly")


async def test_a_killed_broker_claims_no_clean_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert "closed cleanly" not in await stopped(tmp_path, caplog, kill=True)
