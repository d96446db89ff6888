"""Scenarios of one broker's connections: what a request that waits holds back (D13, D7).

`tests.scenarios.steps` tells how a file is read.

Commands: end-txn NAME, join-group NAME, find-coordinator NAME (a request on the connection of that
name); malformed NAME, bad-size NAME (a frame that cannot be parsed, one that has no possible size);
settle N; close NAME.
"""

import asyncio
from pathlib import Path

import pytest

from oncelog.protocol.api import ApiKey
from tests.scenarios.connection.stage import Stage
from tests.scenarios.steps import Step, compare, read_steps

FILES = sorted(Path(__file__).parent.glob("*.txt"))
APIS = {
    "end-txn": ApiKey.END_TXN,
    "join-group": ApiKey.JOIN_GROUP,
    "find-coordinator": ApiKey.FIND_COORDINATOR,
}
BAD_FRAMES = {
    "malformed": (2).to_bytes(4, "big") + bytes(2),
    "bad-size": (-5).to_bytes(4, "big", signed=True) + bytes(20),
}
TURNS_COUNT = 6
"""Enough turns of the loop for everything that one command sets off."""


async def perform(stage: Stage, command: str) -> list[str]:
    verb, word = command.split()
    stage.told = []
    match verb:
        case "settle":
            stage.settle(int(word))
        case "close":
            stage.close(word)
        case "malformed" | "bad-size":
            stage.feed(word, BAD_FRAMES[verb])
        case _:
            stage.send(word, APIS[verb])
    for _ in range(TURNS_COUNT):
        await asyncio.sleep(0)
    return stage.told + stage.replies() or ["nothing"]


async def play(steps: list[Step]) -> list[list[str]]:
    stage = Stage()
    return [await perform(stage, step.command) if step.command else [] for step in steps]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    compare(path, asyncio.run(play(read_steps(path))))


def test_there_are_scenarios() -> None:
    assert len(FILES) >= 5
