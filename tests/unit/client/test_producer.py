"""The producer against a broker that fails at chosen moments."""

import asyncio
from typing import Any

import pytest

import oncelog.client.machines.producer as producer_machine
from oncelog.client import (
    AbortableError,
    ClientError,
    DeliveryTimeoutError,
    FatalError,
    FencedError,
    IllegalStateError,
    OffsetAndMetadata,
    Producer,
    RetriableError,
    TopicPartition,
)
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.batch import read_header
from oncelog.protocol.record import Record, build_batch
from oncelog.runtime.clock import SystemClock
from tests.unit.client.scripted_broker import DROP, PARTITION_COUNT, REFUSE, ScriptedBroker

TRANSACTION_APIS = (
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.PRODUCE,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
    ApiKey.INIT_PRODUCER_ID,
)


class SleptClock(SystemClock):
    """A clock whose time passes by sleeping only, and at once."""

    __slots__ = ("_slept_ms",)

    def __init__(self) -> None:
        self._slept_ms = 0.0

    def monotonic_ms(self) -> float:
        return self._slept_ms

    def pass_by(self, duration_ms: float) -> None:
        self._slept_ms += duration_ms

    async def sleep(self, delay_ms: float) -> None:
        self.pass_by(delay_ms)
        await asyncio.sleep(0)


def producer(broker: ScriptedBroker, **options: Any) -> Producer:
    return Producer("b:1", **{**broker.options(), **options})


async def transactional(broker: ScriptedBroker, **options: Any) -> Producer:
    made = producer(broker, transactional_id="tx", **options)
    await made.init_transactions()
    await made.begin_transaction()
    return made


def sequences(broker: ScriptedBroker) -> list[int]:
    return [batch.base_sequence for _index, batch in broker.requests(ApiKey.PRODUCE)]


async def test_a_produce_whose_answer_is_lost_goes_again_under_its_number() -> None:
    broker = ScriptedBroker()
    broker.on(ApiKey.PRODUCE, DROP)
    async with producer(broker) as made:
        sent = await made.send("t", b"v", partition=0)
    assert sequences(broker) == [0, 0]
    assert len(broker.log) == 1
    assert sent.offset == 0


async def test_only_the_records_at_fault_are_invalid() -> None:
    """KIP-467: whoever drops these loses none of the others."""
    broker = ScriptedBroker()
    broker.on(ApiKey.PRODUCE, ErrorCode.invalid_record)
    broker.record_errors = [(1, "no key"), (3, "no key")]
    async with producer(broker, linger_ms=1) as made:
        sent = [made.send("t", b"v", partition=0) for _ in range(5)]
        answers = await asyncio.gather(*sent, return_exceptions=True)
        await made.send("t", b"again", partition=0)
    codes = [answer.code for answer in answers if isinstance(answer, ClientError)]
    other = ErrorCode.operation_not_attempted
    assert codes == [other, ErrorCode.invalid_record, other, ErrorCode.invalid_record, other]
    assert isinstance(answers[0], RetriableError)
    assert isinstance(answers[1], FatalError)
    assert "no key" in str(answers[1])
    assert len(broker.log) == 1


class SlowBroker(ScriptedBroker):
    """One whose answers to an API take 50 ms of its clock."""

    def __init__(self, slow: ApiKey) -> None:
        super().__init__()
        self.clock = SleptClock()
        self._slow = slow

    def _respond(self, api: ApiKey, request: Any, error: ErrorCode) -> Any:
        if api is self._slow:
            self.clock.pass_by(50)
        return super()._respond(api, request, error)


async def test_a_batch_that_becomes_due_while_a_producer_id_is_asked_for_is_sent() -> None:
    broker = SlowBroker(ApiKey.INIT_PRODUCER_ID)  # Nothing else wakes the sender in time.
    async with producer(broker, linger_ms=20, clock=broker.clock) as made:
        sent = made.send("t", b"v", partition=0)
        assert (await asyncio.wait_for(sent, timeout=10)).offset == 0


async def test_a_produce_that_never_arrived_goes_again_under_its_number() -> None:
    broker = ScriptedBroker()
    broker.on(ApiKey.PRODUCE, REFUSE)
    async with producer(broker) as made:
        await made.send("t", b"v", partition=0)
        await made.send("t", b"w", partition=0)
    assert sequences(broker) == [0, 1]


async def test_a_moved_leader_makes_the_client_ask_for_metadata_and_try_again() -> None:
    broker = ScriptedBroker()
    broker.on(ApiKey.PRODUCE, ErrorCode.not_leader_or_follower)
    async with producer(broker) as made:
        await made.send("t", b"v", partition=0)
    calls = broker.apis(ApiKey.METADATA, ApiKey.PRODUCE)
    assert calls == [ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.PRODUCE]


async def test_keys_choose_partitions_as_java_does_and_records_of_a_key_keep_their_order() -> None:
    broker = ScriptedBroker()
    async with producer(broker, linger_ms=1) as made:
        sent = [made.send("t", b"%d" % i, key=b"a") for i in range(20)]
        await made.flush()
    where = {future.result().partition for future in sent}
    offsets = [future.result().offset for future in sent]
    assert len(where) == 1
    assert offsets == sorted(offsets)


async def test_a_refused_topic_fails_its_records_and_no_others() -> None:
    broker = ScriptedBroker()
    async with producer(broker) as made:
        bad = made.send("bad", b"v")
        good = made.send("t", b"v")
        assert (await good).topic == "t"
        with pytest.raises(FatalError) as raised:
            await bad
    assert raised.value.code is ErrorCode.invalid_topic_exception


async def test_a_batch_that_is_never_acknowledged_fails_by_its_delivery_timeout() -> None:
    broker = ScriptedBroker()
    broker.on(ApiKey.PRODUCE, *[ErrorCode.not_enough_replicas] * 200)
    async with producer(broker, delivery_timeout_ms=20) as made:
        with pytest.raises(DeliveryTimeoutError, match="NOT_ENOUGH_REPLICAS"):
            await made.send("t", b"v", partition=0)
        broker._actions.clear()
        await made.send("t", b"w", partition=0)
    assert broker.requests(ApiKey.PRODUCE)[-1][1].producer_epoch == 2, "a new identity"


async def test_tv1_adds_a_partition_before_its_first_produce_and_only_then() -> None:
    broker = ScriptedBroker(transaction_version=1)
    made = await transactional(broker)
    await made.send("t", b"v", partition=0)
    await made.send("t", b"v", partition=0)
    await made.send_offsets_to_transaction({TopicPartition("s", 0): OffsetAndMetadata(5)}, "g")
    await made.commit_transaction()
    await made.close()
    assert broker.apis(*TRANSACTION_APIS) == [
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.PRODUCE,
        ApiKey.PRODUCE,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.END_TXN,
    ]
    assert max(broker.versions(ApiKey.PRODUCE)) == 11
    assert broker.versions(ApiKey.ADD_PARTITIONS_TO_TXN) == {3}
    assert broker.versions(ApiKey.TXN_OFFSET_COMMIT) == {4}
    assert broker.versions(ApiKey.END_TXN) == {4}
    assert made.producer_epoch == 1


async def test_tv1_records_that_waited_for_metadata_do_not_wait_for_a_backoff() -> None:
    waits = {"retry_backoff_ms": 60_000, "retry_backoff_max_ms": 60_000}
    made = await transactional(ScriptedBroker(transaction_version=1), **waits)
    assert (await asyncio.wait_for(made.send("t", b"v"), timeout=10)).offset == 0
    await made.close()


async def test_tv2_adds_nothing_and_takes_the_epoch_of_the_end() -> None:
    broker = ScriptedBroker()
    made = await transactional(broker)
    await made.send("t", b"v", partition=0)
    await made.send_offsets_to_transaction({TopicPartition("s", 0): OffsetAndMetadata(5)}, "g")
    await made.commit_transaction()
    await made.begin_transaction()
    await made.send("t", b"v", partition=0)
    await made.commit_transaction()
    await made.close()
    assert ApiKey.ADD_PARTITIONS_TO_TXN not in broker.apis(*TRANSACTION_APIS)
    assert min(broker.versions(ApiKey.PRODUCE)) >= 12
    assert sequences(broker) == [0, 0]
    assert [b.producer_epoch for _i, b in broker.requests(ApiKey.PRODUCE)] == [1, 2]
    assert made.producer_epoch == 3


async def test_an_end_whose_answer_is_lost_is_asked_for_again() -> None:
    broker = ScriptedBroker()
    made = await transactional(broker)
    await made.send("t", b"v", partition=0)
    broker.on(ApiKey.END_TXN, DROP, ErrorCode.concurrent_transactions)
    await made.commit_transaction()
    await made.close()
    ends = broker.requests(ApiKey.END_TXN)
    assert [(end.producer_epoch, end.committed) for end in ends] == [(1, True)] * 3
    assert made.producer_epoch == 2


async def test_tv1_takes_a_new_epoch_when_an_end_may_still_arrive() -> None:
    broker = ScriptedBroker(transaction_version=1)
    made = await transactional(broker)
    await made.send("t", b"v", partition=0)
    broker.on(ApiKey.END_TXN, REFUSE)
    await made.commit_transaction()
    await made.begin_transaction()
    last = broker.requests(ApiKey.INIT_PRODUCER_ID)[-1]
    assert (last.producer_id, last.producer_epoch) == (7, 1)
    assert made.producer_epoch == 2
    await made.close()


@pytest.mark.parametrize("commit", [True, False])
async def test_tv1_an_end_is_told_even_if_the_next_epoch_cannot_be_had(commit: bool) -> None:
    broker = ScriptedBroker(transaction_version=1)
    made = await transactional(broker, max_block_ms=500, clock=SleptClock())
    await made.send("t", b"v", partition=0)
    broker.on(ApiKey.END_TXN, REFUSE)
    broker.on(ApiKey.INIT_PRODUCER_ID, *[ErrorCode.concurrent_transactions] * 100)
    await (made.commit_transaction() if commit else made.abort_transaction())
    assert [end.committed for end in broker.requests(ApiKey.END_TXN)] == [commit]
    with pytest.raises(RetriableError):
        await made.begin_transaction()
    with pytest.raises(IllegalStateError):
        made.send("t", b"w", partition=0)
    broker._actions.clear()
    await made.begin_transaction()
    await made.send("t", b"w", partition=0)
    await made.commit_transaction()
    assert [b.producer_epoch for _i, b in broker.requests(ApiKey.PRODUCE)] == [1, 2]
    assert sequences(broker) == [0, 0]
    await made.close()


async def test_tv1_a_producer_that_is_fenced_before_its_next_epoch_has_committed() -> None:
    broker = ScriptedBroker(transaction_version=1)
    made = await transactional(broker)
    await made.send("t", b"v", partition=0)
    broker.on(ApiKey.END_TXN, REFUSE)
    broker.on(ApiKey.INIT_PRODUCER_ID, ErrorCode.producer_fenced)
    await made.commit_transaction()
    for _ in range(2):
        with pytest.raises(FencedError):
            await made.begin_transaction()
    await made.close()


async def test_a_call_to_the_coordinator_blocks_no_longer_than_it_is_allowed_to() -> None:
    broker = ScriptedBroker()
    broker.on(ApiKey.INIT_PRODUCER_ID, *[ErrorCode.concurrent_transactions] * 100)
    async with producer(
        broker, transactional_id="tx", max_block_ms=500, clock=SleptClock()
    ) as made:
        with pytest.raises(RetriableError):
            await made.init_transactions()
    assert len(broker.requests(ApiKey.INIT_PRODUCER_ID)) < 100


async def test_an_empty_transaction_is_not_told_to_anyone() -> None:
    broker = ScriptedBroker()
    made = await transactional(broker)
    await made.commit_transaction()
    await made.close()
    assert broker.apis(ApiKey.END_TXN) == []


async def test_a_failed_batch_makes_the_transaction_abortable_and_the_producer_goes_on() -> None:
    broker = ScriptedBroker(transaction_version=1)
    made = await transactional(broker)
    broker.on(ApiKey.PRODUCE, ErrorCode.invalid_producer_epoch)
    lost = made.send("t", b"v", partition=0)
    with pytest.raises(AbortableError) as raised:
        await made.commit_transaction()
    assert raised.value.code is ErrorCode.invalid_producer_epoch
    assert lost.exception() is raised.value
    with pytest.raises(AbortableError):
        made.send("t", b"v")
    await made.abort_transaction()
    assert [end.committed for end in broker.requests(ApiKey.END_TXN)] == [False]
    await made.begin_transaction()
    assert made.producer_epoch == 2, "numbers are broken, so a new epoch was taken"
    await made.send("t", b"v", partition=0)
    await made.commit_transaction()
    await made.close()


async def test_a_delivery_timeout_makes_the_transaction_abortable() -> None:
    broker = ScriptedBroker()
    made = await transactional(broker, delivery_timeout_ms=20)
    broker.on(ApiKey.PRODUCE, *[ErrorCode.not_enough_replicas] * 200)
    made.send("t", b"v", partition=0)
    with pytest.raises(DeliveryTimeoutError):
        await made.commit_transaction()
    await made.abort_transaction()
    await made.close()


async def test_fencing_at_the_coordinator_is_fatal() -> None:
    broker = ScriptedBroker()
    made = await transactional(broker)
    await made.send("t", b"v", partition=0)
    broker.on(ApiKey.END_TXN, ErrorCode.producer_fenced)
    with pytest.raises(FencedError):
        await made.commit_transaction()
    with pytest.raises(FencedError):
        await made.begin_transaction()
    await made.close()


async def test_leaving_the_block_with_an_error_aborts() -> None:
    broker = ScriptedBroker()

    async def work() -> None:
        async with producer(broker, transactional_id="tx") as made:
            await made.init_transactions()
            await made.begin_transaction()
            await made.send("t", b"v", partition=0)
            raise KeyError

    with pytest.raises(KeyError):
        await work()
    assert [end.committed for end in broker.requests(ApiKey.END_TXN)] == [False]


@pytest.mark.parametrize("version", [1, 2])
async def test_an_attached_producer_sends_under_the_given_epoch_and_never_ends(
    version: int,
) -> None:
    broker = ScriptedBroker(version)
    made = Producer.attach("b:1", "tx", 9, 4, **broker.options())
    async with made:
        payload = build_batch([Record(0, 1, None, b"a", ()), Record(1, 1, None, b"b", ())])
        first = made.send_batch("t", 0, bytes(payload), 2)
        await made.send("t", b"c", partition=0)
        assert first.result().offset == 0
        with pytest.raises(IllegalStateError):
            await made.commit_transaction()
    batches = [batch for _index, batch in broker.requests(ApiKey.PRODUCE)]
    assert [(b.producer_id, b.producer_epoch, b.base_sequence) for b in batches] == [
        (9, 4, 0),
        (9, 4, 2),
    ]
    adds = broker.apis(ApiKey.ADD_PARTITIONS_TO_TXN)
    assert len(adds) == (1 if version == 1 else 0)
    assert broker.apis(ApiKey.END_TXN, ApiKey.INIT_PRODUCER_ID) == []


async def test_an_encoded_batch_is_stamped_in_place_where_it_can_be() -> None:
    broker = ScriptedBroker()
    batch = build_batch([Record(0, 1, None, b"a", ())])
    memory = bytearray(2 * len(batch))
    memory[len(batch) :] = batch
    own, fixed = memoryview(memory)[len(batch) :], memoryview(bytes(batch))
    async with producer(broker) as made:
        await made.send_batch("t", 0, own, 1)
        await made.send_batch("t", 0, fixed, 1)
    sent = [header for _index, header in broker.requests(ApiKey.PRODUCE)]
    assert [header.base_sequence for header in sent] == [0, 1]
    assert read_header(own) == sent[0]
    assert read_header(fixed).producer_id == -1
    assert bytes(memory[: len(batch)]) == bytes(len(batch))


async def test_only_exactly_one_batch_is_taken_as_a_batch() -> None:
    broker = ScriptedBroker()
    async with producer(broker) as made:
        payload = build_batch([Record(0, 1, None, b"a", ())])
        with pytest.raises(ValueError, match="not one batch of 2"):
            made.send_batch("t", 0, payload, 2)


async def test_a_full_buffer_refuses_and_room_waits() -> None:
    broker = ScriptedBroker()
    async with producer(broker, buffer_memory=100) as made:
        made.send("t", b"x" * 100, partition=0)
        with pytest.raises(RetriableError, match="wait_for_memory"):
            made.send("t", b"y", partition=0)
        await made.wait_for_memory()
        await made.send("t", b"y", partition=0)
    assert len(broker.log) == 2


async def test_acks_zero_is_done_when_it_is_sent() -> None:
    broker = ScriptedBroker()
    async with producer(broker, acks=0, enable_idempotence=False) as made:
        assert (await made.send("t", b"v", partition=0, timestamp_ms=5)).offset == -1


@pytest.mark.parametrize(
    "options",
    [
        {"acks": 1, "enable_idempotence": True},
        {"acks": 1, "transactional_id": "x"},
        {"acks": "some"},
        {"transactional_id": "x", "enable_idempotence": False},
        {"bootstrap_servers": "nowhere:port"},
    ],
)
def test_settings_that_contradict_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Producer(**{"bootstrap_servers": "b:1", **options})


async def test_retries_are_counted() -> None:
    broker = ScriptedBroker()
    broker.on(ApiKey.PRODUCE, *[ErrorCode.not_enough_replicas] * 3)
    async with producer(broker, retries=2, enable_idempotence=False) as made:
        with pytest.raises(RetriableError, match="NOT_ENOUGH"):
            await made.send("t", b"v", partition=0)
    assert len(broker.requests(ApiKey.PRODUCE)) == 3


async def test_a_partitioner_of_ones_own_chooses() -> None:
    def last(topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
        return count - 1

    broker = ScriptedBroker()
    async with producer(broker, **{"partitioner.class": last}) as made:
        sent = await made.send("t", b"v", key=b"k")
        assert sent.partition == PARTITION_COUNT - 1


async def test_records_that_wait_for_metadata_count_for_the_buffer_too() -> None:
    broker = ScriptedBroker()
    async with producer(broker, buffer_memory=100) as made:
        first = made.send("t", b"x" * 100)
        with pytest.raises(RetriableError, match="wait_for_memory"):
            made.send("t", b"y")
        await first
        await made.wait_for_memory()
        await made.send("t", b"y")
        assert made._held_size == 0


async def test_a_sender_that_breaks_leaves_no_record_without_an_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One batch is drained, the next cannot be encoded, the third is queued behind them."""
    broker = ScriptedBroker()

    def build(records: list[Record], **options: Any) -> bytearray:
        if records[0].value == b"bad":
            raise MemoryError
        return build_batch(records, **options)

    monkeypatch.setattr(producer_machine, "build_batch", build)
    made = producer(broker, linger_ms=1)
    await made.start()
    await made.send("t", b"v", partition=0)
    values = ((0, b"v"), (1, b"bad"), (1, b"v"))
    sent = [made.send("t", value, partition=index) for index, value in values]
    answers = await asyncio.wait_for(asyncio.gather(*sent, return_exceptions=True), 5)
    assert [type(answer) for answer in answers] == [FatalError] * 3
    with pytest.raises(FatalError, match="the sender failed: MemoryError"):
        made.send("t", b"v", partition=0)
    await made.close()


async def test_a_closed_producer_fails_what_is_left_and_takes_nothing_more() -> None:
    broker = ScriptedBroker()
    made = producer(broker, linger_ms=60_000)
    await made.start()
    placed, unplaced = made.send("t", b"v", partition=0), made.send("t", b"v")
    await made.close()
    for future in (placed, unplaced):
        assert future.exception() is not None
    with pytest.raises(IllegalStateError):
        made.send("t", b"v")
