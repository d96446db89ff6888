"""Scenarios of transactions over the wire: what clients of each version are answered by a broker.

The transaction coordinator's own scenarios stand beside these (`transaction`). Here is what comes
before and behind it: the partition's producer state, verification, markers, offsets of groups, and
the codes that depend on the request's version. `tests.scenarios.steps` tells how a file is read.

Commands: NAME init [recover] [v= id= timeout=]; NAME add t-0 ... [v= epoch=]; NAME produce t-0
[plain] [no-id] [v= sequence= epoch= acks=]; NAME add-offsets; NAME commit-offset N [v= topic=
generation= member=]; NAME end commit|abort [v=]; NAME mark commit|abort t-0 of=NAME [epoch=
coordinator= level=], a marker of that transaction version; NAME list [pattern=]; NAME read t-0, as
read_committed. There are the topics t and u of one partition, and one transactional id unless id=
names another.
"""

import asyncio
from pathlib import Path

import pytest

from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from tests.scenarios.steps import Step, compare, read_steps
from tests.scenarios.wire.stage import Stage
from tests.unit.broker.apis.producing import prepare
from tests.unit.broker.context import running

FILES = sorted(Path(__file__).parent.glob("*.txt"))
NAMES = {code.name.upper() for code in ErrorCode}

ERRORS = frozenset(
    {
        "ILLEGAL_GENERATION",
        "INVALID_PRODUCER_EPOCH",
        "INVALID_PRODUCER_ID_MAPPING",
        "INVALID_REGULAR_EXPRESSION",
        "INVALID_REQUEST",
        "INVALID_TRANSACTION_TIMEOUT",
        "INVALID_TXN_STATE",
        "NONE",
        "OPERATION_NOT_ATTEMPTED",
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "PRODUCER_FENCED",
        "TRANSACTION_ABORTABLE",
        "TRANSACTION_COORDINATOR_FENCED",
        "UNKNOWN_TOPIC_OR_PARTITION",
    }
)
"""Everything that these scenarios show."""


def performed(steps: list[Step], folder: Path) -> list[list[str]]:
    """The output of each step, on a broker of its own."""

    async def perform() -> list[list[str]]:
        async with running(folder) as context:
            await prepare(context)
            await context.broker.controller.create_topics([TopicToCreate("u")])
            stage = Stage(context)
            commands = [step.command for step in steps]
            return [await stage.perform(text) if text else [] for text in commands]

    return asyncio.run(perform())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path: Path, tmp_path: Path) -> None:
    compare(path, performed(read_steps(path), tmp_path))


def test_every_error_has_a_scenario() -> None:
    """The files hold what they show: `test_scenario` compares each line with the broker's."""
    lines = [line for path in FILES for step in read_steps(path) for line in step.expected]
    shown = {word for line in lines for word in line.split() if word in NAMES}
    assert sorted(shown ^ ERRORS) == []
