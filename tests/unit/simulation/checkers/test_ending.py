"""Lag, progress and brokers that stopped."""

import pytest

from oncelog.simulation.final import FinalState
from oncelog.simulation.history import (
    BrokerDied,
    BrokerStarted,
    Fault,
    Logged,
    Polled,
    Positioned,
    Progress,
    Revoked,
    Watermarks,
)
from oncelog.simulation.history_cluster import PartitionChanged
from tests.unit.simulation.checkers.model import T0, Model


def test_a_partition_that_cannot_be_read_is_found() -> None:
    model = Model()
    model.unread[T0] = "KAFKA_STORAGE_ERROR"
    assert model.signatures() == {"lag-ends: a partition could not be read to its end"}


def test_a_folder_is_off_line_until_a_broker_starts() -> None:
    model = Model()
    model.record(BrokerStarted, "broker-0", 0)
    model.unread[T0] = "KAFKA_STORAGE_ERROR"
    assert model.kinds(storage_failures_s=(0.02,)) == set()
    model.now_s = 1.0
    model.record(BrokerStarted, "broker-0", 1)
    assert model.kinds(storage_failures_s=(0.02,)) == {"lag-ends"}


def test_damage_excuses_only_the_folder_that_it_names() -> None:
    model = Model()
    model.record(Fault, "world", "flip-bit", "/data/t-1/00000000000000000000.log", "byte 7")
    at_s = model.now_s
    model.producer("p").send(T0)
    model.record(BrokerStarted, "broker-0", 1)
    model.logs[T0].clear()
    assert model.kinds(damage_s=(at_s,)) == {"lost-write"}
    model.edit(Fault, 0, target="/data/t-0/00000000000000000000.log")
    assert model.kinds(damage_s=(at_s,)) == set()


def test_a_run_of_which_nothing_can_be_read_is_found() -> None:
    model = Model()
    model.producer("p").send(T0)
    assert model.signatures(FinalState({})) == {"lag-ends: nothing could be read at the end"}


def test_the_last_stable_offset_is_not_stuck() -> None:
    model = Model()
    producer = model.producer("p", "id")
    producer.begin()
    producer.send(T0)
    producer.commit()
    model.logs[T0].pop()
    model.append(T0, ())
    assert "lag-ends: the last stable offset is stuck" in model.signatures()


def test_a_young_open_transaction_holds_it_by_right() -> None:
    model = Model()
    producer = model.producer("p", "id")
    producer.begin()
    producer.send(T0)
    assert model.signatures() == set()
    model.now_s = 100.0
    model.record(Progress, "q", "running")
    found = model.signatures(last_fault_s=90.0)
    assert "lag-ends: the last stable offset is stuck" in found


def test_a_settled_reader_has_read_to_the_end() -> None:
    model = Model()
    producer, reader = model.producer("p"), model.reader("r")
    producer.send(T0)
    reader.poll(T0)
    producer.send(T0)
    model.record(Progress, "r", "settled")
    assert model.signatures() == {"lag-ends: a settled reader did not read to the end"}


@pytest.mark.parametrize(("stable", "is_excused"), [(1, True), (2, False)])
def test_a_reader_held_by_a_transaction_that_power_took_from_its_coordinator_is_excused(
    stable: int, is_excused: bool
) -> None:
    """Retention may delete the transaction after that, so the end of the log does not show it."""
    model = Model()
    producer, reader = model.producer("p"), model.reader("r")
    producer.send(T0)
    reader.poll(T0)
    at_s = model.now_s
    producer.send(T0)
    model.record(Watermarks, "broker-0", 0, T0, 0, 0, stable, 2, 2)
    model.record(Progress, "r", "settled")
    lost = {"flush_every_message": False, "power_losses_s": (at_s,)}
    assert ("lag-ends" in model.allowed(**lost)) is is_excused
    assert "lag-ends" in model.kinds()


LAG = "stuck: StuckError: lag: t-0 stands at 2 of 1 (consuming.py:drain)"


def _model_that_lost_a_tail(word: str) -> tuple[Model, dict[str, object]]:
    """Two records were read, and power took the second."""
    model = Model()
    producer, reader = model.producer("p"), model.reader("r", committed=False)
    for _ in range(2):
        producer.send(T0)
    reader.poll(T0)
    lost = {"flush_every_message": False, "power_losses_s": (model.now_s,)}
    model.cut(T0, 1)
    model.look()
    if word == "reset":
        model.record(Positioned, "r", T0, 1, "truncated")
    model.record(Progress, "r", LAG if word == "stuck" else "settled")
    return model, lost


@pytest.mark.parametrize("word", ["stuck", "settled"])
def test_a_reader_may_not_wait_beyond_the_end_of_a_log_that_lost_its_tail(word: str) -> None:
    model, lost = _model_that_lost_a_tail(word)
    assert model.signatures(**lost) == {"lag-ends: a reader waits beyond the end of the log"}


def test_a_reader_that_returned_to_the_end_of_a_shorter_log_has_read_it() -> None:
    model, lost = _model_that_lost_a_tail("reset")
    assert model.signatures(**lost) == set()


@pytest.mark.parametrize(("who", "is_found"), [("lag: t-0", True), ("lag of a copier: t-0", False)])
def test_a_loss_of_power_excuses_no_reader_that_is_stuck_before_readable_records(
    who: str, is_found: bool
) -> None:
    """A copier reads on only after it could write."""
    model = Model()
    producer, reader = model.producer("p"), model.reader("r", committed=False)
    producer.send(T0)
    reader.poll(T0)
    lost = {"flush_every_message": False, "power_losses_s": (model.now_s,)}
    producer.send(T0)
    model.record(Progress, "r", f"stuck: StuckError: {who} stands at 1 of 2 (a.py:work)")
    found = {"lag-ends: a stuck reader did not read to the end"} if is_found else set()
    assert model.signatures(**lost) == found
    assert model.signatures() == found | {"progress: a client is stuck"}


@pytest.mark.parametrize("word", ["in time", "revoked", "done"])
def test_a_reader_that_is_done_or_no_owner_may_be_behind(word: str) -> None:
    model = Model()
    producer, reader = model.producer("p"), model.reader("r")
    producer.send(T0)
    reader.poll(T0)
    if word == "in time":
        model.record(Progress, "r", "settled")
    producer.send(T0)
    if word == "revoked":
        model.record(Revoked, "r", "g", "r", (T0,))
        model.record(Progress, "r", "settled")
    if word == "done":
        model.record(Progress, "r", "done")
    assert model.signatures() == set()
    assert len(list(model.history.of(Polled))) == 1


@pytest.mark.parametrize(
    ("state", "at_s", "what"),
    [
        ("stuck: waits for ever", 1.0, "a client is stuck"),
        ("running", 1.0, "a client never settled"),
        ("settled", 80.0, "a client settled too late"),
    ],
)
def test_every_client_settles(state: str, at_s: float, what: str) -> None:
    model = Model()
    model.now_s = at_s
    model.record(Progress, "c", state)
    assert model.signatures() == {f"progress: {what}"}
    assert model.kinds(storage_failures_s=(0.5,)) == set()


@pytest.mark.parametrize("state", ["settled", "done"])
def test_a_client_that_ends_well_in_time_is_passed(state: str) -> None:
    model = Model()
    model.record(Progress, "c", "running")
    model.now_s = 80.0
    model.record(Progress, "c", state)
    assert model.signatures(last_fault_s=25.0) == set()


@pytest.mark.parametrize("cause", ["kill", "power", "stop"])
def test_a_broker_may_be_killed(cause: str) -> None:
    model = Model()
    model.record(BrokerDied, "broker-0", 0, cause)
    assert model.signatures() == set()


def test_a_broker_does_not_stop_of_itself() -> None:
    model = Model()
    model.record(BrokerDied, "broker-0", 0, "InvariantViolation: INV-2")
    assert model.signatures() == {"broker-stopped: a broker stopped of itself"}
    assert model.kinds(storage_failures_s=(0.0,)) == {"broker-stopped"}


def test_a_request_that_ends_with_an_exception_is_found() -> None:
    model = Model()
    model.record(Logged, "broker-0.0", "ERROR", "oncelog.broker.partitions.manager: off line")
    assert model.kinds() == set()
    text = "oncelog.broker.net.dispatch: FETCH v4 from c1 failed (KeyError: 7)"
    model.record(Logged, "broker-0.0", "ERROR", text)
    assert model.signatures() == {"failed-request: a request ended with an exception"}
    assert model.kinds(storage_failures_s=(0.0,)) == set()


def test_a_broker_may_stop_after_a_storage_failure() -> None:
    model = Model()
    model.record(BrokerDied, "broker-0", 0, "OSError: no space left on device")
    assert model.kinds(storage_failures_s=(0.0,)) == set()
    assert model.kinds(storage_failures_s=(5.0,)) == {"broker-stopped"}


def test_a_start_may_fail_while_the_store_does() -> None:
    cause = "did not start: StoreFailure: the store is out of reach"
    away = Model()
    away.now_s = 1.0
    away.history.record(Fault(away.now_s, "", "store-away", "store", until_s=3.0))
    away.now_s = 4.0
    away.record(BrokerDied, "broker-0", 0, cause)
    assert away.kinds(last_fault_s=9.0) == set()
    away.now_s = 6.0
    away.record(BrokerDied, "broker-0", 1, cause)
    assert away.kinds(last_fault_s=9.0) == {"broker-stopped"}
    slow = Model()
    slow.history.record(Fault(0.0, "", "store-slow", "store", until_s=9.0))
    slow.record(BrokerDied, "broker-0", 0, cause)
    assert slow.kinds(last_fault_s=9.0) == {"broker-stopped"}


def test_a_start_may_fail_where_the_store_is_out_of_its_brokers_reach() -> None:
    cause = "did not start: StoreFailure: the store is out of reach"
    model = Model()
    model.history.record(Fault(0.0, "", "cut-from-store", "broker-1", until_s=1.0))
    model.record(BrokerDied, "broker-1", 0, cause)
    assert model.kinds(last_fault_s=9.0) == set()
    model.record(BrokerDied, "broker-0", 0, cause)
    assert model.kinds(last_fault_s=9.0) == {"broker-stopped"}


@pytest.mark.parametrize("is_unclean", [True, False])
def test_an_unclean_election_may_have_taken_the_marker_that_a_reader_waits_for(
    is_unclean: bool,
) -> None:
    model = Model()
    replicas = (0, 1)
    in_sync = (0,) if is_unclean else replicas
    model.record(PartitionChanged, "", T0, "id", replicas, 0, 0, 0, in_sync)
    model.record(PartitionChanged, "", T0, "id", replicas, 1, 1, 1, (1,))
    model.record(Progress, "r", "stuck: not settled")
    found = {each for each in model.signatures() if each.startswith("progress")}
    assert found == (set() if is_unclean else {"progress: a client is stuck"})
    assert ("progress" in model.allowed()) is is_unclean
