"""Which offsets may be visible when, and copies."""

import pytest

from oncelog.simulation.history import OffsetsFetched, TransactionOffsets
from tests.unit.simulation.checkers.model import OUT, T0, Model


def fetched(model: Model, offset: int, asked_ago_s: float = 0.0) -> None:
    asked_s = round(model.now_s - asked_ago_s, 3)
    model.record(OffsetsFetched, "r", "g", {T0: offset}, asked_s, True)


def test_an_accepted_commit_is_fetched() -> None:
    model = Model()
    model.commit_offset("c", "g", T0, 3)
    fetched(model, 3)
    assert model.signatures() == set()


def test_an_offset_that_no_client_committed_is_found() -> None:
    model = Model()
    model.commit_offset("c", "g", T0, 3)
    fetched(model, 4)
    assert model.signatures() == {"INV-6: an offset that nobody committed"}


def test_a_later_commit_replaces_an_earlier_one() -> None:
    model = Model()
    model.commit_offset("c", "g", T0, 3)
    model.commit_offset("c", "g", T0, 5)
    fetched(model, 3)
    assert model.signatures() == {"INV-6: an offset that a later commit had replaced"}
    assert model.kinds(flush_every_message=False, power_losses_s=(0.045,)) == set()
    assert model.kinds(flush_every_message=False, power_losses_s=(0.025,)) == {"INV-6"}


def test_a_commit_under_way_counts_either_way() -> None:
    for offset in (3, 5):
        model = Model()
        model.commit_offset("c", "g", T0, 3)
        model.commit_offset("c", "g", T0, 5)
        fetched(model, offset, asked_ago_s=0.01)
        assert model.signatures() == set()


def test_a_commit_in_doubt_may_take_effect_late_or_never() -> None:
    for offset in (3, 4):
        model = Model()
        model.commit_offset("d", "g", T0, 4, "lost")
        model.commit_offset("c", "g", T0, 3)
        fetched(model, offset)
        assert model.signatures() == set()


def test_a_refused_commit_is_never_visible() -> None:
    model = Model()
    model.commit_offset("c", "g", T0, 3)
    model.commit_offset("d", "g", T0, 4, "refused")
    fetched(model, 4)
    what = "an offset of an aborted transaction or a refused commit"
    assert model.signatures() == {f"INV-6: {what}"}


def test_an_offset_is_not_visible_before_its_commit_was_asked_for() -> None:
    model = Model()
    fetched(model, 3)
    model.commit_offset("c", "g", T0, 3)
    assert model.signatures() == {"INV-6: an offset before its commit was asked for"}


def test_a_transactions_offsets_are_visible_when_it_has_committed() -> None:
    model = Model()
    producer = model.producer("p", "id")
    model.commit_offset("c", "g", T0, 1)
    producer.begin()
    producer.offsets("g", T0, 3)
    fetched(model, 1)
    producer.commit()
    fetched(model, 3)
    assert model.signatures() == set()
    fetched(model, 1)
    assert model.signatures() == {"INV-6: an offset that a later commit had replaced"}


def test_a_transactions_offsets_are_not_visible_while_it_is_open() -> None:
    model = Model()
    producer = model.producer("p", "id")
    producer.begin()
    producer.offsets("g", T0, 3)
    fetched(model, 3)
    producer.commit()
    assert model.signatures() == {"INV-6: an offset before its commit was asked for"}


def test_an_aborted_transactions_offsets_are_never_visible() -> None:
    model = Model()
    producer = model.producer("p", "id")
    producer.begin()
    producer.offsets("g", T0, 3)
    producer.abort()
    fetched(model, 3)
    what = "an offset of an aborted transaction or a refused commit"
    assert model.signatures() == {f"INV-6: {what}"}


def test_a_transaction_in_doubt_counts_either_way() -> None:
    for offset in (1, 3):
        model = Model()
        producer = model.producer("p", "id")
        model.commit_offset("c", "g", T0, 1)
        producer.begin()
        producer.offsets("g", T0, 3)
        producer.commit(answered=False, arrives=offset == 3)
        fetched(model, offset)
        assert model.signatures() == set()


def test_the_order_is_that_of_the_log_and_not_that_of_the_markers() -> None:
    model = Model()
    producer = model.producer("p", "id")
    producer.begin()
    producer.offsets("g", T0, 3)
    model.commit_offset("c", "g", T0, 5)
    producer.commit()
    fetched(model, 5)
    assert model.signatures() == set()


def test_offsets_at_the_end_are_the_latest() -> None:
    model = Model()
    model.commit_offset("c", "g", T0, 3)
    model.commit_offset("c", "g", T0, 5)
    model.offsets["g"][T0] = 3
    assert model.signatures() == {"INV-6: an offset that a later commit had replaced"}
    del model.offsets["g"][T0]
    assert model.signatures() == {"INV-6: a committed offset is gone"}


def test_a_group_that_was_not_asked_for_is_not_judged() -> None:
    model = Model()
    model.commit_offset("c", "g", T0, 3)
    model.offsets.clear()
    assert model.signatures() == set()


class Job:
    """A consume-transform-produce job over T0 with three records."""

    def __init__(self) -> None:
        self.model = Model()
        source = self.model.producer("s")
        for _ in range(3):
            source.send(T0)
        self.reader = self.model.reader("p")
        self.producer = self.model.producer("p", "id")

    def copy(self, *offsets: int, commit: bool = True, upto: int | None = None) -> None:
        self.reader.poll(T0, 1)
        self.producer.begin()
        for offset in offsets:
            self.producer.send(OUT, source=f"t-0@{offset}")
        self.producer.offsets("g", T0, upto if upto is not None else offsets[-1] + 1)
        if commit:
            self.producer.commit()
        else:
            self.producer.abort()


def test_a_job_that_copies_each_record_once_is_passed() -> None:
    job = Job()
    job.copy(0)
    job.copy(1, commit=False)
    job.copy(1, 2)
    assert job.model.signatures() == set()


def test_a_record_is_not_copied_twice() -> None:
    job = Job()
    job.copy(0)
    job.copy(0, 1)
    assert job.model.signatures() == {"copies: a record was copied twice"}


def test_no_record_below_the_committed_offset_is_missing() -> None:
    job = Job()
    job.copy(0)
    job.copy(2)
    what = "copies: a record below the committed offset was not copied"
    assert job.model.signatures() == {what}


def test_no_record_is_copied_without_its_offset() -> None:
    job = Job()
    job.copy(0, 1, upto=1)
    assert job.model.signatures() == {"copies: a record was copied without its offset"}


def test_copies_are_excused_where_power_took_offsets() -> None:
    job = Job()
    job.copy(0)
    at_s = job.model.now_s
    job.copy(0, 1)
    lost = {"flush_every_message": False, "power_losses_s": (at_s,)}
    assert job.model.kinds(**lost) == set()
    assert job.model.allowed(**lost) == {"copies"}


def test_what_a_job_jumped_over_is_not_missing() -> None:
    job = Job()
    job.copy(0)
    job.reader.seek(T0, 2)
    job.copy(2)
    assert job.model.signatures() == set()


@pytest.mark.parametrize("stable", [True, False])
def test_only_stable_answers_are_judged(stable: bool) -> None:
    model = Model()
    model.record(OffsetsFetched, "r", "g", {T0: 9}, 0.0, stable)
    assert bool(model.signatures()) is stable
    assert not list(model.history.of(TransactionOffsets))
