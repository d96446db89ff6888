"""Logs that are simulated alone: sound as they are, and slips of theirs are seen."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from oncelog.simulation.components.log_upkeep import logs
from oncelog.storage import PartitionLog, segment, snapshots
from oncelog.storage.producer_state import ProducerStates


def found(runs: int) -> list[str]:
    """What the first life shows that shows anything."""
    for seed in range(runs):
        texts = list(logs(random.Random(f"{seed}:logs")))
        if texts:
            return texts
    return []


def test_logs_as_they_are_pass() -> None:
    assert found(6) == []


def test_a_loss_of_power_may_bring_back_what_an_interrupted_truncation_cut() -> None:
    """The process died before the cut was synced, and the next one found it done."""
    assert list(logs(random.Random("81000020:logs"))) == []


def _forget_the_start(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionLog, "_move_start", lambda self, offset: None)


def _write_no_snapshot(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(snapshots.Snapshots, "write", lambda *_, **__: None)


def _order_by_markers(patch: pytest.MonkeyPatch) -> None:
    """Of several transactions above the high watermark the first by marker counts."""

    def first(self: ProducerStates, high_watermark: int) -> int | None:
        left = {f: last for f, last in self.unreplicated.items() if last >= high_watermark}
        self.unreplicated = left
        begun = [next(iter(each), None) for each in (left, self.undecided)]
        return min((offset for offset in begun if offset is not None), default=None)

    patch.setattr(ProducerStates, "first_unstable_offset", first)


def _forget_the_unreplicated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerStates, "take_unreplicated", lambda *_: None)


def _never_roll(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(segment.Segment, "fits", lambda *_: True)


@pytest.mark.parametrize(
    "slip",
    [
        _forget_the_start,
        _write_no_snapshot,
        _order_by_markers,
        _forget_the_unreplicated,
        _never_roll,
    ],
)
def test_a_slip_is_seen(
    slip: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    slip(monkeypatch)
    assert found(30)
