"""Which replica a consumer with a rack reads from."""

from __future__ import annotations

from oncelog.client.machines.nearest import NearestReplicas
from oncelog.core.ids import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LEADER, NEAR = 1, 2
ALL = {LEADER, NEAR, 3}


def test_a_named_replica_is_read_until_its_time_is_over() -> None:
    nearest = NearestReplicas(1000)
    assert nearest.source(T0, LEADER, ALL, 0) == LEADER
    nearest.named(T0, NEAR, 0)
    assert nearest.source(T0, LEADER, ALL, 999) == NEAR
    assert nearest.source(T1, LEADER, ALL, 999) == LEADER
    # Another may be nearer by now: the leader knows.
    assert nearest.source(T0, LEADER, ALL, 1000) == LEADER


def test_a_replica_that_is_away_or_has_erred_is_left() -> None:
    nearest = NearestReplicas(1000)
    nearest.named(T0, NEAR, 0)
    assert nearest.source(T0, LEADER, {LEADER}, 1) == LEADER
    assert not nearest.forget(T0)
    nearest.named(T0, NEAR, 2)
    assert nearest.forget(T0)
    assert nearest.source(T0, LEADER, ALL, 3) == LEADER
