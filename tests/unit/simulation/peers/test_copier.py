"""Copiers against a real broker: every record of the source once in the target."""

from __future__ import annotations

from collections import Counter
from math import inf
from pathlib import Path
from typing import Any

import pytest

from oncelog.simulation.history import (
    LateRequest,
    OffsetsFetched,
    Polled,
    TransactionBegan,
    TransactionEnded,
    TransactionOffsets,
)
from oncelog.simulation.peers import consumer, copier, producer, transactions
from tests.unit.simulation.peers.judge import expect_fates, expect_order
from tests.unit.simulation.peers.world import World, play, world

OPTIONS: dict[str, Any] = {
    "transaction_timeout_ms": 1_500,
    "session_timeout_ms": 2_000,
    "rebalance_timeout_ms": 3_000,
    "impatience": 0.02,
    "vice": 0.4,
    "settle_ms": 12_000,
}


def expect_copies(w: World, torn: set[tuple[str, int]]) -> None:
    """What a reader of each topic was given: the copies are of all that was to be copied, once.

    Copies of a transaction that was `torn` may come again.
    """
    expected, copied = set(), set()
    whole: Counter[str] = Counter()
    for event in w.events(Polled):
        if event.who.startswith("source"):
            expected |= {f"{event.topic_partition}@{offset}" for offset, _value in event.records}
        elif event.who.startswith("target"):
            values = [value for _offset, value in event.records]
            copied |= {value.source for value in values}
            whole.update(
                value.source for value in values if (value.client, value.transaction) not in torn
            )
    assert len(expected) > 20
    assert copied == expected
    assert set(whole.values()) == {1}


def torn_by_late_requests(w: World) -> set[tuple[str, int]]:
    """By client and number the transactions that a late EndTxn of TV1 may have ended."""
    late = [(event.who, event.at_s) for event in w.events(LateRequest)]
    ends = {(event.who, event.transaction): event.at_s for event in w.events(TransactionEnded)}
    began = [(event.who, event.transaction, event.at_s) for event in w.events(TransactionBegan)]
    return {
        (who, number)
        for who, number, since_s in began
        if any(
            client == who and since_s <= at_s <= ends.get((who, number), inf)
            for client, at_s in late
        )
    }


async def copy(w: World, copiers: list[Any], cuts: float, *, is_tv1: bool) -> None:
    await w.create("t", 3)
    await w.create("copy", 2)
    reader = {"settle_ms": 30_000, "restart_chance": 0}
    clients = [
        producer.run(w.context("p")),
        transactions.run(w.context("x", vice=0.3)),
        consumer.run(w.context("source", **reader)),
        consumer.run(w.context("target", topics=("copy",), **reader)),
    ]
    await w.run([*clients, *copiers], 10, trouble=lambda: w.network.cut_some(cuts))
    expect_fates(w)
    expect_order(w)
    expect_copies(w, torn_by_late_requests(w) if is_tv1 else set())
    assert w.events(TransactionOffsets)
    assert all(event.stable for event in w.events(OffsetsFetched))


@pytest.mark.slow
@pytest.mark.parametrize("flavor", ["librdkafka", "java", "old"])
def test_a_copier_outside_the_group_copies_once(tmp_path: Path, flavor: str) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            await copy(
                w,
                [copier.run(w.context("c", flavor=flavor, **OPTIONS))],
                0.1,
                is_tv1=flavor != "java",
            )

    play(story())


@pytest.mark.slow
@pytest.mark.parametrize("flavor", ["librdkafka", "java"])
def test_copiers_that_are_members_share_the_work(tmp_path: Path, flavor: str) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            copiers = [
                copier.run(w.context(f"c{n}", flavor=flavor, as_member=True, **OPTIONS))
                for n in range(2)
            ]
            await copy(w, copiers, 0.1, is_tv1=flavor != "java")

    play(story())
