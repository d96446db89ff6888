"""Skipped, repeated and unseen records."""

from dataclasses import replace

import pytest

from oncelog.simulation.history import (
    BrokerStarted,
    Fault,
    Polled,
    Positioned,
    RecordsDeleted,
)
from tests.unit.simulation.checkers.model import T0, Model


def filled(count: int) -> Model:
    model = Model()
    producer = model.producer("p")
    for _ in range(count):
        producer.send(T0)
    return model


def values(model: Model, *offsets: int) -> tuple[tuple[int, object], ...]:
    records = {r.offset: r.value for batch in model.logs[T0] for r in batch.records}
    return tuple((offset, records[offset]) for offset in offsets)


def test_a_reader_does_not_go_back() -> None:
    model = filled(3)
    reader = model.reader("r")
    reader.poll(T0)
    model.record(Polled, "r", T0, True, values(model, 1, 2), 3)
    assert model.signatures() == {"nonmonotonic-poll: a poll begins before the reader's position"}


def test_a_reader_whose_position_was_set_may_go_back() -> None:
    model = filled(3)
    reader = model.reader("r")
    reader.poll(T0)
    reader.seek(T0, 1)
    reader.poll(T0)
    assert model.signatures() == set()


def test_offsets_rise_within_a_poll() -> None:
    model = filled(3)
    model.record(Polled, "r", T0, True, values(model, 0, 2, 1), 3)
    assert model.signatures() == {"nonmonotonic-poll: offsets go back within a poll"}


def test_the_position_does_not_go_back() -> None:
    model = filled(3)
    model.record(Polled, "r", T0, True, values(model, 0, 1, 2), 2)
    assert model.signatures() == {"nonmonotonic-poll: the position goes back"}


def test_a_poll_leaves_out_nothing_inside() -> None:
    model = filled(3)
    model.reader("other").poll(T0)
    model.record(Polled, "r", T0, True, values(model, 0, 2), 3)
    assert model.signatures() == {"skipped-poll: inside a poll"}


def test_a_poll_leaves_out_nothing_between_two() -> None:
    model = filled(3)
    model.reader("other").poll(T0)
    model.record(Polled, "r", T0, True, values(model, 0), 1)
    model.record(Polled, "r", T0, True, values(model, 2), 3)
    assert model.signatures() == {"skipped-poll: between polls"}


def test_a_position_behind_the_last_record_leaves_out_what_stands_between() -> None:
    model = filled(3)
    model.reader("other").poll(T0)
    model.record(Polled, "r", T0, True, values(model, 0), 3)
    assert model.signatures() == {"skipped-poll: between polls"}


def test_aborted_records_and_markers_are_left_out_by_right() -> None:
    model = Model()
    producer, reader = model.producer("p", "id"), model.reader("r")
    for end in (producer.abort, producer.commit, producer.abort):
        producer.begin()
        producer.send(T0)
        end()
    reader.poll(T0)
    assert model.signatures() == set()


def test_what_was_deleted_before_the_poll_may_be_left_out() -> None:
    model = filled(3)
    model.record(Polled, "r", T0, True, values(model, 0), 1)
    model.record(RecordsDeleted, "admin", T0, 2)
    model.record(Polled, "r", T0, True, values(model, 2), 3)
    assert model.signatures() == set()


def test_a_record_that_readers_went_past_was_seen_by_one() -> None:
    model = filled(3)
    model.record(Positioned, "r", T0, 0, "reset")
    model.record(Polled, "r", T0, True, values(model, 0), 1)
    model.record(Positioned, "q", T0, 2, "committed offset")
    model.record(Polled, "q", T0, True, values(model, 2), 3)
    assert model.signatures() == {"unseen: no reader was given it"}


def test_a_seek_leaves_records_unseen_by_right() -> None:
    model = filled(3)
    reader = model.reader("r")
    reader.poll(T0, 1)
    reader.seek(T0, 2)
    reader.poll(T0)
    assert model.signatures() == set()


def test_records_behind_every_reader_are_not_unseen() -> None:
    model = filled(3)
    model.reader("r").poll(T0, 2)
    assert model.signatures() == set()


def test_an_offset_that_readers_passed_before_power_was_lost_may_be_unseen() -> None:
    model = filled(2)
    reader = model.reader("r")
    reader.poll(T0)
    at_s = model.now_s
    model.cut(T0, 1)
    model.producer("q").send(T0)
    found = model.judge(flush_every_message=False, power_losses_s=(at_s,))
    assert "unseen" in {a.kind for a in found if a.allowed}
    assert not [a for a in found if not a.allowed]
    assert "unseen" in model.kinds()


def test_a_poll_fetched_before_power_was_lost_shows_the_log_as_it_was() -> None:
    model = Model()
    producer = model.producer("p", "id")
    producer.begin()
    lost = producer.send(T0)
    producer.commit()
    later = producer.hand_over(T0)
    producer.land(T0, later)
    at_s = model.now_s
    model.cut(T0, 0)
    other = model.producer("q")
    for _ in range(3):
        other.send(T0)
    model.record(Polled, "r", T0, True, ((0, lost), (2, later)), 3)
    found = model.judge(flush_every_message=False, power_losses_s=(at_s,))
    assert "skipped-poll" in {a.kind for a in found if a.allowed}
    assert not [a for a in found if not a.allowed]
    assert "skipped-poll" in model.kinds()


def test_a_poll_saw_an_abort_that_power_took() -> None:
    model = Model()
    model.look()
    producer = model.producer("p", "id")
    producer.begin()
    producer.send(T0)
    # The marker, which power took, was behind what the poll went past.
    model.record(Polled, "r", T0, True, (), 0)
    model.record(Polled, "r", T0, True, (), 1)
    at_s = model.now_s
    model.cut(T0, 1)
    producer.commit()
    found = model.judge(flush_every_message=False, power_losses_s=(at_s,))
    assert "skipped-poll" in {a.kind for a in found if a.allowed}
    assert "skipped-poll" not in {a.kind for a in found if not a.allowed}
    assert "skipped-poll" in {a.kind for a in model.judge() if not a.allowed}


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_poll_saw_an_abort_that_is_damaged_now(is_whole: bool) -> None:
    """A reader can read up to the damage only, and nothing there says what the marker was."""
    model = Model()
    producer, reader = model.producer("p", "id"), model.reader("r")
    producer.begin()
    producer.send(T0)
    producer.abort()
    reader.poll(T0)
    model.record(Fault, "", "flip-bit", "/data/t-0/0.log: bit 1 of byte 99 flipped")
    damaged_s = model.history.events[-1].at_s
    model.record(BrokerStarted, "broker-0", 1)
    model.logs[T0].pop()
    final = model.final()
    kept = final.partitions[T0]
    shown = replace(kept, last_stable_offset=2, high_watermark=2, committed=kept.batches[0].records)
    partitions = {**final.partitions, T0: shown}
    unread = {} if is_whole else {T0: "CORRUPT_MESSAGE"}
    final = replace(final, partitions=partitions, unread=unread)
    assert "skipped-poll" in model.kinds(final)
    found = model.allowed(final, damage_s=(damaged_s,))
    assert ("skipped-poll" in found) is not is_whole


def test_a_client_may_hand_out_late_what_it_fetched_before_power_was_lost() -> None:
    model = Model()
    model.look()
    producer = model.producer("p", "id")
    producer.begin()
    producer.send(T0)
    model.reader("r").seek(T0, 0)
    at_s = model.now_s
    model.cut(T0, 1)
    model.look()
    # What was fetched had an abort behind the record, which power took.
    model.record(Polled, "r", T0, True, (), 2)
    producer.commit()
    found = model.judge(flush_every_message=False, power_losses_s=(at_s,))
    assert "skipped-poll" in {a.kind for a in found if a.allowed}
    assert "skipped-poll" not in {a.kind for a in found if not a.allowed}
    assert "skipped-poll" in {a.kind for a in model.judge() if not a.allowed}


def read_past_a_lost_tail(leader_epoch: int, *, goes_back: bool = False) -> Model:
    """A reader has read 4 records of epoch 0; 2 of them are lost, and 4 of epoch 1 follow."""
    model = filled(4)
    model.record(Polled, "r", T0, True, values(model, 0, 1, 2, 3), 4, leader_epoch)
    model.cut(T0, 2)
    producer = model.producer("q")
    for _ in range(4):
        producer.send(T0)
    if goes_back:
        model.record(Positioned, "r", T0, 2, "truncated")
        model.record(Polled, "r", T0, True, values(model, 2, 3, 4, 5), 6, 1)
    else:
        model.record(Polled, "r", T0, True, values(model, 4, 5), 6, 1)
    return model


BEHIND = "skipped-poll: went on behind a lost tail"


def not_allowed(model: Model) -> set[str]:
    return model.signatures(flush_every_message=False, power_losses_s=(model.now_s / 2,))


def test_a_reader_that_compares_epochs_does_not_go_on_behind_a_lost_tail() -> None:
    assert BEHIND in not_allowed(read_past_a_lost_tail(0))


def test_a_reader_that_went_back_to_the_end_of_its_epoch_is_right() -> None:
    assert BEHIND not in not_allowed(read_past_a_lost_tail(0, goes_back=True))


def test_a_reader_that_knows_no_epochs_cannot_notice_a_lost_tail() -> None:
    assert BEHIND not in not_allowed(read_past_a_lost_tail(-1))
