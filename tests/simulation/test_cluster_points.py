"""A few drawn deaths in a transaction over three brokers; the campaign has thousands."""

from __future__ import annotations

import random

import pytest

from tests.support.cluster_points import carry_out, drawn

COUNT = 3


@pytest.mark.slow
async def test_a_transaction_survives_the_death_of_a_broker_at_a_drawn_point() -> None:
    rng = random.Random()
    points = [drawn(rng) for _ in range(COUNT)]
    found = {point: await carry_out(point) for point in points}
    assert found == dict.fromkeys(points)
