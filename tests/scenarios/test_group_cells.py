"""The scenarios of groups reach every state and every error that a client can get."""

import re
from functools import cache
from pathlib import Path

from oncelog.group.consumer.group import ConsumerGroupState
from oncelog.group.consumer.members import MemberState
from oncelog.group.failures import APPEND_ERRORS
from oncelog.group.states import GroupState
from tests.scenarios.group_cells import CELLS
from tests.scenarios.test_consumer_group import ConsumerStory
from tests.scenarios.test_group import Story, played

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "src" / "oncelog" / "group"
FOLDERS: dict[str, type[Story]] = {"group": Story, "consumer_group": ConsumerStory}

STATES = {
    *(f"classic: {state.value}" for state in GroupState),
    *(f"consumer: {state.value}" for state in ConsumerGroupState),
    *(f"member: {state.name}" for state in MemberState if state is not MemberState.UNKNOWN),
}


@cache
def reached() -> tuple[frozenset[str], frozenset[str]]:
    """The cells and the states that all scenarios together reach."""
    cells: set[str] = set()
    states: set[str] = set()
    for folder, kind in FOLDERS.items():
        for path in sorted((HERE / folder).glob("*.txt")):
            story = kind()
            played(path.read_text(), story)
            cells |= story.cells
            states |= story.states
    return frozenset(cells), frozenset(states)


def test_every_error_that_a_client_can_get_has_a_scenario() -> None:
    assert sorted(CELLS - reached()[0]) == []


def test_no_scenario_gets_another_error() -> None:
    assert sorted(reached()[0] - CELLS) == []


def test_every_state_has_a_scenario() -> None:
    assert sorted(STATES - reached()[1]) == []


def test_every_error_that_the_coordinator_names_has_a_cell() -> None:
    """An append's own errors are mapped: no client sees them."""
    named = {
        code.upper()
        for path in SOURCES.rglob("*.py")
        for code in re.findall(r"ErrorCode\.(\w+)", path.read_text())
    }
    named -= {error.name.upper() for error in APPEND_ERRORS}
    assert sorted(named - {cell.rpartition(": ")[2] for cell in CELLS}) == []
