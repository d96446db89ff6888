"""A scripted client before a scripted broker: what it asks, and what it writes down."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from oncelog.core.ids import TopicPartition
from oncelog.runtime.clock import SystemClock
from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import History, Progress, Value
from oncelog.simulation.peers.batches import Batch, Corners
from tests.unit.client.scripted_broker import ScriptedBroker

PLAIN = Corners(keys=False, headers=False)
AT = TopicPartition("t", 0)


class Stage:
    """See the module's docstring."""

    def __init__(self, transaction_version: int = 2, **parameters: Any) -> None:
        self.broker = ScriptedBroker(transaction_version)
        self.history = History()
        self.sent = 0
        clock = SystemClock()
        self.context = ClientContext(
            name="c",
            bootstrap=("b", 1),
            network=self.broker.network,
            clock=clock,
            rng=random.Random(1),
            history=self.history,
            now_s=lambda: clock.monotonic_ms() / 1000,
            stopping=lambda: False,
            parameters={"retry_backoff_ms": 0.2, "impatience": 0, "late": 0, **parameters},
        )

    def batch(self, count: int = 1, *, at: TopicPartition = AT, seconds: float = 10) -> Batch:
        values = [Value("c", self.sent + number) for number in range(count)]
        self.sent += count
        records = PLAIN.records(self.context.rng, 0, values)
        deadline_s = self.context.elapsed_s() + seconds
        return Batch(at, values, records, codec="none", deadline_s=deadline_s)

    def events(self, kind: type[Any]) -> list[Any]:
        return list(self.history.of(kind))

    def stuck(self) -> list[str]:
        return [event.state for event in self.history.of(Progress)]

    async def close(self) -> None:
        for transport in self.broker.network.transports:
            transport.cut()
        await asyncio.sleep(0)
