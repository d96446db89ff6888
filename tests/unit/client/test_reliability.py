"""acks, retries, idempotence and transactions together, as Kafka's client judges them."""

from __future__ import annotations

import pytest

from oncelog.client.reliability import Reliability, reliability

MANY = 2**31 - 1


@pytest.mark.parametrize(
    ("acks", "enabled", "retries", "expected"),
    [
        ("all", None, MANY, Reliability(-1, True)),
        ("all", True, 1, Reliability(-1, True)),
        ("all", False, MANY, Reliability(-1, False)),
        # Where nothing was said about it, less is taken without a word, as Kafka does (KIP-679).
        (1, None, MANY, Reliability(1, False)),
        ("0", None, MANY, Reliability(0, False)),
        ("all", None, 0, Reliability(-1, False)),
        (1, False, 0, Reliability(1, False)),
    ],
)
def test_idempotence_is_on_unless_ruled_out(
    acks: str | int, enabled: bool | None, retries: int, expected: Reliability
) -> None:
    assert reliability(acks, enabled, retries, 5, None) == expected


@pytest.mark.parametrize(
    ("acks", "enabled", "retries", "in_flight", "transactional_id", "sentence"),
    [
        ("1", True, MANY, 5, None, "an idempotent producer needs acks=all"),
        ("all", True, 0, 5, None, "an idempotent producer needs retries above 0"),
        ("all", True, MANY, 6, None, "at most 5 requests in flight"),
        ("all", None, MANY, 6, None, "at most 5 requests in flight"),
        ("all", False, MANY, 5, "tx", "leave enable.idempotence out"),
        (1, None, MANY, 5, "tx", "which needs acks=all"),
        ("all", None, 0, 5, "tx", "which needs retries above 0"),
        ("most", None, MANY, 5, None, "acks must be 'all', 1 or 0"),
    ],
)
def test_what_contradicts_itself_is_refused(
    acks: str | int,
    enabled: bool | None,
    retries: int,
    in_flight: int,
    transactional_id: str | None,
    sentence: str,
) -> None:
    with pytest.raises(ValueError, match=sentence):
        reliability(acks, enabled, retries, in_flight, transactional_id)


def test_more_in_flight_is_no_matter_without_idempotence() -> None:
    assert reliability("all", False, MANY, 50, None) == Reliability(-1, False)
