"""All orders of what two producers, the log, the leaders and the sweeps may do to one id."""

import pytest

from tests.unit.transaction.interleaving import STEPS, FarStage, Impossible, Stage

STARTS = {
    1: {
        "empty": ("init", "log"),
        "open": ("init", "log", "add", "log", "produce"),
        "taken over": (
            *("init", "log", "add", "log", "produce"),
            *("init", "log", "markers", "log", "log", "add", "log"),
        ),
        "ending again": (
            *("init", "log", "add", "log", "produce", "commit", "log", "markers", "log"),
            *("add", "log", "produce", "commit", "log"),
        ),
        "asked": (
            *("init", "log", "add", "log", "add offsets", "log", "offsets", "hears"),
            *("produce", "gives up", "abort", "log"),
        ),
    },
    2: {
        "empty": ("init", "log"),
        "open": ("init", "log", "produce", "log"),
        "taken over": (
            *("init", "log", "produce", "log"),
            *("init", "log", "markers", "log", "log", "produce", "log"),
        ),
        "ending again": (
            *("init", "log", "produce", "log", "commit", "log", "markers", "log"),
            *("produce", "log", "commit", "log"),
        ),
        "asked": (
            *("init", "log", "offsets", "log", "hears", "produce", "log", "gives up"),
            *("abort", "log"),
        ),
    },
}
CASES = [(version, start) for version, starts in STARTS.items() for start in starts]


def play(version: int, word: tuple[str, ...]) -> bool:
    """One interleaving to its end; False if no client would take its last step."""
    stage = (FarStage if "hears" in word else Stage)(version=version, holds=True)
    try:
        for step in word:
            stage.take(step)
    except Impossible:
        return False
    stage.settle()
    return True


def play_all(version: int, word: tuple[str, ...], depth: int) -> int:
    """A word and all its continuations by up to `depth` steps; returns how many there are."""
    try:
        if not play(version, word):
            return 0
    except AssertionError as error:
        raise AssertionError(f"TV{version}, {', '.join(word)}: {error}") from error
    if not depth:
        return 1
    return 1 + sum(play_all(version, (*word, step), depth - 1) for step in STEPS)


DEPTHS = {"empty": 3, "open": 3, "taken over": 2, "ending again": 2, "asked": 2}
"""How many steps follow a start. A producer of the past makes for more of them."""


@pytest.mark.parametrize(("version", "start"), CASES)
def test_every_order_of_some_steps_keeps_the_invariants(version: int, start: str) -> None:
    assert play_all(version, STARTS[version][start], DEPTHS[start]) > 50


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("version", "start"), CASES)
def test_every_order_of_more_steps_keeps_the_invariants(version: int, start: str) -> None:
    assert play_all(version, STARTS[version][start], DEPTHS[start] + 2) > 1_000
