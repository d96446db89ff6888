"""`oncelog perf` against a broker in this process, and how its figures are made."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from click.testing import Result

from oncelog.cli.measuring import Latencies, Measure, plot

Oncelog = Callable[..., Result]


def result_of(result: Result) -> dict[str, object]:
    assert result.exit_code == 0, result.stderr
    (line,) = result.stdout.splitlines()
    found: dict[str, object] = json.loads(line)
    return found


def test_what_is_sent_can_be_read_and_both_are_measured(oncelog: Oncelog, topic: str) -> None:
    options = ("--num-records", "500", "--json")
    sent = result_of(oncelog("perf", "produce", topic, "--record-size", "20", *options))
    assert (sent["records"], sent["bytes"]) == (500, 10_000)
    read = result_of(oncelog("perf", "consume", topic, *options))
    assert (read["test"], read["records"], read["bytes"]) == ("consume", 500, 10_000)
    for one in (sent, read):
        latency = one["latency_ms"]
        assert isinstance(latency, dict)
        assert 0 < latency["p50"] <= latency["p95"] <= latency["p99"] <= latency["max"]


def test_transactions_are_counted(oncelog: Oncelog, topic: str) -> None:
    options = ("--num-transactions", "3", "--records-per-transaction", "4", "--json")
    done = result_of(oncelog("perf", "transactions", topic, *options))
    assert (done["transactions"], done["records"]) == (3, 12)
    read = oncelog("consume", topic, "--from-beginning", "--until-end", "--json")
    assert len(read.stdout.splitlines()) == 12


def test_a_reader_ends_where_nothing_comes(oncelog: Oncelog, topic: str) -> None:
    done = result_of(oncelog("perf", "consume", topic, "--timeout-ms", "100", "--json"))
    assert (done["records"], done["latency_ms"]) == (0, {})


def test_the_wait_for_more_records_is_no_time_of_reading(oncelog: Oncelog, topic: str) -> None:
    oncelog("produce", topic, stdin="a\nb\n")
    begun_s = time.monotonic()
    done = result_of(oncelog("perf", "consume", topic, "--timeout-ms", "1500", "--json"))
    assert done["records"] == 2
    assert isinstance(done["seconds"], float)
    assert done["seconds"] <= time.monotonic() - begun_s - 1.5


def test_a_topic_that_is_not_there_is_not_made(oncelog: Oncelog) -> None:
    for test in ("produce", "consume", "transactions"):
        result = oncelog("perf", test, "nowhere")
        assert result.exit_code == 1
        assert result.stderr.startswith("Error: unknown topic nowhere: ")


def test_percentiles_are_within_a_hundredth() -> None:
    latencies = Latencies()
    for number in range(1, 1001):
        latencies.add(number / 10)
    found = latencies.summary()
    assert found["p50"] == pytest.approx(50, rel=0.011)
    assert found["p95"] == pytest.approx(95, rel=0.011)
    assert found["p99"] == pytest.approx(99, rel=0.011)
    assert found["max"] == 100


def test_a_rate_is_of_what_came_since_the_last_look() -> None:
    measure = Measure(10.0)
    measure.add(100, 1000)
    measure.sample(10.5)
    measure.add(50, 500)
    measure.sample(11.5)
    measure.sample(11.5)
    assert list(measure.rates) == [200, 50]
    assert measure.result("produce", "t", 12.0) == {
        "test": "produce",
        "topic": "t",
        "records": 150,
        "bytes": 1500,
        "seconds": 2.0,
        "records_per_s": 75.0,
        "mb_per_s": 0.001,
        "latency_ms": {},
    }


def test_the_plot_has_a_column_per_value() -> None:
    assert plot([0, 1, 2, 4], height=2) == ["   █", " ▄██"]
    assert plot([], height=2) == ["", ""]
    assert plot([0, 0], height=1) == ["  "]


def test_records_that_were_not_acknowledged_are_told_with_the_reason(oncelog: Oncelog) -> None:
    oncelog("topics", "create", "compacted-perf", "--config", "cleanup.policy=compact")
    result = oncelog("perf", "produce", "compacted-perf", "--num-records", "3")
    assert result.exit_code == 1
    assert "3 of 3 records were not acknowledged, the first because " in result.stderr
    assert "INVALID_RECORD" in result.stderr
