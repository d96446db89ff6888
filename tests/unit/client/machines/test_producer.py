"""The producer machine.

Sequences survive retries (INV-2), order is kept, and every answer has one meaning.
"""

import pytest

from oncelog.client.errors import AbortableError, DeliveryTimeoutError, FatalError, FencedError
from oncelog.client.machines.producer import (
    BatchEnd,
    ProducerBatch,
    ProducerMachine,
    ProducerSettings,
    size_of,
)
from oncelog.core.errors import ErrorCode, InvariantViolation
from oncelog.core.ids import TopicPartition
from oncelog.core.limits import SEQUENCE_MODULUS
from oncelog.protocol.batch import check_crc, read_header
from oncelog.protocol.record import Record, build_batch, iter_records

TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


class Context:
    """One machine, its time, and every partition led by broker 1."""

    def __init__(self, **settings: object) -> None:
        chosen: dict[str, object] = {
            "idempotent": True,
            "transactional": False,
            "retry_delay_ms": lambda _attempts: 10.0,
            "delivery_timeout_ms": 1000.0,
            **settings,
        }
        self.machine = ProducerMachine(ProducerSettings(**chosen))  # type: ignore[arg-type]
        if chosen["idempotent"]:
            self.machine.identify(7, 3)
        self.now_ms = 0.0

    def batch(self, value: bytes = b"v", tp: TopicPartition = TP, count: int = 1) -> ProducerBatch:
        """Append a batch of its own."""
        for _ in range(count):
            batch = self.machine.append(tp, Record(0, 5, None, value, ()), object(), self.now_ms)
        self.machine.seal()
        return batch

    def meet(self, tp: TopicPartition = TP) -> None:
        """The first batch of the partition, with sequence 0, is acknowledged."""
        first = self.batch(tp=tp)
        assert self.drain() == [first]
        self.answer(first)

    def drain(self) -> list[ProducerBatch]:
        """Everything that goes out now, in order."""
        drained: list[ProducerBatch] = []
        while sends := self.machine.drain(self.now_ms, lambda _tp: 1):
            drained += [batch for send in sends for batch in send.batches]
        return drained

    def answer(
        self, batch: ProducerBatch, code: ErrorCode = ErrorCode.none, offset: int = -1
    ) -> list[BatchEnd]:
        """The broker's answer."""
        return self.machine.answered(batch, code, self.now_ms, base_offset=offset)


def test_sequences_are_contiguous_per_partition() -> None:
    context = Context()
    context.meet()
    first, second = context.batch(count=3), context.batch(count=2)
    elsewhere = context.batch(tp=OTHER)
    assert set(map(id, context.drain())) == {id(first), id(second), id(elsewhere)}
    assert (first.base_sequence, second.base_sequence, elsewhere.base_sequence) == (1, 4, 0)


def test_a_leader_that_may_not_know_the_producer_gets_one_batch_until_it_acknowledges() -> None:
    """It would take the second for the first one, if it refused that because it was just made."""
    context = Context()
    batches = [context.batch() for _ in range(3)]
    for answer in (ErrorCode.unknown_topic_or_partition, ErrorCode.none):
        assert context.drain() == batches[:1]
        context.answer(batches[0], answer)
        assert context.drain() == ([] if answer is not ErrorCode.none else batches[1:])
        context.now_ms += 10
    context.answer(batches[1], ErrorCode.not_leader_or_follower)
    context.answer(batches[2], ErrorCode.not_leader_or_follower)
    context.now_ms += 10
    assert context.drain() == [batches[1]], "the next leader may know nothing again"
    context.answer(batches[1])
    assert context.drain() == [batches[2]]


def test_after_a_new_epoch_the_first_batch_goes_out_alone_again() -> None:
    context = Context()
    context.meet()
    context.meet(OTHER)
    context.machine.identify(7, 4)
    first, second = context.batch(), context.batch()
    elsewhere = context.batch(tp=OTHER)
    assert context.drain() == [first, elsewhere]
    assert (first.base_sequence, elsewhere.base_sequence) == (0, 0)
    context.answer(first)
    assert context.drain() == [second]


def test_a_sent_batch_carries_identity_sequence_and_a_right_checksum() -> None:
    context = Context(transactional=True)
    batch = context.batch(b"hello", count=2)
    context.drain()
    assert batch.payload is not None
    header = read_header(batch.payload)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 0)
    assert header.is_transactional
    assert check_crc(batch.payload, 0, header)
    assert [r.value for r in iter_records(batch.payload, 0, header)] == [b"hello", b"hello"]


def test_a_ready_made_batch_is_stamped_in_place() -> None:
    context = Context(transactional=True)
    payload = build_batch([Record(0, 1, b"k", b"a", ()), Record(1, 1, b"k", b"b", ())])
    context.meet()
    context.machine.append_batch(TP, payload, 2, object(), 0)
    (ready_made,) = context.drain()
    header = read_header(payload)
    assert ready_made.payload is payload
    assert (header.producer_id, header.base_sequence, header.is_transactional) == (7, 1, True)
    assert check_crc(payload, 0, header)


def test_a_retry_after_a_lost_connection_keeps_bytes_and_sequence() -> None:
    context = Context()
    batch = context.batch()
    context.drain()
    before = bytes(batch.payload or b"")
    assert context.machine.connection_lost([batch], context.now_ms) == []
    assert context.drain() == []
    context.now_ms = 10
    assert context.drain() == [batch]
    assert batch.base_sequence == 0
    assert bytes(batch.payload or b"") == before


def test_retries_go_out_in_their_first_order_once_all_answers_are_in() -> None:
    context = Context()
    context.meet()
    batches = [context.batch() for _ in range(3)]
    context.drain()
    context.answer(batches[0], ErrorCode.not_leader_or_follower)
    context.now_ms = 100
    assert context.drain() == [], "the others are still in flight"
    context.answer(batches[2], ErrorCode.out_of_order_sequence_number)
    context.answer(batches[1], ErrorCode.out_of_order_sequence_number)
    later = context.batch()
    context.now_ms = 200
    assert context.drain() == [batches[0]]
    context.answer(batches[0])
    assert context.drain() == [*batches[1:], later]
    assert [batch.base_sequence for batch in (*batches, later)] == [1, 2, 3, 4]


def test_at_most_five_batches_are_in_flight_per_partition() -> None:
    context = Context()
    context.meet()
    batches = [context.batch() for _ in range(7)]
    assert context.drain() == batches[:5]
    context.answer(batches[0], offset=0)
    assert context.drain() == [batches[5]]


def test_without_idempotence_one_batch_is_in_flight_so_that_retries_cannot_swap() -> None:
    context = Context(idempotent=False)
    first, second = context.batch(), context.batch()
    assert context.drain() == [first]
    context.answer(first, ErrorCode.not_leader_or_follower)
    context.now_ms = 10
    assert context.drain() == [first]
    context.answer(first, offset=4)
    assert context.drain() == [second]
    assert read_header(second.payload or b"").producer_id == -1


@pytest.mark.parametrize("code", [ErrorCode.none, ErrorCode.duplicate_sequence_number])
def test_a_duplicate_counts_as_acknowledged(code: ErrorCode) -> None:
    context = Context()
    batch = context.batch()
    context.drain()
    (outcome,) = context.answer(batch, code, offset=9)
    assert outcome.error is None
    assert outcome.base_offset == 9
    assert context.machine.is_idle


def test_an_answer_that_comes_twice_changes_nothing() -> None:
    context = Context()
    batch = context.batch()
    context.drain()
    context.answer(batch, offset=1)
    assert context.answer(batch, ErrorCode.producer_fenced) == []


def test_a_gap_with_no_earlier_batch_open_is_final() -> None:
    context = Context(transactional=True)
    batch = context.batch()
    context.drain()
    (outcome,) = context.answer(batch, ErrorCode.out_of_order_sequence_number)
    assert isinstance(outcome.error, AbortableError)
    assert context.machine.sequences_broken


def test_fencing_is_final_and_a_stale_epoch_costs_the_transaction_only() -> None:
    context = Context(transactional=True)
    first, second = context.batch(), context.batch(tp=OTHER)
    context.drain()
    (fenced,) = context.answer(first, ErrorCode.producer_fenced)
    (stale,) = context.answer(second, ErrorCode.invalid_producer_epoch)
    assert isinstance(fenced.error, FencedError)
    assert isinstance(stale.error, AbortableError)


def test_the_delivery_timeout_fails_a_batch_and_blocks_new_numbers() -> None:
    context = Context()
    batch = context.batch()
    context.drain()
    context.machine.connection_lost([batch], 0)
    context.now_ms = 1000
    (outcome,) = context.machine.expire(context.now_ms)
    assert isinstance(outcome.error, DeliveryTimeoutError)
    assert "NETWORK_EXCEPTION" in str(outcome.error)
    context.batch()
    assert context.drain() == []
    assert context.machine.needs_identity
    context.machine.identify(8, 0)
    (fresh,) = context.drain()
    assert (fresh.base_sequence, read_header(fresh.payload or b"").producer_id) == (0, 8)


def test_an_identity_is_never_changed_under_a_numbered_batch() -> None:
    context = Context()
    context.batch()
    context.drain()
    with pytest.raises(InvariantViolation, match="INV-2"):
        context.machine.identify(8, 0)


def test_a_partition_goes_on_where_another_process_ended() -> None:
    context = Context(transactional=True)
    context.meet()
    context.machine.continue_at(TP, 40)
    batch = context.batch(count=3)
    assert context.drain() == [batch]
    assert batch.base_sequence == 40
    context.answer(batch)
    following = context.batch()
    context.drain()
    assert following.base_sequence == 43


def test_a_sequence_is_never_given_over_an_unresolved_batch() -> None:
    context = Context(transactional=True)
    batch = context.batch()
    for _ in range(2):  # queued, then in flight
        with pytest.raises(InvariantViolation, match="INV-2"):
            context.machine.continue_at(TP, 40)
        context.drain()
    context.answer(batch)
    context.machine.continue_at(TP, 40)


def test_abandoning_fails_the_queue_and_stops_retries() -> None:
    context = Context(transactional=True)
    sent = context.batch()
    context.drain()
    context.batch()
    lost = AbortableError(ErrorCode.transaction_abortable, "gone")
    assert [o.error for o in context.machine.abandon(lost)] == [lost]
    (outcome,) = context.machine.connection_lost([sent], 0)
    assert outcome.error is lost
    assert context.machine.is_idle
    assert context.machine.sequences_broken


def test_a_refused_topic_fails_alone() -> None:
    context = Context()
    context.batch()
    other = context.batch(tp=TopicPartition("u", 0))
    refused = FatalError(ErrorCode.invalid_topic_exception)
    assert [o.batch.topic_partition for o in context.machine.reject("t", refused)] == [TP]
    assert context.drain() == [other]


def test_records_linger_until_their_time_or_a_full_batch() -> None:
    context = Context(linger_ms=5.0, batch_size=100)
    record = Record(0, 0, None, b"x" * 20, ())
    first = context.machine.append(TP, record, object(), 0)
    assert context.drain() == []
    assert context.machine.next_deadline_ms(0) == 5.0
    assert context.machine.append(TP, record, object(), 1) is first
    second = context.machine.append(TP, record, object(), 2)
    assert second is not first
    assert context.drain() == [first]
    context.answer(first)
    assert context.drain() == []
    context.now_ms = 7
    assert context.drain() == [second]


def test_each_partitions_oldest_batch_is_timed_by_itself() -> None:
    context = Context(linger_ms=5.0)
    late = context.batch(tp=OTHER)
    context.now_ms = 1
    old = context.batch()
    context.now_ms = 2
    context.batch()
    context.machine.append(OTHER, Record(0, 0, None, b"x", ()), object(), 999.0)
    assert context.machine.next_deadline_ms(2) == 1000.0
    assert [end.batch for end in context.machine.expire(1000.0)] == [late]
    assert context.machine.next_deadline_ms(1000.0) == 1001.0
    assert [end.batch for end in context.machine.expire(1001.0)] == [old]


def test_only_partitions_with_a_batch_to_send_wait_for_a_leader() -> None:
    context = Context(linger_ms=5.0)
    context.batch()
    context.machine.append(OTHER, Record(0, 0, None, b"x", ()), object(), 0)
    assert context.machine.waiting_partitions(0) == [TP]
    assert context.machine.waiting_partitions(5.0) == [TP, OTHER]


def test_all_headers_of_a_record_count_for_its_size() -> None:
    record = Record(0, 0, b"k", b"v", (("a", b"123"), ("b", b"45"), ("c", None)))
    assert size_of(record) == size_of(record._replace(headers=())) + 3 + 5 + 3 * 4


def test_a_flush_ends_the_lingering_of_every_partition() -> None:
    context = Context(linger_ms=5.0)
    record = Record(0, 0, None, b"x", ())
    batches = [context.machine.append(tp, record, object(), 0) for tp in (TP, OTHER)]
    context.machine.seal()
    assert context.drain() == batches


def test_the_newest_batch_of_a_partition_takes_records_until_it_is_sealed() -> None:
    context = Context(batch_size=100)
    record = Record(0, 0, None, b"x" * 50, ())
    assert not context.machine.has_open_batch(TP)
    for _ in range(2):
        context.machine.append(TP, record, object(), 0)
    assert context.machine.has_open_batch(TP)
    context.machine.seal()
    assert not context.machine.has_open_batch(TP)


def test_a_request_holds_at_most_its_size_and_one_batch_per_partition() -> None:
    context = Context(request_size_max=100, batch_size=10_000)
    context.batch(b"x" * 80)
    context.batch(b"y" * 80, tp=OTHER)
    (send,) = context.machine.drain(0, lambda _tp: 1)
    assert len(send.batches) == 1


def test_a_new_leader_gets_nothing_while_the_old_one_owes_answers() -> None:
    context = Context()
    context.meet()
    first, second = context.batch(), context.batch()
    context.machine.drain(0, lambda _tp: 1)
    assert context.machine.drain(0, lambda _tp: 2) == []
    context.answer(first, offset=0)
    (send,) = context.machine.drain(0, lambda _tp: 2)
    assert (send.node_id, send.batches) == (2, (second,))


def test_sequences_wrap_at_two_to_the_31() -> None:
    context = Context()
    context.meet()
    lane = context.machine._lane(TP)
    lane.next_sequence = SEQUENCE_MODULUS - 1
    first, second = context.batch(count=3), context.batch()
    context.drain()
    assert (first.base_sequence, second.base_sequence) == (SEQUENCE_MODULUS - 1, 2)


def test_flush_waits_for_the_batches_before_it_only() -> None:
    context = Context()
    first = context.batch()
    context.drain()
    serial = context.machine.last_serial
    context.batch()
    assert not context.machine.is_resolved_up_to(serial)
    context.answer(first, offset=0)
    assert context.machine.is_resolved_up_to(serial)


def test_buffered_bytes_are_counted_until_the_answer() -> None:
    context = Context()
    batch = context.batch(b"x" * 50)
    context.drain()
    assert context.machine.buffered_size == batch.size > 50
    context.answer(batch, offset=0)
    assert context.machine.buffered_size == 0
