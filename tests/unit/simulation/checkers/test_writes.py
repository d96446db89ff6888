"""Lost, misplaced, repeated, reordered and unknown records."""

from dataclasses import replace

import pytest

from oncelog.core.ids import TopicPartition
from oncelog.simulation.history import Acked, Polled, Sent, TopicChanged, TopicChanging, Value
from tests.unit.simulation.checkers.model import T0, T1, Model


def test_an_acknowledged_record_that_is_gone_is_lost() -> None:
    model = Model()
    model.producer("p").send(T0)
    model.logs[T0].clear()
    assert model.signatures() == {"lost-write: the log ends before it"}


def test_a_record_without_an_acknowledgement_may_be_gone() -> None:
    model = Model()
    producer = model.producer("p")
    producer.fail(producer.hand_over(T0))
    assert model.signatures() == set()


def test_only_an_acknowledgement_of_all_replicas_is_a_promise() -> None:
    model = Model()
    model.producer("p").send(T0)
    model.edit(Acked, 0, acks=1)
    model.logs[T0].clear()
    assert model.signatures() == set()


def test_an_acknowledged_record_is_at_its_offset() -> None:
    model = Model()
    producer = model.producer("p")
    producer.send(T0)
    producer.send(T0)
    model.edit(Acked, 1, offset=7)
    assert "lost-write: it is at another offset" in model.signatures()


def test_the_place_of_an_old_duplicate_may_be_forgotten_but_not_the_record() -> None:
    model = Model()
    model.producer("p").send(T0)
    model.edit(Acked, 0, offset=-1)
    assert model.signatures() == set()
    model.logs[T0].clear()
    assert model.signatures() == {"lost-write: it is nowhere in the log"}


def test_records_deleted_on_request_are_not_lost() -> None:
    model = Model()
    producer = model.producer("p")
    producer.send(T0)
    producer.send(T0)
    model.starts[T0] = 1
    assert model.signatures() == {"lost-write: the log starts behind it and nobody asked for that"}
    assert model.signatures(retention=frozenset({T0.topic})) == set()
    model.delete_records(T0, 1)
    assert model.signatures() == set()


def test_an_acknowledgement_may_wait_for_a_frozen_client_while_power_is_lost() -> None:
    model = Model()
    producer = model.producer("p")
    value = producer.hand_over(T0)
    offset = producer.land(T0, value)
    at_s = model.now_s
    model.cut(T0, 0)
    producer.ack(T0, offset, value)
    assert model.kinds(flush_every_message=False, power_losses_s=(at_s,)) == set()
    assert model.kinds() == {"lost-write"}


def test_a_partition_that_could_not_be_read_says_nothing_of_its_tail() -> None:
    model = Model()
    model.producer("p").send(T0)
    model.logs[T0].clear()
    model.unread[T0] = "CORRUPT_MESSAGE"
    assert model.kinds() == {"lag-ends"}


def test_a_partition_that_is_gone_takes_its_records_along() -> None:
    model = Model()
    model.producer("p").send(T0)
    del model.logs[T0]
    assert "lost-write: its partition is gone" in model.signatures()


def test_what_was_sent_to_a_topic_under_deletion_is_not_judged() -> None:
    model = Model()
    producer = model.producer("p")
    producer.send(T0)
    model.record(TopicChanging, "admin", "t", "delete")
    producer.send(T0)
    model.record(TopicChanged, "admin", "t", "delete")
    model.record(TopicChanging, "admin", "t", "create")
    producer.send(T0)
    model.record(TopicChanged, "admin", "t", "create", 2)
    model.logs[T0].clear()
    assert model.signatures() == set()
    again = model.producer("again")
    again.send(T0)
    model.logs[T0].clear()
    assert model.signatures() == {"lost-write: the log ends before it"}


def test_two_readers_agree_on_an_offset() -> None:
    model = Model()
    producer = model.producer("p")
    one, two = producer.send(T0), producer.send(T0)
    model.record(Polled, "r", T0, True, ((0, two),), 1)
    assert "inconsistent-offsets: two records were seen at one offset" in model.signatures()
    assert one != two


def test_an_offset_may_be_given_again_in_a_later_epoch_after_power_took_it() -> None:
    model = Model()
    producer = model.producer("p")
    lost = producer.send(T0)
    model.look()
    at_s = model.now_s
    model.cut(T0, 0)
    model.producer("q").send(T0)
    found = model.judge(flush_every_message=False, power_losses_s=(at_s,))
    assert {a.kind for a in found if a.allowed} == {"lost-write", "inconsistent-offsets"}
    assert not [a for a in found if not a.allowed]
    assert lost in {value for a in found for value in a.values}


def test_a_record_seen_before_a_loss_may_be_at_the_same_offset_again_after_another() -> None:
    """Its first place says nothing of the loss that took what stood there in between."""
    model = Model()
    one, other, reader = model.producer("one"), model.producer("other"), model.reader("r")
    again = one.hand_over(T0)
    one.land(T0, again)
    reader.poll(T0)
    model.cut(T0, 0)
    first_s = model.now_s
    other.send(T0)
    model.look()
    model.cut(T0, 0)
    second_s = model.now_s
    one.ack(T0, one.land(T0, again), again)
    losses = {"flush_every_message": False, "power_losses_s": (first_s, second_s)}
    assert model.kinds(**losses) == set()
    # Without the second loss nothing took the record in between.
    losses["power_losses_s"] = (first_s,)
    assert "lost-write" in model.kinds(**losses)


def test_an_acknowledgement_may_arrive_after_its_offset_was_assigned_again() -> None:
    model = Model()
    slow, other = model.producer("p"), model.producer("q")
    value = slow.hand_over(T0)
    offset = slow.land(T0, value)
    model.look()
    at_s = model.now_s
    model.cut(T0, 0)
    other.send(T0)
    model.look()
    slow.ack(T0, offset, value)
    model.cut(T0, 0)
    model.look()
    found = model.judge(flush_every_message=False, power_losses_s=(at_s, model.now_s))
    assert "inconsistent-offsets" in {a.kind for a in found if a.allowed}
    assert "inconsistent-offsets" not in {a.kind for a in found if not a.allowed}


def test_a_poll_may_return_what_was_fetched_before_its_offset_was_assigned_again() -> None:
    def judged(epoch: int) -> set[str]:
        model = Model()
        unacknowledged = model.producer("p")
        lost = unacknowledged.hand_over(T0)
        unacknowledged.land(T0, lost)
        model.look()
        at_s = model.now_s
        model.cut(T0, 0)
        model.producer("q").send(T0)
        model.look()
        model.record(Polled, "late", T0, False, ((0, lost),), 1, epoch)
        later_s = model.now_s + 0.01
        model.look()
        model.cut(T0, 0)
        return model.kinds(flush_every_message=False, power_losses_s=(at_s, later_s))

    assert "inconsistent-offsets" not in judged(epoch=0)
    # A reader that says that the batch is of the present epoch did not fetch it before.
    assert "inconsistent-offsets" in judged(epoch=1)


def test_an_offset_given_twice_in_one_leader_epoch_is_never_allowed() -> None:
    model = Model()
    model.producer("p").send(T0)
    model.look()
    at_s = model.now_s
    model.cut(T0, 0)
    model.leader_epoch = 0
    model.producer("q").send(T0)
    found = model.signatures(flush_every_message=False, power_losses_s=(at_s,))
    assert found == {"inconsistent-offsets: an offset was given twice in one leader epoch"}


def test_a_log_may_take_a_record_for_a_repeat_after_power_took_a_producer_epoch() -> None:
    model = Model()
    model.look()
    at_s = model.now_s
    first, second = model.producer("p", "id"), model.producer("q", "id2")
    first.begin()
    offset = first.land(T0, first.hand_over(T0))
    first.commit()
    second.begin()
    second.ack(T0, offset, second.hand_over(T0))
    second.abort()
    found = model.judge(flush_every_message=False, power_losses_s=(at_s,))
    assert "inconsistent-offsets" in {a.kind for a in found if a.allowed}
    assert "inconsistent-offsets" not in {a.kind for a in found if not a.allowed}
    assert "inconsistent-offsets" in {a.kind for a in model.judge() if not a.allowed}


def test_an_offset_given_twice_is_found_when_the_second_record_is_gone_too() -> None:
    model = Model()
    losses = []
    for who in ("p", "q"):
        model.producer(who).send(T0)
        model.look()
        losses.append(model.now_s)
        model.cut(T0, 0)
        model.leader_epoch = 0
    found = model.signatures(flush_every_message=False, power_losses_s=tuple(losses))
    assert found == {"inconsistent-offsets: an offset was given twice in one leader epoch"}


def test_a_final_log_that_holds_an_offset_twice_is_found() -> None:
    model = Model()
    model.producer("p").send(T0)
    model.logs[T0].append(model.logs[T0][0])
    expected = {"inconsistent-offsets: the log holds an offset twice", "INV-9: batches overlap"}
    assert expected <= model.signatures()


def test_a_retry_of_an_idempotent_producer_is_written_once() -> None:
    model = Model()
    producer = model.producer("p")
    value = producer.send(T0)
    producer.land(T0, value)
    assert "duplicate: the log holds it twice" in model.signatures()


def test_a_producer_without_an_id_promises_nothing_about_retries() -> None:
    model = Model()
    value = Value("plain", 0)
    model.record(Sent, "plain", value, T0)
    model.append(T0, [value])
    model.append(T0, [value])
    model.record(Acked, "plain", value, T0, 1)
    assert model.signatures() == set()


def test_a_record_that_power_took_may_come_again_elsewhere() -> None:
    model = Model()
    producer, reader = model.producer("p"), model.reader("r")
    other = model.producer("q")
    other.send(T0)
    value = producer.hand_over(T0)
    producer.land(T0, value)
    reader.poll(T0)
    at_s = model.now_s
    model.cut(T0, 0)
    producer.sequences.clear()
    producer.ack(T0, producer.land(T0, value), value)
    found = model.judge(flush_every_message=False, power_losses_s=(at_s,))
    assert "duplicate" in {a.kind for a in found if a.allowed}
    assert not [a for a in found if not a.allowed]
    assert "duplicate" in model.kinds()


def test_a_record_that_no_client_sent_is_found() -> None:
    model = Model()
    value = model.producer("p").send(T0)
    model.append(T0, [Value("nobody", 3)])
    model.append(T1, [value])
    model.append(T0, [replace(value, source="t-0@9")])
    assert {s for s in model.signatures() if s.startswith("never-sent")} == {
        "never-sent: nobody sent it",
        "never-sent: it was sent elsewhere or later",
        "never-sent: it was changed",
    }


def test_a_producers_acknowledgements_do_not_go_back() -> None:
    model = Model()
    producer = model.producer("p")
    first, second = producer.hand_over(T0), producer.hand_over(T0)
    producer.land(T0, second)
    producer.land(T0, first)
    producer.ack(T0, 0, second)
    producer.ack(T0, 1, first)
    assert model.signatures() == {"nonmonotonic-send: a producer's acknowledgements go back"}


@pytest.mark.parametrize("is_lost", [False, True])
def test_acknowledgements_may_go_back_where_power_took_the_second_before_the_first_came(
    is_lost: bool,
) -> None:
    model = Model()
    other = model.producer("q")
    late, early = other.hand_over(T0), other.hand_over(T0)
    other.ack(T0, other.land(T0, early), early)
    lost_s = model.now_s
    if is_lost:
        model.cut(T0, 0)
    other.sequences.clear()
    model.producer("p").send(T0)
    other.ack(T0, other.land(T0, late), late)
    found = "nonmonotonic-send"
    assert found in model.kinds()
    promised = {"flush_every_message": False, "power_losses_s": (lost_s,)}
    assert (found in model.allowed(**promised)) is is_lost
    assert found in model.kinds(flush_every_message=False, power_losses_s=(0.001,))


def test_producers_that_overlap_may_be_written_in_any_order() -> None:
    model = Model()
    one, two = model.producer("p"), model.producer("q")
    first, second = one.hand_over(T0), two.hand_over(T0)
    two.ack(T0, two.land(T0, second), second)
    one.ack(T0, one.land(T0, first), first)
    assert model.signatures() == set()


def test_a_record_does_not_stand_before_one_acknowledged_before_it_was_sent() -> None:
    model = Model()
    one, two = model.producer("p"), model.producer("q")
    second = two.send(T0)
    first = one.hand_over(T0)
    one.fail(first)
    model.logs[T0].clear()
    one.land(T0, first)
    two.sequences.clear()
    two.land(T0, second)
    model.edit(Acked, 0, offset=1)
    what = "a record stands before one that was acknowledged before it was sent"
    assert model.signatures() == {f"nonmonotonic-send: {what}"}


def test_other_topics_are_other_logs() -> None:
    model = Model()
    other = TopicPartition("u", 0)
    model.logs[other] = []
    producer = model.producer("p")
    producer.send(T0)
    producer.send(other)
    assert model.signatures() == set()
