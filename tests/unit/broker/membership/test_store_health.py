"""How long a store that fails is left alone, and what is said of it."""

from __future__ import annotations

import random

import pytest

from oncelog.broker.membership.store_health import StoreHealth
from oncelog.core.limits import STORE_RETRY_MS_MAX, STORE_RETRY_MS_MIN
from oncelog.metadata.store import StoreFailure
from tests.support.logged import said_by
from tests.unit.broker.controller.support import HandClock


class Even(random.Random):
    """Draws what is in the middle."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


def test_a_store_that_fails_is_left_alone_for_longer_each_time() -> None:
    clock = HandClock()
    health = StoreHealth(clock, Even())
    assert health.pause_ms == 0
    for pause_ms in (STORE_RETRY_MS_MIN, 2 * STORE_RETRY_MS_MIN, 4 * STORE_RETRY_MS_MIN):
        health.failed(StoreFailure("away"))
        assert health.pause_ms == pause_ms
        clock.ms += pause_ms / 2
        assert health.pause_ms == pause_ms / 2
        clock.ms += pause_ms
        assert health.pause_ms == 0
    for _ in range(20):
        health.failed(StoreFailure("away"))
    assert health.pause_ms == STORE_RETRY_MS_MAX
    health.answered()
    assert (health.pause_ms, health.failure) == (0, None)
    health.failed(StoreFailure("away again"))
    assert health.pause_ms == STORE_RETRY_MS_MIN


def test_the_first_failure_is_said_and_how_long_it_took(caplog: pytest.LogCaptureFixture) -> None:
    clock = HandClock()
    health = StoreHealth(clock, Even())
    for text in ("one", "two"):
        clock.ms += 3_000
        health.failed(StoreFailure(text))
    clock.ms += 1_500
    health.answered()
    health.answered()
    assert [record.getMessage() for record in said_by(caplog)] == [
        "no metadata can be read or changed until the store answers: one",
        "the metadata store answers again, after 4.5 s",
    ]
