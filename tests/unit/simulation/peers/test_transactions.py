"""Transactional producers against a real broker: commits are seen, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog.simulation.history import (
    ProducerFenced,
    TransactionBegan,
    TransactionEnded,
    TransactionEnding,
    TransactionUnknown,
)
from oncelog.simulation.peers import consumer, transactions
from tests.unit.simulation.peers.judge import expect_fates, expect_order, expect_reads, outcomes
from tests.unit.simulation.peers.world import play, stuck, world

FLAVORS = ("librdkafka", "java", "old")


@pytest.mark.parametrize("flavor", FLAVORS)
def test_all_commit_where_nothing_goes_wrong(tmp_path: Path, flavor: str) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            await w.create("t", 3)
            clients = [
                transactions.run(w.context("p", flavor=flavor, vice=0, impatience=0, late=0)),
                consumer.run(w.context("r", restart_chance=0, settle_ms=20_000)),
            ]
            await w.run(clients)
            known = outcomes(w)
            assert len(known) > 10
            assert all(known.values())
            assert len(known) == len(w.events(TransactionBegan))
            expect_fates(w)
            expect_reads(w)
            assert len(w.read()) == len(set(w.read())) == len(w.acked())

    play(story())


@pytest.mark.parametrize("flavor", FLAVORS)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_vices_and_cut_connections_leave_nothing_aborted_to_be_seen(
    tmp_path: Path, flavor: str, seed: int
) -> None:
    async def story() -> None:
        async with world(tmp_path, seed) as w:
            await w.create("t", 3)
            options = {"transaction_timeout_ms": 1_000, "impatience": 0.03, "vice": 0.4}
            clients = [
                transactions.run(w.context("p", flavor=flavor, **options)),
                consumer.run(w.context("r", settle_ms=20_000)),
            ]
            await w.run(clients, 12, trouble=lambda: w.network.cut_some(0.3))
            expect_fates(w)
            expect_order(w)
            expect_reads(w)
            known = outcomes(w)
            assert any(known.values())
            assert not all(known.values())
            ends = {(e.who, e.transaction) for e in w.events(TransactionEnding)}
            assert {key for key, commit in known.items() if commit} <= ends
            unknown = {(e.who, e.transaction) for e in w.events(TransactionUnknown)}
            began = {(e.who, e.transaction) for e in w.events(TransactionBegan)}
            assert began == set(known) | unknown
            assert not set(known) & unknown
            assert sorted(w.states()) == ["settled", "settled"]

    play(story())


@pytest.mark.slow
def test_clients_that_share_an_id_fence_each_other_and_both_settle(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, 2) as w:
            await w.create("t", 2)
            clients = [
                transactions.run(
                    w.context(f"p{n}", flavor=flavor, transactional_id="shared", vice=0.1)
                )
                for n, flavor in enumerate(FLAVORS)
            ]
            await w.run([*clients, consumer.run(w.context("r", settle_ms=20_000))], 15)
            assert w.events(ProducerFenced)
            assert any(event.commit for event in w.events(TransactionEnded))
            expect_fates(w)
            expect_reads(w)
            assert stuck(w.history.events) == []

    play(story())
