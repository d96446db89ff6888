"""Correct histories of any shape are passed, and each way of spoiling them is found."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oncelog.core.ids import TopicPartition
from oncelog.simulation.checkers import CHECKERS
from oncelog.simulation.final import FinalState
from oncelog.simulation.history import Acked, Polled, SendFailed, TransactionEnded
from tests.unit.simulation.checkers.model import T0, T1, Model, Producer

STEPS = (
    "begin", "send", "send", "send", "batch", "in doubt", "lost", "refused", "commit", "abort",
    "commit in doubt", "commit lost", "die", "offsets", "copy", "poll", "poll one", "commit offset",
    "commit offset in doubt", "commit offset refused", "fetch", "delete", "look",
)  # fmt: skip

steps = st.lists(
    st.tuples(st.sampled_from(STEPS), st.integers(0, 3), st.integers(0, 1)), max_size=60
)


class Run:
    """Four producers (two share an id), two readers and a copying job over one model."""

    def __init__(self) -> None:
        self.model = Model()
        self.producers = [
            self.model.producer("plain"),
            self.model.producer("a", "id-a"),
            self.model.producer("b", "id-b", version=2),
            self.model.producer("c", "id-a"),
        ]
        self.losses_s: list[float] = []
        self.readers = [self.model.reader("rc"), self.model.reader("ru", committed=False)]

    def step(self, name: str, who: int, index: int) -> None:
        producer, partition = self.producers[who], (T0, T1)[index]
        if name == "power":
            self.lose_power(who)
        elif name in ("poll", "poll one"):
            self.readers[index].poll((T0, T1)[who % 2], 1 if name == "poll one" else 1000)
        elif name == "look":
            self.model.look()
        elif name == "delete":
            offset = self.model.stable(partition) // 2
            self.model.delete_records(partition, max(offset, self.model.starts[partition]))
        elif name == "fetch":
            self.model.fetch_offsets("job", "g")
        elif name.startswith("commit offset"):
            outcome = {"in doubt": "written", "refused": "refused"}.get(name[14:], "ok")
            self.model.commit_offset("job", "g", partition, who, outcome)
        elif producer.ids[0] < 0:
            producer.initialize()
        elif producer.id and not producer.in_transaction:
            producer.begin()
        else:
            self.produce(producer, name, partition)

    def produce(self, producer: Producer, name: str, partition: TopicPartition) -> None:
        if name == "send":
            producer.send(partition)
        elif name == "batch":
            values = [producer.hand_over(partition) for _ in range(3)]
            producer.ack(partition, producer.land(partition, *values), *values)
        elif name == "in doubt":
            value = producer.hand_over(partition)
            producer.land(partition, value)
            producer.fail(value)
        elif name in ("lost", "refused"):
            producer.fail(producer.hand_over(partition), certain=name == "refused")
        elif producer.id:
            self.end(producer, name)

    def end(self, producer: Producer, name: str) -> None:
        failed = {e.value for e in self.model.history.of(SendFailed) if e.who == producer.who}
        if any(value.transaction == producer.transaction for value in failed):
            # A producer that has given up a record does not commit.
            name = "abort"
        if name == "commit":
            producer.commit()
        elif name == "abort":
            producer.abort()
        elif name == "commit in doubt":
            producer.commit(answered=False)
            producer.initialize()
        elif name == "commit lost":
            producer.commit(answered=False, arrives=False)
            producer.initialize()
        elif name == "die":
            producer.initialize()
        elif name == "offsets":
            producer.offsets("g", T0, self.model.stable(T0))

    def lose_power(self, share: int) -> None:
        """Take a part of each log's tail; everybody begins anew."""
        model = self.model
        self.losses_s.append(round(model.now_s, 3))
        for partition in (T0, T1):
            lost = len(model.logs[partition]) * share // 6
            if lost:
                model.cut(partition, model.logs[partition][-lost].first_offset)
        model.leader_epoch += 1
        for producer in self.producers:
            if producer.ids[0] >= 0:
                producer.initialize()
        for reader in self.readers:
            for partition, position in reader.positions.items():
                end = model.stable(partition) if reader.committed else model.end(partition)
                if position > end:
                    reader.seek(partition, end, "reset")
        model.look()

    def finish(self) -> FinalState:
        for producer in self.producers:
            if producer.id and producer.ids[0] >= 0:
                producer.initialize()
        last = self.model.producer("last", "id-last")
        for end in (last.abort, last.commit):
            last.begin()
            for partition in (T0, T1, T0, T1):
                last.send(partition)
            last.offsets("h", T0, self.model.stable(T0))
            end()
        plain = self.model.producer("last-plain")
        plain.send(T0)
        plain.send(T0)
        self.model.look()
        for reader in self.readers:
            reader.poll(T0)
            reader.poll(T1)
            reader.settle()
        self.model.look()
        self.model.fetch_offsets("job", "g")
        return self.model.final()


def played(script: list[tuple[str, int, int]]) -> tuple[Run, FinalState]:
    run = Run()
    for name, who, index in script:
        run.step(name, who, index)
    return run, run.finish()


calm = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@calm
@given(steps)
def test_a_correct_history_is_passed(script: list[tuple[str, int, int]]) -> None:
    run, final = played(script)
    assert [a for a in run.model.judge(final) if not a.allowed] == []


@calm
@given(steps)
def test_only_cycles_of_writes_are_allowed_in_a_correct_history(
    script: list[tuple[str, int, int]],
) -> None:
    run, final = played(script)
    assert run.model.allowed(final) <= {"G0"}


# The model cannot lose what DeleteRecords has cut the transaction of.
LOSING_STEPS = (*(step for step in STEPS if step != "delete"), "power", "power")
with_losses = st.lists(
    st.tuples(st.sampled_from(LOSING_STEPS), st.integers(0, 3), st.integers(0, 1)), max_size=60
)


@calm
@given(with_losses)
def test_what_power_took_is_allowed_where_messages_are_not_flushed(
    script: list[tuple[str, int, int]],
) -> None:
    run, final = played(script)
    losses = tuple(run.losses_s)
    found = run.model.judge(final, flush_every_message=False, power_losses_s=losses)
    assert [a for a in found if not a.allowed] == []


@calm
@given(with_losses)
def test_what_power_took_is_found_where_every_message_is_flushed(
    script: list[tuple[str, int, int]],
) -> None:
    run, final = played(script)
    left = {record.value for log in run.model.logs.values() for b in log for record in b.records}
    starts = run.model.starts
    acked = {
        event.value
        for event in run.model.history.of(Acked)
        if event.offset >= starts[event.topic_partition]
    }
    lost = run.model.kinds(final, power_losses_s=tuple(run.losses_s))
    assert ("lost-write" in lost) == bool(acked - left)


def drop_the_tail(run: Run) -> set[str]:
    run.model.logs[T0].pop()
    return {"lost-write"}


def drop_from_the_middle(run: Run) -> set[str]:
    log = run.model.logs[T0]
    del log[-3]
    return {"INV-9"}


def repeat_a_batch(run: Run) -> set[str]:
    model = run.model
    last = model.logs[T0][-1]
    values = [record.value for record in last.records if record.value is not None]
    model.append(T0, values, (last.producer_id, last.producer_epoch), last.first_sequence)
    return {"duplicate", "INV-2"}


def swap_two_batches(run: Run) -> set[str]:
    log = run.model.logs[T0]
    one, two = log[-2], log[-1]
    log[-2] = replace(
        one,
        records=tuple(
            replace(r, value=v.value) for r, v in zip(one.records, two.records, strict=True)
        ),
    )
    log[-1] = replace(
        two,
        records=tuple(
            replace(r, value=v.value) for r, v in zip(two.records, one.records, strict=True)
        ),
    )
    return {"lost-write", "inconsistent-offsets"}


def commit_what_was_aborted(run: Run) -> set[str]:
    _flip_marker(run, "abort", "commit")
    # Markers may be repeated, so a log without its head may have had the abort there.
    return {"aborted-read"} if run.model.starts[T1] else {"aborted-read", "INV-4"}


def abort_a_part_of_what_was_committed(run: Run) -> set[str]:
    _flip_marker(run, "commit", "abort")
    return {"torn-transaction"} if run.model.starts[T1] else {"torn-transaction", "INV-4"}


def _flip_marker(run: Run, old: str, new: str) -> None:
    log = run.model.logs[T1]
    places = [i for i, batch in enumerate(log) if batch.marker == old]
    log[places[-1]] = replace(log[places[-1]], marker=new)


def forget_a_marker(run: Run) -> set[str]:
    log = run.model.logs[T1]
    assert log[-1].marker
    log.pop()
    return {"torn-transaction", "INV-4", "lag-ends"}


def go_back_to_an_old_offset(run: Run) -> set[str]:
    run.model.offsets["h"][T0] -= 1
    return {"INV-6"}


def lose_an_offset(run: Run) -> set[str]:
    del run.model.offsets["h"][T0]
    return {"INV-6"}


def go_back_in_epochs(run: Run) -> set[str]:
    model = run.model
    log = model.logs[T1]
    place = next(
        i for i in range(len(log) - 1, -1, -1) if log[i].producer_id == log[-1].producer_id
    )
    log[place] = replace(log[place], producer_epoch=log[place].producer_epoch + 1)
    model.append(T1, (), (log[-1].producer_id, 0), marker="abort")
    return {"INV-5"}


TAMPERINGS: list[Callable[[Run], set[str]]] = [
    drop_the_tail,
    drop_from_the_middle,
    repeat_a_batch,
    swap_two_batches,
    commit_what_was_aborted,
    abort_a_part_of_what_was_committed,
    forget_a_marker,
    go_back_to_an_old_offset,
    lose_an_offset,
    go_back_in_epochs,
]


@pytest.mark.parametrize("tamper", TAMPERINGS, ids=lambda tamper: tamper.__name__)
@settings(calm, max_examples=15)
@given(script=steps)
def test_what_was_done_to_the_logs_is_found(
    tamper: Callable[[Run], set[str]], script: list[tuple[str, int, int]]
) -> None:
    run, _ = played(script)
    expected = tamper(run)
    assert expected <= run.model.kinds()


def _last_poll(run: Run, who: str) -> int:
    events = [e for e in run.model.history.events if isinstance(e, Polled)]
    return max(i for i, e in enumerate(events) if e.who == who and len(e.records) > 1)


def skip_in_a_poll(run: Run) -> set[str]:
    index = _last_poll(run, "rc")
    poll = [e for e in run.model.history.events if isinstance(e, Polled)][index]
    run.model.edit(Polled, index, records=poll.records[1:])
    return {"skipped-poll"}


def reorder_a_poll(run: Run) -> set[str]:
    index = _last_poll(run, "rc")
    poll = [e for e in run.model.history.events if isinstance(e, Polled)][index]
    run.model.edit(Polled, index, records=poll.records[::-1])
    return {"nonmonotonic-poll"}


def show_what_is_aborted(run: Run) -> set[str]:
    index = _last_poll(run, "ru")
    run.model.edit(Polled, index, committed=True)
    return {"aborted-read"}


def acknowledge_elsewhere(run: Run) -> set[str]:
    acks = [e for e in run.model.history.events if isinstance(e, Acked)]
    run.model.edit(Acked, len(acks) - 1, offset=acks[-1].offset + 1)
    return {"lost-write", "duplicate"}


def end_the_other_way(run: Run) -> set[str]:
    ends = [e for e in run.model.history.events if isinstance(e, TransactionEnded)]
    run.model.edit(TransactionEnded, len(ends) - 1, commit=False)
    return {"aborted-read"}


@pytest.mark.parametrize(
    "tamper",
    [
        skip_in_a_poll,
        reorder_a_poll,
        show_what_is_aborted,
        acknowledge_elsewhere,
        end_the_other_way,
    ],
    ids=lambda tamper: tamper.__name__,
)
@settings(calm, max_examples=15)
@given(script=steps)
def test_what_was_done_to_the_history_is_found(
    tamper: Callable[[Run], set[str]], script: list[tuple[str, int, int]]
) -> None:
    run, final = played(script)
    expected = tamper(run)
    assert expected <= run.model.kinds(final)


@pytest.mark.parametrize("name", CHECKERS)
def test_every_checker_says_what_it_looks_for_and_what_excuses_it(name: str) -> None:
    text = CHECKERS[name].__doc__ or ""
    assert any(word in text.lower() for word in ("excuse", "allowed", "nothing"))


def test_an_empty_run_has_nothing_wrong() -> None:
    model = Model()
    assert model.judge(FinalState({})) == []
