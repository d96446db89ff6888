"""Scenarios of three brokers: a coordinator or a leader dies, or pauses and wakes up.

They run under virtual time. `tests.scenarios.steps` tells how a file is read. The brokers are 0, 1
and 2, and t-N is led by broker N. A client's commands are those of `tests.scenarios.wire`, where
`produce` takes several partitions, and of groups: NAME join [as=INSTANCE]; NAME sync [NAME=t-0,t-1
...], with what the leader assigns; NAME beat; NAME consume [as=INSTANCE] [leaves] [keeps], a
heartbeat of the consumer protocol by who owns what it was assigned last, or does not say what it
owns; NAME offset, with require_stable; NAME describe, its transaction. A client asks the next
coordinator where one is lost, and says so. With `at=N` it asks that broker alone, once. `NAME VERB
... later` does not wait for the answer, which `NAME answer` tells.

Beside these: NAME dies, a client; broker N dies, and is started again within 3 s; broker N dies
once KIND is in K logs (KIND is PREPARE, MARKER, COMPLETE or GROUP, which is any write of a group;
0: just before it is written); brokers N ... pause S, for so many seconds; coordinators KEY ...,
where a key that begins with "group" is a group; open, the partitions in which a transaction is
open; logs, the same in all replicas once all brokers serve; wait S.
"""

from pathlib import Path

import pytest

from oncelog.simulation.run import undisturbed
from tests.scenarios.cluster.stage import Stage
from tests.scenarios.steps import compare, read_steps

pytestmark = pytest.mark.slow

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    stage = Stage()
    with undisturbed(stage.world):
        stage.begin()
        outputs = [stage.perform(step.command) if step.command else [] for step in read_steps(path)]
    assert stage.world.bugs == []
    compare(path, outputs)


def test_there_are_scenarios() -> None:
    assert len(FILES) >= 10
