"""Producers whose every answer is judged, while an impostor misuses their id."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.simulation.history import SendFailed, TransactionEnded
from oncelog.simulation.peers import exact
from oncelog.simulation.peers.impostor import Impostor
from oncelog.simulation.peers.producer import BatchMaker
from oncelog.simulation.peers.transactional import Transactional
from tests.unit.simulation.peers.judge import expect_fates
from tests.unit.simulation.peers.world import play, stuck, world


@pytest.mark.parametrize("flavor", ["java", "librdkafka"])
def test_no_misuse_of_an_id_disturbs_its_producer(tmp_path: Path, flavor: str) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            await w.create("t", 1)
            options = {"flavor": flavor, "topics": ["t"], "strict": True, "think_ms": 20.0}
            await w.run([exact.run(w.context("c1", **options))])
            assert not stuck(w.history.events)
            assert len(w.events(TransactionEnded)) > 20
            expect_fates(w)

    play(story())


def test_a_request_with_wrong_ids_that_is_accepted_is_told(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            context = w.context("c1", topics=["t"])
            impostor = Impostor(context, Transactional(context, "id"), "group")
            impostor._refused("EndTxn of 1, 1", ErrorCode.none, is_repeated=True)
            impostor._refused("EndTxn of 1, 1", ErrorCode.producer_fenced)
            assert not stuck(w.history.events)
            impostor._refused("EndTxn of 1, 1", ErrorCode.none)
            assert stuck(w.history.events)

    play(story())


@pytest.mark.parametrize(("is_v2", "refused_count"), [(False, 0), (True, 20)])
def test_a_gap_before_the_first_batch_is_left_under_tv2_alone(
    tmp_path: Path, is_v2: bool, refused_count: int
) -> None:
    """The log does not know the producer yet: under TV1 it has to take any sequence."""

    async def story() -> None:
        async with world(tmp_path) as w:
            await w.create("t", 1)
            context = w.context("c1", topics=["t"], strict=True)
            producer = Transactional(context, "id")
            assert await producer.start()
            producer.is_v2 = producer.sender.implicit = is_v2
            maker = BatchMaker(context, producer.wire)
            producer.begin()
            (at,) = await maker.targets()
            if not is_v2:
                await producer._add_partitions([at])
            producer.wire._late = 1.0
            await producer.send([maker.batch(at, producer.transaction)])
            assert not producer.sender.is_idle
            impostor = Impostor(context, producer, "group")
            impostor.touched.add(at)
            for _ in range(20):
                await impostor._leave_a_gap()
            assert not stuck(w.history.events)
            errors = [e.error for e in w.events(SendFailed)]
            assert errors == ["out_of_order_sequence_number"] * refused_count
            impostor.close()
            producer.give_up("the story ended")

    play(story())


def test_a_gap_behind_an_acknowledged_batch_is_refused_under_tv1(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            await w.create("t", 1)
            context = w.context("c1", topics=["t"], strict=True)
            producer = Transactional(context, "id")
            assert await producer.start()
            producer.is_v2 = producer.sender.implicit = False
            maker = BatchMaker(context, producer.wire)
            producer.begin()
            await producer.send([maker.batch(TopicPartition("t", 0), producer.transaction)])
            await producer.flush()
            impostor = Impostor(context, producer, "group")
            impostor.touched.add(TopicPartition("t", 0))
            for _ in range(20):
                await impostor._leave_a_gap()
            assert not stuck(w.history.events)
            errors = [e.error for e in w.events(SendFailed)]
            assert errors == ["out_of_order_sequence_number"] * 20
            impostor.close()
            producer.give_up("the story ended")

    play(story())
