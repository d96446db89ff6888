"""Each workload against a broker: it does its work, survives cut connections, and settles."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from oncelog.client import TopicPartition
from oncelog.protocol.batch import iter_headers
from oncelog.simulation.checkers import Promise, judge
from oncelog.simulation.final import FinalState
from oncelog.simulation.history import (
    Acked,
    Event,
    History,
    OffsetsCommitted,
    OffsetsFetched,
    Polled,
    Positioned,
    ProducerFenced,
    ProducerInitialized,
    SendFailed,
    Sent,
    TopicChanged,
    TransactionBegan,
    TransactionEnded,
    TransactionEnding,
    TransactionOffsets,
    TransactionUnknown,
)
from oncelog.simulation.reading import read_final_state
from oncelog.simulation.workloads import WORKLOADS
from oncelog.simulation.workloads.journal import Journal, supervise
from tests.unit.simulation.workloads.rig import Rig, in_virtual_time

pytestmark = pytest.mark.slow

TOPICS = {"a": 2, "b": 3}
CUTS = 0.03
SETTLE_BOUND_S = 60.0


def counts(history: History) -> Counter[type[Event]]:
    return Counter(type(event) for event in history.events)


async def judged(rig: Rig, *topics: str) -> list[str]:
    assert set(rig.states().values()) == {"settled"}, rig.states()
    final = await read_final_state(rig.context("final"), topics or TOPICS)
    assert not final.unread
    assert transactions_without_outcome(rig.history) == set()
    promise = Promise(flush_every_message=True, settle_bound_s=SETTLE_BOUND_S)
    return [found.detail for found in judge(rig.history, final, promise) if not found.allowed]


def transactions_without_outcome(history: History) -> set[tuple[str, int]]:
    """Those of which a client neither wrote how they ended nor that it cannot know."""
    began = {(event.who, event.transaction) for event in history.of(TransactionBegan)}
    ended = {(event.who, event.transaction) for event in history.of(TransactionEnded)}
    unknown = {(event.who, event.transaction) for event in history.of(TransactionUnknown)}
    return began - ended - unknown


def copies_complaints(final: FinalState, sources: set[str], target: str) -> list[str]:
    """Each committed record of the sources is copied once."""
    wanted = {
        f"{tp}@{record.offset}"
        for tp, partition in final.partitions.items()
        if tp.topic in sources
        for record in partition.committed
    }
    copied = [
        record.value.source
        for tp, partition in final.partitions.items()
        if tp.topic == target
        for record in partition.committed
        if record.value is not None
    ]
    found = [f"{source} was copied twice" for source in set(copied) if copied.count(source) > 1]
    found += [f"{source} was not copied" for source in sorted(wanted - set(copied))]
    return found + [f"{source} is no committed record" for source in sorted(set(copied) - wanted)]


def sent_are_resolved(history: History) -> bool:
    sent = [event.value for event in history.of(Sent)]
    resolved = [event.value for event in history.of(Acked)]
    resolved += [event.value for event in history.of(SendFailed)]
    return sorted(sent) == sorted(resolved)


@pytest.mark.parametrize("cuts", [0.0, CUTS])
def test_an_idempotent_producer_has_each_record_acknowledged_or_failed(
    tmp_path: Path, cuts: float
) -> None:
    async def story(rig: Rig) -> None:
        await rig.create(**TOPICS)
        await rig.run(4, WORKLOADS["idempotent"](rig.context("c", topics=TOPICS)), cuts=cuts)
        assert await judged(rig) == []
        assert sent_are_resolved(rig.history)
        assert counts(rig.history)[Acked] > 20
        identities = list(rig.history.of(ProducerInitialized))
        assert identities
        assert {event.transactional_id for event in identities} == {""}

    in_virtual_time(tmp_path, story)


def test_a_producer_without_acknowledgements_says_so(tmp_path: Path) -> None:
    async def story(rig: Rig) -> None:
        await rig.create(**TOPICS)
        await rig.run(2, WORKLOADS["idempotent"](rig.context("c", topics=TOPICS, acks=0)))
        assert {event.acks for event in rig.history.of(Acked)} == {0}
        assert {event.offset for event in rig.history.of(Acked)} == {-1}

    in_virtual_time(tmp_path, story)


@pytest.mark.parametrize("version", [1, 2])
def test_transactional_producers_that_share_an_id_fence_each_other(
    tmp_path: Path, version: int
) -> None:
    async def story(rig: Rig) -> None:
        await rig.create(**TOPICS)
        parameters = {
            "topics": TOPICS,
            "transactional_id": "x",
            "abandon": 0.2,
            "transaction_version_max": version,
        }
        clients = [
            WORKLOADS["transactional"](rig.context(name, **parameters)) for name in ("c", "d")
        ]
        await rig.run(6, *clients, cuts=CUTS)
        assert await judged(rig) == []
        assert sent_are_resolved(rig.history)
        seen = counts(rig.history)
        assert seen[ProducerFenced] > 5
        assert seen[ProducerInitialized] > 5
        began = [(event.who, event.transaction) for event in rig.history.of(TransactionBegan)]
        ended = {(event.who, event.transaction) for event in rig.history.of(TransactionEnded)}
        ended |= {(event.who, event.transaction) for event in rig.history.of(TransactionUnknown)}
        assert len(set(began)) == len(began)
        assert set(began) == ended
        ends = {event.commit for event in rig.history.of(TransactionEnding)}
        assert ends == {True, False}

    in_virtual_time(tmp_path, story)


@pytest.mark.parametrize("version", [1, 2])
def test_each_committed_record_is_copied_once(tmp_path: Path, version: int) -> None:
    async def story(rig: Rig) -> None:
        await rig.create(**TOPICS, out=2)
        writer = rig.context("w", topics=TOPICS, transaction_version_max=version)
        copiers = [
            rig.reader(
                f"c{index}",
                sources={"b": 3},
                topics={"out": 2},
                group_id="g",
                share=(index, 2),
                transaction_version_max=version,
            )
            for index in range(2)
        ]
        await rig.run(
            5,
            WORKLOADS["transactional"](writer),
            readers=[WORKLOADS["copy"](context) for context in copiers],
            cuts=CUTS,
        )
        assert await judged(rig, *TOPICS, "out") == []
        final = await read_final_state(rig.context("final"), [*TOPICS, "out"], ["g"])
        assert copies_complaints(final, {"b"}, "out") == []
        told = [offset for e in rig.history.of(TransactionOffsets) for offset in e.offsets.items()]
        assert set(final.offsets["g"].items()) <= set(told)
        assert counts(rig.history)[OffsetsFetched] > 2

    # With this seed the cuts make the copiers fetch their offsets again under either version.
    in_virtual_time(tmp_path, story, seed=5)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_consumer_reads_to_the_end_and_notes_each_jump(tmp_path: Path, isolation: str) -> None:
    async def story(rig: Rig) -> None:
        await rig.create(**TOPICS)
        reader = rig.reader(
            "r", topics=TOPICS, isolation=isolation, group_id="g", seek=0.1, commit=0.3, restart=0.1
        )
        await rig.run(
            5,
            WORKLOADS["transactional"](rig.context("w", topics=TOPICS)),
            WORKLOADS["idempotent"](rig.context("i", topics=TOPICS)),
            readers=[WORKLOADS["consume"](reader)],
            cuts=CUTS,
        )
        assert await judged(rig) == []
        seen = counts(rig.history)
        assert seen[OffsetsCommitted] > 1
        reasons = {event.reason for event in rig.history.of(Positioned)}
        assert {"start", "seek", "committed"} <= reasons
        final = await read_final_state(rig.context("final"), TOPICS)
        last = {event.topic_partition: event.position for event in rig.history.of(Polled)}
        for tp, partition in final.partitions.items():
            assert last[tp] == partition.last_stable_offset == partition.high_watermark

    in_virtual_time(tmp_path, story)


def test_an_administrator_makes_deletes_and_grows_its_topics(tmp_path: Path) -> None:
    async def story(rig: Rig) -> None:
        await rig.create(**TOPICS)
        context = rig.context("adm", grown=["a"], think_s=0.1)
        await rig.run(8, WORKLOADS["admin"](context), cuts=CUTS)
        assert set(rig.states().values()) == {"settled"}, rig.states()
        changes = {event.change for event in rig.history.of(TopicChanged)}
        assert changes == {"create", "delete", "partitions"}
        assert {event.topic for event in rig.history.of(TopicChanged)} == {"adm-0", "adm-1", "a"}
        assert counts(rig.history)[Acked] > 5

    in_virtual_time(tmp_path, story)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", ["attached", "driver"])
def test_a_driver_ends_the_transactions_of_its_workers(
    tmp_path: Path, name: str, version: int
) -> None:
    async def story(rig: Rig) -> None:
        await rig.create(**TOPICS)
        context = rig.context(
            "job", topics=TOPICS, group_id="g", transaction_version_max=version, abandon=0.1
        )
        await rig.run(6, WORKLOADS[name](context), cuts=CUTS)
        assert await judged(rig) == []
        final = await read_final_state(rig.context("final"), TOPICS, ["g"])
        ended = {event.transaction: event.commit for event in rig.history.of(TransactionEnded)}
        unknown = {event.transaction for event in rig.history.of(TransactionUnknown)}
        marks = [e for e in rig.history.of(TransactionOffsets) if ended.get(e.transaction)]
        assert len(marks) > 3
        if not unknown:
            assert final.offsets["g"] == marks[-1].offsets
        assert (counts(rig.history)[Acked] > 20) is (name == "attached")

    in_virtual_time(tmp_path, story)


def damage(log: Path) -> None:
    """Flip a bit in the records of a batch in the middle of a log."""
    data = bytearray(log.read_bytes())
    batches = list(iter_headers(data))
    position, header = batches[len(batches) // 2]
    data[position + header.length - 2] ^= 1
    log.write_bytes(data)


@pytest.mark.damages
def test_a_consumer_jumps_over_damaged_records_and_notes_it(tmp_path: Path) -> None:
    async def story(rig: Rig) -> None:
        await rig.create(a=1)
        reader = rig.reader("r", topics={"a": 1}, think_s=20)

        async def write_and_damage() -> None:
            await WORKLOADS["idempotent"](rig.context("i", topics={"a": 1}))
            damage(tmp_path / "a-0" / f"{0:020}.log")

        await rig.run(4, write_and_damage(), readers=[WORKLOADS["consume"](reader)])
        assert set(rig.states().values()) == {"settled"}, rig.states()
        jumps = [event for event in rig.history.of(Positioned) if event.reason == "damaged"]
        assert jumps
        final = await read_final_state(rig.context("final"), ["a"])
        assert [event.position for event in rig.history.of(Polled)][-1] == (
            final.partitions[TopicPartition("a", 0)].high_watermark
        )
        assert "damaged batch" in final.unread[TopicPartition("a", 0)]

    in_virtual_time(tmp_path, story)


def test_a_call_that_never_ends_is_a_defect(tmp_path: Path) -> None:
    async def story(rig: Rig) -> dict[str, str]:
        async def hang(journal: Journal) -> None:
            journal.begin("waiting for nothing")
            await asyncio.Event().wait()

        await supervise(rig.context("c"), hang)
        return rig.states()

    states = in_virtual_time(tmp_path, story)
    assert states == {"c": "stuck: waiting for nothing does not end"}


def test_an_exception_that_no_documentation_names_is_a_defect(tmp_path: Path) -> None:
    async def story(rig: Rig) -> dict[str, str]:
        async def fail(_journal: Journal) -> None:
            raise TypeError("no such thing")

        await supervise(rig.context("c"), fail)
        return rig.states()

    states = in_virtual_time(tmp_path, story)
    assert states == {"c": "stuck: TypeError: no such thing (test_workloads.py:fail)"}


def test_one_seed_gives_one_history(tmp_path: Path) -> None:
    async def story(rig: Rig) -> list[Event]:
        await rig.create(**TOPICS, out=2)
        writers = ("idempotent", "transactional", "admin", "attached", "driver")
        await rig.run(
            3,
            *(WORKLOADS[name](rig.context(name, topics=TOPICS)) for name in writers),
            readers=[
                WORKLOADS["consume"](rig.reader("consume", topics=TOPICS)),
                WORKLOADS["copy"](rig.reader("copy", sources={"b": 3}, topics={"out": 2})),
            ],
            cuts=CUTS,
        )
        return rig.history.events

    assert in_virtual_time(tmp_path / "1", story) == in_virtual_time(tmp_path / "2", story)
