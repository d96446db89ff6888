"""The administrator and the probe against a real broker, with everybody else at work."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog.simulation.history import Progress, RecordsDeleted, TopicChanged, TopicChanging
from oncelog.simulation.peers import (
    admin,
    consumer,
    copier,
    member,
    probe,
    producer,
    transactions,
)
from tests.unit.simulation.peers.judge import expect_fates, expect_order
from tests.unit.simulation.peers.world import play, stuck, world


@pytest.mark.parametrize("flavor", ["java", "librdkafka", "old"])
def test_every_change_is_announced_before_it_happens(tmp_path: Path, flavor: str) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            await w.create("t", 1)
            administrator = w.context(
                "a",
                flavor=flavor,
                pace_ms=100,
                impatience=0,
                late=0,
                growing=("t",),
                trimmed=("t",),
                short_lived=("v",),
            )
            clients = [admin.run(administrator), producer.run(w.context("p"))]
            await w.run(clients, 6)
            assert stuck(w.history.events) == []
            changes = [event.change for event in w.events(TopicChanged)]
            assert set(changes) == {"create", "delete", "partitions"}
            assert w.events(RecordsDeleted)
            asked: dict[tuple[str, str], int] = {}
            for event in w.history.events:
                if isinstance(event, TopicChanging):
                    asked[event.topic, event.change] = asked.get((event.topic, event.change), 0) + 1
                elif isinstance(event, TopicChanged):
                    asked[event.topic, event.change] -= 1
                    assert asked[event.topic, event.change] >= 0
            grown = [e.detail for e in w.events(TopicChanged) if e.change == "partitions"]
            assert grown == list(range(2, 2 + len(grown)))
            assert w.broker.image.topic("v") is not None

    play(story())


def test_a_probe_finds_nothing_amiss(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            await w.create("t", 2)
            clients = [
                transactions.run(w.context("x")),
                member.run(w.context("m", session_timeout_ms=2_000)),
                probe.run(w.context("look", groups=("g",), pace_ms=30)),
            ]
            await w.run(clients, 5)
            assert stuck(w.history.events) == []
            last = {one.who.partition(".")[0]: one.state for one in w.events(Progress)}
            assert last == dict.fromkeys(("x", "m", "look"), "settled")

    play(story())


@pytest.mark.slow
def test_all_of_them_together_while_the_broker_starts_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            await w.create("t", 3)
            await w.create("copy", 3)
            turns = 0

            async def trouble() -> None:
                nonlocal turns
                turns += 1
                w.network.cut_some(0.1)
                if turns % 5 == 0:
                    await w.restart()

            both = {"topics": ("t", "v"), "session_timeout_ms": 2_000}
            clients = [
                producer.run(
                    w.context("p1", flavor="java", topics=("t", "v"), may_desynchronize=True)
                ),
                producer.run(
                    w.context("p2", flavor="librdkafka", topics=("t", "v"), may_desynchronize=True)
                ),
                transactions.run(w.context("x1", flavor="java", topics=("t", "v"))),
                transactions.run(
                    w.context("x2", flavor="librdkafka", topics=("t", "v"), may_desynchronize=True)
                ),
                transactions.run(w.context("x3", flavor="old", topics=("t",))),
                copier.run(w.context("c", flavor="java")),
                consumer.run(w.context("r", topics=("t", "v", "copy"))),
                member.run(w.context("m1", assignor="cooperative-sticky", **both)),
                member.run(w.context("m2", assignor="cooperative-sticky", **both)),
                admin.run(w.context("a", growing=("t",))),
                probe.run(w.context("look", groups=("g", "copiers"), topics=("t", "v"))),
            ]
            await w.run(clients, 12, trouble)
            expect_fates(w)
            expect_order(w)
            assert w.states().count("settled") == len(clients)

    play(story())
