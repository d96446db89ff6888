"""A transaction over three brokers outlives the death of each of them, at every step of its end.

INV-2 to INV-6: the client's retries take effect once, and all replicas have the same.
"""

import pytest

from oncelog.simulation.run import undisturbed
from tests.scenarios.cluster.stage import BROKERS, Stage

pytestmark = pytest.mark.slow

STEPS = [
    f"{kind} is in {count} logs" for kind in ("PREPARE", "MARKER", "COMPLETE") for count in range(4)
]
"""0: just before it is written; 1: it is in one log, and not committed."""
BEGIN = {1: ["a init v=4", "a add t-0 t-1 t-2", "a add-offsets"], 2: ["a init"]}
WRITE = {1: "a produce t-0 t-1 t-2 v=11", 2: "a produce t-0 t-1 t-2"}
END = {1: "a end commit v=4", 2: "a end commit"}
NEXT = {
    1: ["a add t-0", "a produce t-0 v=11", "a end abort v=4"],
    2: ["a produce t-0", "a end abort"],
}


@pytest.mark.parametrize("victim", BROKERS)
@pytest.mark.parametrize("step", STEPS)
def test_a_commit_takes_effect_once(step: str, victim: int) -> None:
    version = 1 + (STEPS.index(step) + victim) % 2
    stage = Stage()
    with undisturbed(stage.world):
        stage.begin()
        for command in (*BEGIN[version], WRITE[version], "a commit-offset 1"):
            stage.perform(command)
        stage.perform(f"broker {victim} dies once {step}")
        told = [*stage.perform(END[version]), *stage.perform("logs")]
        for command in NEXT[version]:
            stage.perform(command)
        logs = stage.perform("logs")
        offset = stage.perform("reader offset")
    assert stage.world.bugs == []
    assert f"broker {victim} dies: {step}" in told
    assert [_ends(line) for line in logs] == [
        "record COMMIT record ABORT",
        "record COMMIT",
        "record COMMIT",
    ]
    assert offset == ["NONE 1"]


def _ends(line: str) -> str:
    """What a log has, without epochs; an end that the next coordinator repeats counts once."""
    words = [word for word in line.split() if word in ("record", "COMMIT", "ABORT")]
    return " ".join(word for at, word in enumerate(words) if words[at - 1 : at] != [word])
