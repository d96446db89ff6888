"""What a newcomer copies from a page does what the page says, in environments of its own."""

import sys
from pathlib import Path

import pytest
from rich.console import Console

from tests.support import quickstart


@pytest.mark.slow
def test_the_loop_of_the_quickstart_survives_a_kill_exactly_once(tmp_path: Path) -> None:
    commands, settings = Path(sys.executable).parent, {"group.initial.rebalance.delay.ms": "0"}
    outcome = quickstart.carry_out(commands, tmp_path, 3_000, settings)
    assert outcome.is_exactly_once(), (outcome.killed_at, len(outcome.read))


def test_the_loop_of_the_quickstart_is_short() -> None:
    assert len(quickstart.block("python").text.splitlines()) <= quickstart.LINES_MAX


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.timeout(600)
def test_the_quickstart_takes_less_than_a_minute_from_an_empty_folder() -> None:
    assert quickstart.timed(Console())
