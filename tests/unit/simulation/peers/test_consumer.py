"""Readers against a real broker: what they are given is what was written, in its order."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.protocol.record import Record, build_batch, control_batch
from oncelog.simulation.history import Polled, Positioned, Value
from oncelog.simulation.peers import consumer, producer
from oncelog.simulation.peers.fetching import read_batches
from tests.unit.simulation.peers.judge import expect_fates, expect_order, expect_reads, repeats
from tests.unit.simulation.peers.world import play, stuck, world


def batch(first: int, *numbers: int, producer_id: int = -1) -> bytes:
    records = [Record(0, 0, None, Value("c", number).encode()) for number in numbers]
    return bytes(
        build_batch(
            records,
            base_offset=first,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=producer_id >= 0,
        )
    )


def marker(at: int, producer_id: int, commit: bool) -> bytes:
    return bytes(control_batch(commit, producer_id, 0, 0, 0, base_offset=at))


def test_an_aborted_transaction_is_left_out_up_to_its_marker() -> None:
    data = (
        batch(0, 0, producer_id=7)
        + batch(1, 1, producer_id=8)
        + marker(2, 7, False)
        + batch(3, 3, producer_id=7)
        + marker(4, 8, True)
        + marker(5, 7, True)
    )
    read = read_batches(data, 0, [(7, 0)])
    assert [offset for offset, _value in read.records] == [1, 3]
    assert read.position == 6


def test_records_before_the_position_and_a_cut_batch_are_left_out() -> None:
    data = batch(0, 0, 1, 2) + batch(3, 3)[:-1]
    assert read_batches(data, 1, None).records == ((1, Value("c", 1)), (2, Value("c", 2)))
    assert read_batches(data, 1, None).position == 3


def test_damage_and_offsets_that_go_back_are_seen() -> None:
    damaged = bytearray(batch(0, 0))
    damaged[-1] ^= 1
    with pytest.raises(ProtocolError) as raised:
        read_batches(bytes(damaged), 0, None)
    assert raised.value.code is ErrorCode.corrupt_message
    with pytest.raises(ProtocolError, match="offset 0 after 0"):
        read_batches(batch(0, 0) + batch(0, 1), 0, None)


@pytest.mark.parametrize("flavor", ["librdkafka", "java", "old"])
@pytest.mark.parametrize("isolation", ["committed", "uncommitted"])
def test_a_reader_gets_every_record_in_order(tmp_path: Path, flavor: str, isolation: str) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            await w.create("t", 3)
            reader = w.context(
                "r", flavor=flavor, isolation=isolation, restart_chance=0, think_ms=20
            )
            await w.run([producer.run(w.context("p")), consumer.run(reader)])
            expect_fates(w)
            expect_order(w)
            seen = w.read(isolation == "committed")
            assert repeats(seen) == []
            assert set(seen) >= set(w.acked())
            assert sorted(w.states()) == ["settled", "settled"]

    play(story())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_reader_survives_cut_connections_and_restarts(tmp_path: Path, seed: int) -> None:
    async def story() -> None:
        async with world(tmp_path, seed) as w:
            await w.create("t", 3)
            readers = [
                consumer.run(w.context(f"r{n}", flavor=flavor, impatience=0.05))
                for n, flavor in enumerate(("java", "librdkafka", "old"))
            ]
            await w.run(
                [producer.run(w.context("p")), *readers], trouble=lambda: w.network.cut_some(0.5)
            )
            expect_order(w)
            expect_reads(w, readers=3)
            assert stuck(w.history.events) == []

    play(story())


def test_a_reader_begins_again_where_records_were_deleted_and_topics_made_again(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            await w.create("t", 1)
            turns = 0

            async def remake() -> None:
                nonlocal turns
                turns += 1
                if turns == 3:
                    await w.delete("t")
                    await w.create("t", 1)

            clients = [
                producer.run(w.context("p", restart_chance=0)),
                consumer.run(w.context("r", restart_chance=0)),
            ]
            await w.run(clients, trouble=remake)
            assert stuck(w.history.events) == []
            assert [e.offset for e in w.events(Positioned)][-1] == 0
            assert len(w.events(Positioned)) == 2
            assert w.events(Polled)

    play(story())
