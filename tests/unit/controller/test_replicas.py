"""Random sequences of events: no acknowledged record is lost without a warning (INV-1)."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.controller.replicas import Replicas

STEPS_COUNT = 150


@given(
    seed=st.integers(0, 2**32),
    count=st.sampled_from([1, 2, 3, 3, 5]),
    min_isr=st.integers(1, 2),
    allows_unclean=st.booleans(),
)
def test_no_acknowledged_record_is_lost_without_a_warning(
    seed: int, count: int, min_isr: int, allows_unclean: bool
) -> None:
    """Kills, losses of power, expired sessions, brokers that hear late, interrupted decisions."""
    rng = random.Random(seed)
    replicas = Replicas(rng, count, min_isr, allows_unclean=allows_unclean)
    for _ in range(STEPS_COUNT):
        replicas.step()


def test_the_steps_reach_acknowledged_records_and_elections() -> None:
    """A model in which nothing happens would find nothing."""
    acknowledged_count = elections_count = 0
    for seed in range(20):
        replicas = Replicas(random.Random(seed), 3, 2, allows_unclean=False)
        for _ in range(STEPS_COUNT):
            replicas.step()
        acknowledged_count += len(replicas.acknowledged)
        elections_count += len(replicas.led)
    assert acknowledged_count > 20
    assert elections_count > 20
