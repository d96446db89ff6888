"""The runtime of coordinators that is simulated alone: sound as it is, and slips of it are seen."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

import pytest

from oncelog.coordinator import event_processor, replay, timers
from oncelog.coordinator.output import Output
from oncelog.coordinator.shard import EndTransactionMarker
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import Offset
from oncelog.simulation.components import coordinator_runtime as simulated
from oncelog.simulation.components.coordinator_runtime import processor

Processor = event_processor.EventProcessor


def found(runs: int = 12) -> list[str]:
    """What the first run shows that shows anything."""
    for seed in range(runs):
        texts = list(processor(random.Random(f"{seed}:processor")))
        if texts:
            return texts
    return []


def test_the_runtime_as_it_is_passes() -> None:
    assert found() == []


class RepliesFirst(Processor):  # type: ignore[type-arg]
    """A reply goes out before its records are committed."""

    def submit(self, event: object, token: object, now_ms: int) -> Output:  # type: ignore[type-arg]
        output = super().submit(event, token, now_ms)
        for append in output.appends:
            output.replies.extend(self._in_flight[append.append_id].decision.replies)
        return output


class DecidesTheNewestFirst(Processor):  # type: ignore[type-arg]
    def _drain(self, id_: str, now_ms: int, output: Output) -> None:  # type: ignore[type-arg]
        if id_ in self._waiting.queues:
            self._waiting.queues[id_] = deque(reversed(self._waiting.queues[id_]))
        super()._drain(id_, now_ms, output)


class ForgetsWaitersAtTheEnd(Processor):  # type: ignore[type-arg]
    def resign(self, now_ms: int) -> Output:  # type: ignore[type-arg]
        self._waiting.queues.clear()
        return super().resign(now_ms)


class AppliesOneRecord(Processor):  # type: ignore[type-arg]
    def committed(self, append_id: int, base_offset: Offset, now_ms: int) -> Output:  # type: ignore[type-arg]
        flight = self._in_flight.get(append_id)
        if flight is not None:
            one = flight.decision._replace(records=flight.decision.records[:1])
            self._in_flight[append_id] = flight._replace(decision=one)
        return super().committed(append_id, base_offset, now_ms)


class RefusesForNothing(Processor):  # type: ignore[type-arg]
    def _unavailable(self) -> ErrorCode:
        return ErrorCode.not_coordinator


@pytest.mark.parametrize(
    "slip",
    [RepliesFirst, DecidesTheNewestFirst, ForgetsWaitersAtTheEnd, AppliesOneRecord],
)
def test_a_slip_of_the_processor_is_seen(slip: type[Processor]) -> None:  # type: ignore[type-arg]
    texts = [text for seed in range(12) for text in simulated.lives(random.Random(seed), slip)]
    assert texts


def test_a_slip_of_the_timers_or_of_a_load_is_seen() -> None:
    class Late(timers.Timers[str]):
        def set(self, key: str, deadline_ms: int) -> None:
            if self.deadlines.get(key, deadline_ms) >= deadline_ms:
                super().set(key, deadline_ms)

    class KeepsAborted(replay.ReplayBuffer):
        def end_transaction(self, end: EndTransactionMarker) -> None:
            super().end_transaction(end._replace(commit=True))

    looks: list[Callable[[random.Random], list[str]]] = [
        lambda rng: list(simulated.timers(rng, Late())),
        lambda rng: list(simulated.loads(rng, KeepsAborted)),
    ]
    for look in looks:
        assert any(look(random.Random(seed)) for seed in range(12))
