"""Producers whose every answer is judged, while an impostor misuses their id."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.simulation.history import TransactionEnded
from oncelog.simulation.peers import exact
from oncelog.simulation.peers.impostor import Impostor
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
