"""Who was let in without a right."""

from oncelog.simulation.history_access import AccessAsked, AccessWrong
from tests.unit.simulation.checkers.model import Model


def test_whoever_is_let_in_without_a_right_is_found() -> None:
    model = Model()
    model.record(AccessAsked, "warden", "take away a right", 0)
    assert model.kinds() == set()
    model.record(AccessWrong, "broker-0", "a session goes on after its end", "c1")
    assert model.signatures() == {"access: a session goes on after its end"}
