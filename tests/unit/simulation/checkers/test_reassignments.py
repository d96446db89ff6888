"""Reassignments: their steps, what is left of a partition, and where they end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from oncelog.simulation.history_cluster import (
    PartitionChanged,
    ReassignmentAnswered,
    ReassignmentAsked,
)
from tests.unit.simulation.checkers.model import T0, Model

FIRST = PartitionChanged(0.0, "", T0, "id", (0, 1, 2), 0, 0, 0, (0, 1, 2))
BEGUN = {"replicas": (0, 1, 3, 2), "adding": (3,), "removing": (2,)}
DONE = {
    "replicas": (0, 1, 3), "isr": (0, 1, 3), "adding": (), "removing": (), "removed": (2,),
    "leader_epoch": 1,
}  # fmt: skip
CANCELLED = {"replicas": (0, 1, 2), "adding": (), "removing": (), "removed": (3,)}


class Moves:
    """A history of one partition on three of four brokers."""

    def __init__(self) -> None:
        self.model = Model()
        self.state = FIRST
        self.write({})

    def write(self, changed: Mapping[str, object]) -> None:
        number = self.state.partition_epoch + 1
        self.state = replace(self.state, **{"partition_epoch": number, **changed})  # type: ignore[arg-type]
        values = [getattr(self.state, name) for name in PartitionChanged.__match_args__[2:]]
        self.model.record(PartitionChanged, "", *values)

    def ask(self, *replicas: int, error: str | None = "") -> None:
        self.model.record(ReassignmentAsked, "c", T0, replicas)
        if error is not None:
            self.model.record(ReassignmentAnswered, "c", T0, replicas, error)

    def found(self, *, unclean_elections: bool = False) -> set[str]:
        stated = {"flush_every_message": False, "unclean_elections": unclean_elections}
        return {
            signature.partition(": ")[2]
            for signature in self.model.signatures(**stated)
            if signature.startswith("reassignments")
        }


def test_a_reassignment_that_is_done_is_passed() -> None:
    moves = Moves()
    moves.ask(0, 1, 3)
    moves.write(BEGUN)
    moves.write(DONE)
    moves.write({"removed": ()})
    assert moves.found() == set()


def test_one_that_is_cancelled_is_passed() -> None:
    moves = Moves()
    moves.ask(0, 1, 3)
    moves.write(BEGUN)
    moves.model.record(ReassignmentAsked, "c", T0, None)
    moves.write({**CANCELLED, "leader_epoch": 1})
    moves.model.record(ReassignmentAnswered, "c", T0, None, "")
    assert moves.found() == set()


def test_replicas_that_no_one_asked_for_are_found() -> None:
    moves = Moves()
    moves.ask(0, 1)
    moves.write(BEGUN)
    assert "replicas changed that no one asked for" in moves.found()


def test_a_reassignment_done_too_early_is_found() -> None:
    moves = Moves()
    moves.ask(0, 1, 3)
    moves.write(BEGUN)
    moves.write({**DONE, "isr": (0, 1)})
    assert moves.found() == {"a reassignment is done before all are in the ISR"}


def test_a_removal_that_is_not_noted_is_found() -> None:
    moves = Moves()
    moves.ask(0, 1, 3)
    moves.write(BEGUN)
    moves.write({**DONE, "removed": ()})
    assert moves.found() == {"who has no replica any more is not noted"}


def test_a_removal_in_the_same_epoch_is_found() -> None:
    moves = Moves()
    moves.ask(0, 1, 3)
    moves.write(BEGUN)
    moves.write({**DONE, "leader_epoch": 0})
    assert moves.found() == {"a replica is removed in the same leader epoch"}


def test_the_loss_of_all_that_have_every_record_is_found() -> None:
    moves = Moves()
    moves.write({"isr": (2,), "leader": 2, "leader_epoch": 1})
    moves.ask(0, 1)
    gone = {"replicas": (0, 1), "isr": (0,), "leader": 0, "leader_epoch": 2, "removed": (2,)}
    moves.write(gone)
    assert "none of those with every record is left" in moves.found()
    assert "none of those with every record is left" not in moves.found(unclean_elections=True)


def test_another_end_than_asked_for_last_is_found() -> None:
    moves = Moves()
    moves.ask(0, 1, 3)
    moves.write(BEGUN)
    moves.write(DONE)
    moves.ask(0, 2, 1)
    assert moves.found() == {"the replicas are not those asked for last"}


def test_a_request_without_an_answer_may_come_late() -> None:
    moves = Moves()
    moves.ask(0, 1, 3, error=None)
    moves.ask(2, 1, 0)
    moves.write({"replicas": (2, 1, 0)})
    moves.write({**BEGUN, "replicas": (0, 1, 3, 2)})
    assert moves.found() == set()


def test_what_was_refused_changes_nothing() -> None:
    moves = Moves()
    moves.ask(2, 1, 0)
    moves.write({"replicas": (2, 1, 0)})
    moves.ask(0, 9, error="invalid_replica_assignment")
    assert moves.found() == set()


def test_a_cancellation_that_goes_on_is_found() -> None:
    moves = Moves()
    moves.ask(0, 1, 3)
    moves.write(BEGUN)
    moves.model.record(ReassignmentAsked, "c", T0, None)
    moves.write(DONE)
    moves.model.record(ReassignmentAnswered, "c", T0, None, "")
    assert moves.found() == {"the replicas are not those asked for last"}
