"""Clients that are simulated with quotas: sound as they are, and slips of the quotas are seen."""

from __future__ import annotations

import random

import pytest

from oncelog.core.quotas import ClientQuotaEntity, ClientQuotas
from oncelog.security.quotas import Quotas
from oncelog.simulation.components.quotas import quotas


def found(make: type[Quotas] = Quotas, runs: int = 25) -> list[str]:
    """What the first run shows that shows anything."""
    for seed in range(runs):
        texts = list(quotas(random.Random(f"{seed}:quotas"), make))
        if texts:
            return texts
    return []


def test_the_quotas_as_they_are_pass() -> None:
    assert found() == []


class CountsBytesTwice(Quotas):
    def produced(self, user: str, client_id: str, byte_count: int, now_ms: float) -> int:
        super().produced(user, client_id, byte_count, now_ms)
        return super().produced(user, client_id, byte_count, now_ms)


class WaitsForAFetchWithoutEnd(Quotas):
    """What is larger than all windows is never fetched again."""

    def fetch_wait_ms(self, user: str, client_id: str, now_ms: float) -> int:
        wait_ms = super().fetch_wait_ms(user, client_id, now_ms)
        return 2 * wait_ms


class CountsRefusedPartitions(Quotas):
    """A request that is refused takes tokens (KIP-599)."""

    def mutated(
        self, user: str, client_id: str, partitions_count: int, now_ms: float, *, is_strict: bool
    ) -> int:
        wait_ms = super().mutated(user, client_id, partitions_count, now_ms, is_strict=is_strict)
        if wait_ms and is_strict:
            super().mutated(user, client_id, partitions_count, now_ms, is_strict=False)
        return wait_ms


class ForgetsWhatWasMeasured(Quotas):
    """Other limits begin anew."""

    def set_limits(self, quotas: ClientQuotas) -> None:
        super().set_limits(quotas)
        self._request._meters.clear()


class LeavesOutDefaults(Quotas):
    """The default of all users is no quota."""

    def set_limits(self, quotas: ClientQuotas) -> None:
        default = ClientQuotaEntity("")
        super().set_limits({who: value for who, value in quotas.items() if who != default})
        self.is_on = bool(quotas)


@pytest.mark.parametrize(
    "slip",
    [
        CountsBytesTwice,
        WaitsForAFetchWithoutEnd,
        CountsRefusedPartitions,
        ForgetsWhatWasMeasured,
        LeavesOutDefaults,
    ],
)
def test_a_slip_of_the_quotas_is_seen(slip: type[Quotas]) -> None:
    assert found(slip)
