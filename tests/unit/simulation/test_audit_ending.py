"""What is looked for in a broker whose clients have all gone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncelog.broker.partitions.upkeep import Upkeep
from oncelog.core.ids import TopicPartition
from oncelog.simulation.audit_ending import Described, changed_by_a_restart
from oncelog.simulation.draw import draw_plan
from oncelog.simulation.roles import ROLES
from oncelog.simulation.run import execute
from oncelog.storage.producer_state import ProducerStates

T0 = TopicPartition("t", 0)
EXTENT = (0, 10, (0, 5), 900)


def findings() -> set[str]:
    """What a short, calm run shows."""
    plan = replace(draw_plan(7, "calm", 1.0), final_restarts=())
    return {found.signature for found in execute(plan, ROLES).anomalies if not found.allowed}


def test_a_restart_may_find_a_longer_log_and_no_other_meaning() -> None:
    before: Described = {T0: (EXTENT, ("a",))}
    assert not list(changed_by_a_restart(before, {T0: ((0, 12, (0, 5), 990), ("b",))}))
    assert not list(changed_by_a_restart(before, before))
    assert list(changed_by_a_restart(before, {T0: (EXTENT, ("b",))}))
    assert list(changed_by_a_restart(before, {T0: ((0, 9, (0, 5), 800), ("a",))}))


def test_a_run_as_it_is_leaves_nothing_behind() -> None:
    assert findings() == set()


def test_producers_that_never_expire_are_seen_after_a_week(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerStates, "remove_expired", lambda *_: 0)
    assert "oracle: a producer's expiry is not what the log implies" in findings()


def test_checkpoints_that_are_not_written_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Upkeep, "note_high_watermarks", lambda _: lambda: None)
    assert "oracle: a checkpoint is not what the log implies" in findings()
