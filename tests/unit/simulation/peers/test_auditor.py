"""Auditors find nothing in what a broker says, and something in what it does not have to say."""

from __future__ import annotations

from pathlib import Path

from oncelog.protocol.batch import iter_headers
from oncelog.protocol.record import Record, build_batch, control_batch
from oncelog.simulation.history import Progress
from oncelog.simulation.peers import auditor, exact
from oncelog.simulation.peers.log_view import SeenBatch, WrittenLog, read_whole_batches
from tests.unit.simulation.peers.world import play, world


def data(offset: int, producer_id: int, time_ms: int = 10) -> SeenBatch:
    """One record of a transaction."""
    records = [Record(0, time_ms, None, b"v")]
    batch = build_batch(
        records, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
    )
    return at(offset, read_whole_batches(bytes(batch))[0])


def at(offset: int, batch: SeenBatch) -> SeenBatch:
    """The batch at another offset."""
    times = tuple((offset + o, time_ms) for o, time_ms in batch.times)
    return SeenBatch(batch.header._replace(base_offset=offset), batch.marker, times)


def marker(offset: int, producer_id: int, kind: str) -> SeenBatch:
    """An end marker."""
    batch = bytes(control_batch(kind == "commit", producer_id, 0, 0, 20))
    assert len(list(iter_headers(batch))) == 1
    return at(offset, read_whole_batches(batch)[0])


def test_the_oldest_open_transaction_decides_the_last_stable_offset() -> None:
    log = WrittenLog(0, 4, [data(0, 1), data(1, 2), data(2, 3), marker(3, 3, "abort")])
    assert log.last_stable_offset == 0
    assert log.open == {1: 0, 2: 1}


def test_an_abort_counts_where_its_records_are() -> None:
    log = WrittenLog(0, 4, [data(0, 1), data(1, 2), marker(2, 2, "abort"), marker(3, 1, "commit")])
    assert log.aborts_in(0, 1) == {(2, 1)}
    assert log.aborts_in(2, 3) == set()
    assert log.last_stable_offset == 4


def test_the_first_record_at_a_time_may_be_a_marker_or_not() -> None:
    log = WrittenLog(0, 3, [data(0, 1), marker(1, 1, "commit"), data(2, 1, 30)])
    assert log.at_or_after(10) == {(10, 0)}
    assert log.at_or_after(15) == {(20, 1), (30, 2)}
    assert log.at_or_after(31) == {(-1, -1)}


def test_an_auditor_agrees_with_a_broker_that_is_right(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            await w.create("t", 1)
            options = {"topics": ["t"], "strict": True, "think_ms": 20.0}
            await w.run(
                [
                    exact.run(w.context("c1", **options)),
                    auditor.run(w.context("c2", topics=["t"], pace_ms=50)),
                ]
            )
            differs = [e.state for e in w.events(Progress) if e.state.startswith("differs")]
            assert not differs
            assert [e.who for e in w.events(Progress) if e.state == "settled"]

    play(story())
