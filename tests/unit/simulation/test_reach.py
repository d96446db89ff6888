from oncelog.core.ids import TopicPartition
from oncelog.simulation.coverage import Coverage
from oncelog.simulation.history import BrokerDied, Fault, Logged, SendFailed, Value, Watermarks
from oncelog.simulation.reach import LATELY_S, Reach

SEND = Value("c1", 4)
ONE = TopicPartition("one", 0)


class Time:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_move_is_named_with_the_fault_in_force_and_later_without() -> None:
    time = Time()
    reach = Reach(time)
    coverage = Coverage(reach.move)
    coverage.moved("group", None, "Empty")
    time.now_s = 1.0
    reach.event(Fault(1.0, "", "freeze", "broker-0", until_s=3.0))
    time.now_s = 2.9
    coverage.moved("group", "Empty", "Stable")
    time.now_s = 3.0
    coverage.moved("group", "Stable", "Dead")
    assert reach.names == {
        "group/->Empty | -",
        "fault/freeze | -",
        "group/Empty->Stable | freeze",
        "group/Stable->Dead | -",
    }


def test_a_fault_that_ends_at_once_is_in_force_for_a_while() -> None:
    time = Time()
    reach = Reach(time)
    reach.event(Fault(0.0, "", "kill", "broker-0"))
    time.now_s = LATELY_S / 2
    reach.event(BrokerDied(time.now_s, "broker-0", 0, "kill"))
    reach.event(Fault(time.now_s, "", "drop", "c1"))
    assert reach.names == {"fault/kill | -", "BrokerDied kill | kill", "fault/drop | kill"}


def test_numbers_ids_and_paths_make_no_new_names() -> None:
    reach = Reach(Time())
    for number in range(3):
        text = f"FatalError: OUT_OF_ORDER: sequence {number} of producer {number}: more"
        reach.event(SendFailed(0.0, f"c{number}", SEND, text))
        line = f"oncelog.storage: one-{number}: cut {number} bytes of /data/one-{number}/0.log"
        reach.event(Logged(0.0, "broker-0", "WARNING", line))
    assert reach.names == {
        "SendFailed FatalError OUT_OF_ORDER sequence of producer more | -",
        "Logged oncelog.storage cut bytes of | -",
    }


def test_errors_that_differ_have_names_of_their_own() -> None:
    reach = Reach(Time())
    for error in ("invalid_producer_epoch", "out_of_order_sequence_number"):
        reach.event(SendFailed(0.0, "c1", SEND, error))
    assert len(reach.names) == 2


def test_watermarks_which_the_world_writes_are_not_named() -> None:
    reach = Reach(Time())
    reach.event(Watermarks(0.0, "broker-0", 0, ONE, 0, 0, 0, 0, 0))
    assert not reach.names
