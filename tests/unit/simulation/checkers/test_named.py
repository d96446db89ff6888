"""A broker that refuses what it names."""

from oncelog.simulation.checkers.named import REFUSED
from oncelog.simulation.history import Logged
from tests.unit.simulation.checkers.model import Model


def test_a_refusal_of_what_is_named_is_found_unless_a_folder_failed() -> None:
    model = Model()
    model.record(Logged, "broker-0.0", "WARNING", "oncelog.broker.broker: something else")
    assert model.kinds() == set()
    text = f"oncelog.simulation.naming: {REFUSED}HEARTBEAT of g"
    model.record(Logged, "broker-0.0", "WARNING", text)
    assert model.signatures() == {"named: a broker refuses what it names"}
    assert model.kinds(storage_failures_s=(model.now_s + 1,)) == {"named"}
    assert model.kinds(storage_failures_s=(0.0,)) == set()
