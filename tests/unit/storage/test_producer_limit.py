"""How many producers the partitions of a broker may remember together."""

import logging

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.protocol.batch import BatchHeader, read_header
from oncelog.storage.producer_limit import ProducerLimit
from oncelog.storage.producer_state import Origin, ProducerStates
from tests.support.logged import said_by
from tests.unit.broker.support import batch as client_batch
from tests.unit.storage.context import LogContext


def header(producer_id: int, sequence: int = 0) -> BatchHeader:
    return read_header(client_batch(producer_id=producer_id, epoch=0, sequence=sequence))


class Counted:
    """Says how many producers there are, and counts how often it was asked."""

    def __init__(self, count: int = 0) -> None:
        self.count = count
        self.asked_count = 0

    def __call__(self) -> int:
        self.asked_count += 1
        return self.count


def test_producers_are_admitted_up_to_the_limit() -> None:
    counted = Counted()
    limit = ProducerLimit(3, counted)
    for _ in range(3):
        assert limit.admits()
        counted.count += 1
    assert not limit.admits()


def test_a_forgotten_producer_makes_place_for_another() -> None:
    counted = Counted(3)
    limit = ProducerLimit(3, counted)
    assert not limit.admits()
    counted.count = 2
    assert limit.admits()
    counted.count = 3
    assert not limit.admits()


def test_producers_are_counted_once_for_each_hundredth_of_the_limit() -> None:
    counted = Counted()
    limit = ProducerLimit(1000, counted)
    for _ in range(100):
        assert limit.admits()
        counted.count += 1
    assert counted.asked_count == 10


def test_being_full_is_logged_once_until_a_producer_is_forgotten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counted = Counted(3)
    limit = ProducerLimit(3, counted)
    with caplog.at_level(logging.WARNING):
        for count in (3, 3, 2, 3, 3):
            counted.count = count
            limit.admits()
    assert [record.message[:26] for record in said_by(caplog)] == ["new producers are refused:"] * 2


def full() -> ProducerStates:
    states = ProducerStates()
    states.apply_batch(header(1), 0, 0)
    states.producer_limit = ProducerLimit(1, lambda: len(states))
    return states


def test_a_new_producer_beyond_the_limit_is_refused_and_told_why() -> None:
    rejection = full().check_batch(header(2), Origin.CLIENT)
    assert rejection is not None
    assert rejection.error is ErrorCode.policy_violation
    assert "remembers 1 producers" in rejection.message
    assert "producer.id.expiration.ms" in rejection.message


def test_a_known_producer_a_marker_and_a_replica_are_never_refused() -> None:
    states = full()
    assert states.check_batch(header(1, sequence=1), Origin.CLIENT) is None
    for origin in (Origin.COORDINATOR, Origin.REPLICATION):
        assert states.check_batch(header(2), origin) is None
    assert states.check_marker(2, 0, 0, 0) is None


def test_a_log_that_was_cut_off_keeps_its_limit(ctx: LogContext) -> None:
    log = ctx.log
    ctx.append_well()
    log.producers.producer_limit = ProducerLimit(0, lambda: len(log.producers))
    log.truncate_to(0, ctx.now_ms)
    records = client_batch(producer_id=1, epoch=0, sequence=0, timestamp_ms=ctx.now_ms)
    refused = log.append(records, leader_epoch=0, now_ms=ctx.now_ms)
    assert refused.error is ErrorCode.policy_violation
    assert refused.message is not None
    assert "its limit" in refused.message
