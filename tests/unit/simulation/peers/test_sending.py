"""What a producer does about each answer to a Produce request, and about none."""

from __future__ import annotations

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.batch import BatchHeader
from oncelog.simulation.history import Acked, ProducerInitialized, SendFailed, Sent
from oncelog.simulation.peers.flavors import FLAVORS
from oncelog.simulation.peers.identity import IdempotentIdentity
from oncelog.simulation.peers.sending import PeerSender
from oncelog.simulation.peers.wire import PeerWire
from tests.unit.client.scripted_broker import DROP, REFUSE
from tests.unit.simulation.peers.scripted import Stage

AFTER_AN_APPEND = (
    ErrorCode.not_leader_or_follower,
    ErrorCode.not_enough_replicas_after_append,
    ErrorCode.kafka_storage_error,
    ErrorCode.request_timed_out,
)
"""What a broker answers for a batch that waits in its log, if it cannot be acknowledged."""


async def idempotent(stage: Stage, flavor: str = "java") -> PeerSender:
    wire = PeerWire(stage.context, FLAVORS[flavor])
    identity = IdempotentIdentity(stage.context, wire)

    async def renew() -> None:
        await identity.renew(sender)

    sender = PeerSender(stage.context, wire, renew=renew)
    await identity.obtain(sender)
    return sender


def produced(stage: Stage) -> list[tuple[int, int]]:
    """Epoch and first sequence of every batch that the broker saw."""
    headers: list[BatchHeader] = [
        header for _index, header in stage.broker.requests(ApiKey.PRODUCE)
    ]
    return [(header.producer_epoch, header.base_sequence) for header in headers]


@pytest.mark.parametrize("action", [DROP, REFUSE])
async def test_what_had_no_answer_is_sent_again_under_its_sequence(action: str) -> None:
    stage = Stage()
    sender = await idempotent(stage)
    stage.broker.on(ApiKey.PRODUCE, action)
    for _ in range(5):
        await sender.offer([stage.batch(2)])
    assert sender.partitions_free_count() == 0
    await sender.drain()
    sequences = [sequence for _epoch, sequence in produced(stage)]
    assert sequences[-5:] == [0, 2, 4, 6, 8]
    assert len(stage.events(Acked)) == len(stage.events(Sent)) == 10
    assert sender.request_lost
    assert stage.events(SendFailed) == []
    await stage.close()


async def test_batches_behind_one_that_failed_wait_for_it() -> None:
    stage = Stage()
    sender = await idempotent(stage)
    out_of_order = ErrorCode.out_of_order_sequence_number
    stage.broker.on(ApiKey.PRODUCE, ErrorCode.not_enough_replicas, out_of_order, out_of_order)
    for _ in range(3):
        await sender.offer([stage.batch()])
    await sender.drain()
    assert produced(stage) == [(1, 0), (1, 1), (1, 2)] * 2
    assert len(stage.events(Acked)) == 3
    await stage.close()


@pytest.mark.parametrize(("flavor", "initialized"), [("java", 1), ("librdkafka", 2)])
async def test_after_a_gap_a_producer_goes_on_under_a_new_epoch(
    flavor: str, initialized: int
) -> None:
    stage = Stage()
    sender = await idempotent(stage, flavor)
    stage.broker.on(ApiKey.PRODUCE, ErrorCode.out_of_order_sequence_number)
    await sender.offer([stage.batch(3)])
    await sender.drain()
    assert produced(stage) == [(1, 0), (2, 0)]
    assert len(stage.stuck()) == 1
    assert len(stage.events(Acked)) == 3
    assert len(stage.events(ProducerInitialized)) == initialized
    await stage.close()


@pytest.mark.parametrize("first", [REFUSE, *AFTER_AN_APPEND])
async def test_what_may_be_written_is_not_sent_again_under_a_new_epoch(
    first: str | ErrorCode,
) -> None:
    stage = Stage()
    sender = await idempotent(stage)
    stage.broker.on(ApiKey.PRODUCE, first, ErrorCode.out_of_order_sequence_number)
    await sender.offer([stage.batch()])
    await sender.drain()
    (failed,) = stage.events(SendFailed)
    assert (failed.error, failed.certain) == ("out_of_order_sequence_number", False)
    await sender.offer([stage.batch()])
    await sender.drain()
    assert produced(stage)[-1] == (2, 0)
    await stage.close()


async def test_a_refused_batch_is_certainly_not_written() -> None:
    stage = Stage()
    sender = await idempotent(stage)
    stage.broker.on(ApiKey.PRODUCE, ErrorCode.message_too_large)
    await sender.offer([stage.batch()])
    await sender.drain()
    assert [event.certain for event in stage.events(SendFailed)] == [True]
    assert sender.failure is None
    await stage.close()


@pytest.mark.parametrize("first", AFTER_AN_APPEND)
async def test_a_refused_retry_says_nothing_of_an_appended_batch(first: ErrorCode) -> None:
    stage = Stage()
    sender = PeerSender(
        stage.context, PeerWire(stage.context, FLAVORS["librdkafka"]), transactional_id="x"
    )
    sender.identify(7, 1)
    stage.broker.on(ApiKey.PRODUCE, first, ErrorCode.invalid_producer_epoch)
    await sender.offer([stage.batch()])
    await sender.drain()
    assert produced(stage) == [(1, 0)] * 2
    (failed,) = stage.events(SendFailed)
    assert (failed.error, failed.certain) == ("invalid_producer_epoch", False)
    await stage.close()


async def test_an_old_duplicate_is_acknowledged_without_a_place() -> None:
    stage = Stage()
    sender = await idempotent(stage)
    stage.broker.on(ApiKey.PRODUCE, ErrorCode.duplicate_sequence_number)
    await sender.offer([stage.batch(2)])
    await sender.drain()
    assert [event.offset for event in stage.events(Acked)] == [-1, -1]
    await stage.close()


async def test_a_producer_that_was_fenced_gives_up_everything() -> None:
    stage = Stage()
    sender = await idempotent(stage)
    stage.broker.on(ApiKey.PRODUCE, *[ErrorCode.invalid_producer_epoch] * 2)
    await sender.offer([stage.batch()])
    await sender.offer([stage.batch()])
    await sender.drain()
    assert sender.failure is ErrorCode.invalid_producer_epoch
    assert len(stage.events(SendFailed)) == 2
    await stage.close()


async def test_a_batch_is_given_up_when_its_time_is_over() -> None:
    stage = Stage()
    sender = await idempotent(stage)
    stage.broker.on(ApiKey.PRODUCE, *[ErrorCode.not_enough_replicas] * 50)
    await sender.offer([stage.batch(seconds=0.005)])
    await sender.drain()
    (failed,) = stage.events(SendFailed)
    assert failed.error == "out of time: not_enough_replicas"
    assert failed.certain
    assert sender.is_idle
    await stage.close()


@pytest.mark.parametrize("action", [DROP, *AFTER_AN_APPEND])
async def test_a_plain_producer_repeats_nothing(action: str | ErrorCode) -> None:
    stage = Stage()
    sender = PeerSender(stage.context, PeerWire(stage.context, FLAVORS["librdkafka"]), acks=1)
    stage.broker.on(ApiKey.PRODUCE, action)
    await sender.offer([stage.batch()])
    await sender.drain()
    assert [event.certain for event in stage.events(SendFailed)] == [False]
    assert len(produced(stage)) == 1
    await stage.close()


async def test_an_answer_that_kafka_never_gives_is_written_down() -> None:
    stage = Stage()
    sender = await idempotent(stage)
    stage.broker.on(ApiKey.PRODUCE, ErrorCode.invalid_record)
    await sender.offer([stage.batch()])
    await sender.drain()
    assert stage.stuck() == ["stuck: Produce to t-0 answered invalid_record"]
    await stage.close()
