"""Quotas of clients: whose counts, what is measured, and how long a client waits."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core import security_limits
from oncelog.core.quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientQuotaEntity,
)
from oncelog.security.quotas import Quotas, QuotaWindows, Rate, TokenBucket

WINDOWS = QuotaWindows(11, 1000)
START_MS = 5_000.0


def quotas_of(
    limits: Mapping[ClientQuotaEntity, Mapping[str, float]], meters_count_max: int = 1_000
) -> Quotas:
    made = Quotas(WINDOWS, WINDOWS, meters_count_max)
    made.set_limits(limits)
    return made


PRECEDENCE = (
    ClientQuotaEntity("alice", "app"),
    ClientQuotaEntity("alice", DEFAULT),
    ClientQuotaEntity("alice"),
    ClientQuotaEntity(DEFAULT, "app"),
    ClientQuotaEntity(DEFAULT, DEFAULT),
    ClientQuotaEntity(DEFAULT),
    ClientQuotaEntity(None, "app"),
    ClientQuotaEntity(None, DEFAULT),
)


@pytest.mark.parametrize("first", range(len(PRECEDENCE)))
def test_the_most_precise_quota_counts(first: int) -> None:
    """Kafka's order (`ClientQuotaManager`): later entities are there, and change nothing."""
    limits = {
        entity: {CONSUMER_BYTE_RATE: float(index + 1)}
        for index, entity in enumerate(PRECEDENCE)
        if index >= first
    }
    assert quotas_of(limits).fetch_bytes_max("alice", "app", START_MS) == (first + 1) * 10


def test_a_quota_of_another_key_hides_none() -> None:
    """Each key is looked for by itself."""
    quotas = quotas_of(
        {
            ClientQuotaEntity("alice", "app"): {PRODUCER_BYTE_RATE: 1.0},
            ClientQuotaEntity(None, "app"): {CONSUMER_BYTE_RATE: 7.0},
        }
    )
    assert quotas.fetch_bytes_max("alice", "app", START_MS) == 70
    assert quotas.fetch_bytes_max("alice", "other", START_MS) is None


@pytest.mark.parametrize(
    ("entity", "is_shared"),
    [
        (ClientQuotaEntity("alice"), True),
        (ClientQuotaEntity("alice", "app"), True),
        (ClientQuotaEntity("alice", DEFAULT), False),
    ],
)
def test_clients_of_one_quota_share_it_unless_it_is_for_each(
    entity: ClientQuotaEntity, is_shared: bool
) -> None:
    """Two client ids of a user share the user's quota; a default one is for each client id."""
    quotas = quotas_of({entity: {PRODUCER_BYTE_RATE: 100.0}})
    other = "app" if entity.client_id == "app" else "other"
    assert quotas.produced("alice", "app", 1_000, START_MS) == 0
    assert (quotas.produced("alice", other, 1_000, START_MS) > 0) is is_shared


def test_the_first_burst_may_be_that_of_all_windows_but_one() -> None:
    """1,000 bytes at 100 a second count as spread over ten windows, 1,100 take 1 s more."""
    quotas = quotas_of({ClientQuotaEntity("alice"): {PRODUCER_BYTE_RATE: 100.0}})
    assert quotas.produced("alice", "app", 1_000, START_MS) == 0
    assert quotas.produced("alice", "app", 100, START_MS) == 1_000


def test_a_fetch_waits_for_what_was_fetched_before() -> None:
    quotas = quotas_of({ClientQuotaEntity("alice"): {CONSUMER_BYTE_RATE: 100.0}})
    assert quotas.fetch_wait_ms("alice", "app", START_MS) == 0
    quotas.fetched("alice", "app", 1_200, START_MS)
    assert quotas.fetch_wait_ms("alice", "app", START_MS) == 2_000
    assert quotas.fetch_wait_ms("bob", "app", START_MS) == 0


def test_a_batch_larger_than_all_windows_is_fetched_once_in_that_time() -> None:
    quotas = quotas_of({ClientQuotaEntity("alice"): {CONSUMER_BYTE_RATE: 1.0}})
    quotas.fetched("alice", "app", 1_000_000, START_MS)
    assert quotas.fetch_wait_ms("alice", "app", START_MS) == 11_000
    assert quotas.fetch_wait_ms("alice", "app", START_MS + 11_000) == 0


def test_the_wait_for_request_time_is_at_most_a_window() -> None:
    quotas = quotas_of({ClientQuotaEntity("alice"): {REQUEST_PERCENTAGE: 1.0}})
    assert quotas.worked("alice", "app", 0.05, START_MS) == 0
    assert quotas.worked("alice", "app", 60.0, START_MS) == 1_000


def test_partitions_are_refused_only_when_no_token_is_left() -> None:
    """A strict quota lets one request through that overdraws it (KIP-599), and counts no other."""
    quotas = quotas_of({ClientQuotaEntity("alice"): {CONTROLLER_MUTATION_RATE: 1.0}})
    assert quotas.mutated("alice", "app", 21, START_MS, is_strict=True) == 0
    assert quotas.mutated("alice", "app", 1, START_MS, is_strict=True) == 10_000
    assert quotas.mutated("alice", "app", 1, START_MS + 9_999, is_strict=True) == 1
    assert quotas.mutated("alice", "app", 1, START_MS + 10_000, is_strict=True) == 0


def test_a_permissive_quota_of_partitions_counts_and_waits() -> None:
    quotas = quotas_of({ClientQuotaEntity("alice"): {CONTROLLER_MUTATION_RATE: 1.0}})
    assert quotas.mutated("alice", "app", 12, START_MS, is_strict=False) == 1_000
    assert quotas.mutated("alice", "app", 1, START_MS, is_strict=False) == 2_000


def test_a_client_without_a_quota_never_waits() -> None:
    quotas = quotas_of({ClientQuotaEntity("bob"): dict.fromkeys(module_keys(), 1e-09)})
    assert quotas.is_on
    assert quotas.produced("alice", "app", 10**9, START_MS) == 0
    quotas.fetched("alice", "app", 10**9, START_MS)
    assert quotas.fetch_wait_ms("alice", "app", START_MS) == 0
    assert quotas.worked("alice", "app", 10**9, START_MS) == 0
    assert quotas.mutated("alice", "app", 10**9, START_MS, is_strict=True) == 0


def module_keys() -> tuple[str, ...]:
    return (
        PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE
    )  # fmt: skip


def test_another_limit_holds_at_once_for_what_was_measured() -> None:
    alice = ClientQuotaEntity("alice")
    quotas = quotas_of({alice: {PRODUCER_BYTE_RATE: 1_000.0}})
    assert quotas.produced("alice", "app", 2_000, START_MS) == 0
    quotas.set_limits({alice: {PRODUCER_BYTE_RATE: 100.0}})
    assert quotas.produced("alice", "app", 0, START_MS) == 10_000
    quotas.set_limits({})
    assert not quotas.is_on
    assert quotas.produced("alice", "app", 10**6, START_MS) == 0


def test_client_ids_without_end_take_no_memory_without_end() -> None:
    """A client chooses its client id; those that are idle are forgotten first."""
    assert security_limits.QUOTA_METERS_COUNT_MAX >= 1_000
    quotas = quotas_of({ClientQuotaEntity(None, DEFAULT): {PRODUCER_BYTE_RATE: 100.0}}, 10)
    assert quotas.produced("alice", "busy", 2_000, START_MS + 20_000) > 0
    for number in range(1_000):
        quotas.produced("alice", f"app-{number}", 1, START_MS)
        quotas.produced("alice", "busy", 0, START_MS + 20_000)
    kind = quotas._produce
    assert len(kind._meters) <= 10
    assert len(kind._found) <= 10


def test_room_for_a_client_is_made_by_all_that_are_idle_and_by_no_other() -> None:
    """A client that has to wait waits as long when others come."""
    quotas = quotas_of({ClientQuotaEntity(None, DEFAULT): {PRODUCER_BYTE_RATE: 100.0}}, 4)
    for number in range(3):
        quotas.produced("alice", f"app-{number}", 1, START_MS)
    later_ms = START_MS + 11_000
    assert quotas.produced("alice", "busy", 1_200, later_ms) == 2_000
    quotas.produced("alice", "new", 1, later_ms)
    assert set(quotas._produce._meters) == {("", "busy"), ("", "new")}
    assert quotas.produced("alice", "busy", 0, later_ms) == 2_000


def test_a_window_counts_until_all_have_passed_since_its_last_record() -> None:
    rate = Rate(WINDOWS, START_MS)
    rate.record(5, START_MS)
    rate.record(5, START_MS + 999)
    assert not rate.is_idle(START_MS + 11_998)
    assert rate.is_idle(START_MS + 11_999)


def test_a_window_that_has_passed_takes_no_later_one_along() -> None:
    rate = Rate(WINDOWS, START_MS)
    rate.record(1_000, START_MS)
    rate.record(21, START_MS + 10_500)
    assert rate.measure(START_MS + 11_000) == (2.0, 10_500)


def test_a_bucket_is_idle_once_all_of_its_tokens_are_back() -> None:
    bucket = TokenBucket(WINDOWS, START_MS)
    bucket.record(5, 1.0, START_MS)
    assert not bucket.is_idle(START_MS + 10_999)
    assert bucket.is_idle(START_MS + 11_000)


@pytest.mark.parametrize("amount", [10, 50, 400])
@pytest.mark.parametrize("windows", [WINDOWS, QuotaWindows(3, 1000), QuotaWindows(5, 250)])
def test_who_waits_as_long_as_told_gets_the_rate_of_the_quota(
    amount: int, windows: QuotaWindows
) -> None:
    """Within a fifth, in the long run and for amounts that the windows have room for.

    Kafka counts begun windows as whole ones, so a client may be told to wait some times in a row.
    """
    limit, now_ms, total = 500.0, START_MS, 0
    rate = Rate(windows, now_ms)
    room = limit * (windows.windows_count - 1) * windows.size_ms / 1000
    while now_ms < START_MS + 100_000:
        rate.record(amount, now_ms)
        total += amount
        now_ms += 1
        while wait_ms := rate.wait_ms(limit, now_ms):
            now_ms += wait_ms
    got = (total - room) / (now_ms - START_MS) * 1000
    assert 0.8 * limit <= got <= 1.2 * limit


@given(
    st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 60)), min_size=1, max_size=60),
)
def test_a_bucket_never_gives_more_than_the_quota_and_what_it_holds(
    steps: list[tuple[int, int]],
) -> None:
    limit, now_ms, given_count = 10.0, START_MS, 0
    bucket = TokenBucket(WINDOWS, now_ms)
    for pause_ms, amount in steps:
        now_ms += pause_ms
        if bucket.wait_ms(limit, now_ms) == 0:
            bucket.record(amount, limit, now_ms)
            given_count += amount
        assert given_count <= limit * (now_ms - START_MS) / 1000 + 110 + 60
    assert TokenBucket(WINDOWS, now_ms).is_idle(now_ms)
