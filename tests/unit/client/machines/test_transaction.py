"""The transaction machine: what is allowed when, and what differs between TV1 and TV2."""

import pytest

from oncelog.client.errors import (
    AbortableError,
    DeliveryTimeoutError,
    FencedError,
    IllegalStateError,
    RetriableError,
)
from oncelog.client.machines.transaction import State, TransactionMachine
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def in_transaction(version: int) -> TransactionMachine:
    machine = TransactionMachine()
    machine.initialized(7, 3, version)
    machine.begin()
    return machine


def test_nothing_is_sent_outside_a_transaction() -> None:
    machine = TransactionMachine()
    with pytest.raises(IllegalStateError):
        machine.begin()
    machine.initialized(7, 3, 2)
    with pytest.raises(IllegalStateError):
        machine.check_may_send()
    machine.begin()
    machine.check_may_send()
    with pytest.raises(IllegalStateError):
        machine.begin()


def test_tv1_adds_each_partition_and_group_once_per_transaction() -> None:
    machine = in_transaction(1)
    assert machine.partitions_to_add([B, A, A]) == [A, B]
    assert not machine.is_added(A)
    machine.partitions_added([A, B])
    assert machine.is_added(A)
    assert machine.partitions_to_add([A]) == []
    assert machine.group_to_add("g")
    machine.group_added("g")
    assert not machine.group_to_add("g")
    machine.ending(commit=True)
    assert machine.ended() is False
    machine.begin()
    assert machine.partitions_to_add([A]) == [A]
    assert machine.group_to_add("g")


def test_tv2_adds_nothing_explicitly_and_adopts_the_epoch_of_the_end() -> None:
    machine = in_transaction(2)
    assert machine.partitions_to_add([A]) == []
    assert machine.is_added(A)
    assert not machine.group_to_add("g")
    machine.ending(commit=True)
    assert machine.ended(8, 0) is True
    assert (machine.producer_id, machine.producer_epoch) == (8, 0)


def test_an_empty_transaction_ends_without_the_coordinator() -> None:
    machine = in_transaction(2)
    assert not machine.end_must_be_sent
    machine.call_begins()
    assert machine.end_must_be_sent


@pytest.mark.parametrize("group", [False, True])
def test_an_end_is_sent_for_what_was_added_and_nothing_else(group: bool) -> None:
    machine = in_transaction(1)
    if group:
        machine.group_added("g")
    else:
        machine.partitions_added([A])
    assert machine.end_must_be_sent


def test_a_failed_transaction_can_only_be_aborted() -> None:
    machine = in_transaction(2)
    lost = DeliveryTimeoutError("t-0")
    machine.failed(lost)
    for refused in (machine.check_may_send, lambda: machine.ending(commit=True)):
        with pytest.raises(DeliveryTimeoutError):
            refused()
    machine.ending(commit=False)
    machine.ended(7, 4)
    machine.begin()
    machine.check_may_send()


def test_retries_that_ran_out_cost_the_transaction_not_the_producer() -> None:
    machine = in_transaction(1)
    machine.failed(RetriableError(ErrorCode.coordinator_not_available))
    assert machine.state is State.ABORTABLE
    with pytest.raises(AbortableError, match="COORDINATOR_NOT_AVAILABLE"):
        machine.ending(commit=True)


def test_a_fenced_producer_can_do_nothing_more() -> None:
    machine = in_transaction(2)
    machine.failed(FencedError(ErrorCode.producer_fenced))
    for refused in (machine.begin, machine.check_may_send, lambda: machine.ending(commit=False)):
        with pytest.raises(FencedError):
            refused()


def test_an_end_in_doubt_can_be_repeated_but_not_reversed() -> None:
    machine = in_transaction(2)
    machine.ending(commit=True)
    machine.ending(commit=True)
    with pytest.raises(IllegalStateError):
        machine.ending(commit=False)


def test_a_step_that_is_refused_changes_nothing() -> None:
    machine = in_transaction(1)
    machine.partitions_added([A])
    with pytest.raises(IllegalStateError):
        machine.ended()
    assert machine.is_added(A)
    for step in (machine.initialized, machine.attach):
        with pytest.raises(IllegalStateError):
            step(8, 0, 2)
        assert (machine.producer_id, machine.producer_epoch, machine.version) == (7, 3, 1)


def test_an_attached_producer_sends_but_never_ends() -> None:
    machine = TransactionMachine()
    machine.attach(7, 3, 2)
    machine.check_may_send()
    for commit in (True, False):
        with pytest.raises(IllegalStateError, match="driver"):
            machine.ending(commit)


def test_possible_stragglers_are_forgotten_with_the_next_epoch() -> None:
    machine = in_transaction(1)
    machine.request_lost()
    machine.ending(commit=True)
    machine.ended()
    assert machine.stragglers_possible
    machine.initialized(7, 4, 1)
    assert not machine.stragglers_possible
