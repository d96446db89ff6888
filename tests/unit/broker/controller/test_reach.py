"""The controller asks the other brokers for a sign of life, in rounds of one length."""

from __future__ import annotations

import asyncio
import random

import pytest

from oncelog.broker.controller.reach import ReachWatch
from oncelog.broker.peers.connections import PeerNetwork
from oncelog.controller.reach import ROUNDS_COUNT, ROUNDS_PER_SESSION_COUNT
from oncelog.core.errors import OncelogError
from oncelog.runtime.network import SystemNetwork
from tests.unit.broker.controller.support import started
from tests.unit.broker.raw import until

ROUND_MS = 1000


async def test_a_controller_that_only_it_reaches_gives_the_office_up_after_some_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = await started()
    for broker_id in (2, 3):
        await started(first.store, broker_id, first.others)
    await first.feed.read()
    watch = ReachWatch(
        *(1, first.office, first.feed, PeerNetwork(SystemNetwork(), "PLAINTEXT")),
        *(ROUND_MS * ROUNDS_PER_SESSION_COUNT, first.clock, random.Random(1)),
    )
    asked: list[tuple[float, int]] = []

    async def ask(broker_id: int, *_: object) -> None:
        asked.append((first.clock.ms, broker_id))
        if broker_id != 1:
            first.clock.ms += 5
            raise OncelogError("no route to it")

    monkeypatch.setattr(watch._peers, "ask", ask)
    watching = asyncio.create_task(watch.run())
    await until(lambda: not first.office.is_held or len(asked) > 100)
    watching.cancel()
    assert not first.office.is_held
    rounds = range(0, ROUNDS_COUNT * ROUND_MS, ROUND_MS)
    assert asked[: 2 * ROUNDS_COUNT] == [
        found for began_ms in rounds for found in ((began_ms, 2), (began_ms + 5, 3))
    ]
