"""The rows about Spark: which are chosen, what is made of progress, what is told."""

import argparse
from typing import Any

import pytest

from bench.__main__ import ALL_TITLES, chosen
from bench.results import Results, figure_at
from bench.rows import TITLES
from bench.spark import queries, report
from bench.spark.rows import OURS, SPARK_ROWS, Copy, Sink, Small, Source


def asked(only: str) -> set[str]:
    return chosen(argparse.Namespace(only=only))


def test_a_common_beginning_names_all_rows_about_spark_that_have_it() -> None:
    assert asked("spark") == set(SPARK_ROWS)
    assert asked("spark-sink") == {key for key in SPARK_ROWS if key.startswith("spark-sink-")}
    assert asked("partitions,latency") == {"partitions", "latency"}
    assert not SPARK_ROWS.keys() & TITLES.keys()
    assert asked("spark-nowhere") - ALL_TITLES.keys() == {"spark-nowhere"}


def test_every_row_has_our_peer_and_enough_micro_batches_to_leave_one_out() -> None:
    for row in SPARK_ROWS.values():
        assert OURS in row.peers
        if isinstance(row.job, Sink | Small | Source):
            assert row.job.batches > 1
    assert Copy(100, 0.1, 21).rows == 10_000
    assert Copy(1000, 30, 1).rows == 300_000


def batch(number: int, rows: int, ms: int) -> dict[str, Any]:
    return {"batchId": number, "numInputRows": rows, "durationMs": {"triggerExecution": ms}}


def test_rows_per_second_are_over_the_time_of_whole_micro_batches() -> None:
    assert queries.throughput([batch(1, 300, 100), batch(2, 100, 300)]) == {"rows/s": 1000.0}
    times = queries.each([batch(number, 10, ms) for number, ms in enumerate(range(1, 21))])
    assert times == {"p50 ms": 10.5, "p90 ms": 19.0}


def test_the_time_of_a_micro_batch_is_told_by_phase_and_by_step() -> None:
    assert queries.phases([batch(1, 1, 10), batch(2, 1, 30)]) == {"triggerExecution": 20.0}
    steps = [
        {"step": step, "batch": number, "time_ms": time_ms}
        for number, step, time_ms in (
            (0, "wal_written", 0),
            (0, "tasks_done", 900),
            (1, "wal_written", 1000),
            (1, "tasks_done", 1040),
            (1, "txn_ended", 1050),
            (2, "wal_written", 1100),
            (2, "tasks_done", 1160),
        )
    ]
    assert queries.between(steps, [1, 2]) == {
        "wal_written -> tasks_done": 50.0,
        "tasks_done -> txn_ended": 10.0,
    }


class Query:
    """A query that brings one micro-batch to its end each time it is looked at."""

    def __init__(self, ends_after: int | None = None) -> None:
        self._ends_after = ends_after
        self.recentProgress: list[dict[str, Any]] = []
        self.is_stopped = False

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        number = len(self.recentProgress)
        if number != self._ends_after:
            # An idle trigger tells of itself as well.
            self.recentProgress.append(batch(number, 0 if number == 1 else 10, 5))
        return self.recentProgress[-1] if self.recentProgress else None

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        return len(self.recentProgress) != self._ends_after

    def exception(self) -> str:
        return "the reason"

    def stop(self) -> None:
        self.is_stopped = True


class Writer:
    def __init__(self, query: Query) -> None:
        self.query = query

    def option(self, *_: object) -> "Writer":
        return self

    def trigger(self, **_: object) -> "Writer":
        return self

    def start(self) -> Query:
        return self.query


def test_the_first_micro_batch_is_left_out_and_the_query_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queries, "LOOK_S", 0)
    query = Query()
    found = queries.first_batches(Writer(query), 4)
    assert [one["batchId"] for one in found] == [2, 3]
    assert query.is_stopped


def test_a_query_that_ends_early_is_a_failure_with_its_reason() -> None:
    with pytest.raises(RuntimeError, match="the reason"):
        queries.first_batches(Writer(Query(ends_after=2)), 4)


def measured() -> Results:
    made = Results(facts={"spark": "PySpark 4.3.0", "spark commit": "0123456789"})
    for number in range(3):
        for peer, speed in (("oncelog", 200.0), ("spark", 100.0), ("noop", 900.0)):
            for broker in ("oncelog", "kafka"):
                figures = {figure_at("rows/s", broker): speed + number}
                made.add("spark-sink-100", peer, figures)
        made.add("latency", "oncelog", {"p50 ms": 1.0})
    return made


def test_each_broker_has_its_own_line_with_the_ratio_to_sparks_connector() -> None:
    lines = "\n".join(report.markdown(measured()))
    line = "| sink, a million rows of 100 B | rows/s | {} | 201 | 101 | 1.99 | 1.98 to 2.00 | 901 |"
    assert line.format("Oncelog") in lines
    assert line.format("Kafka") in lines
    assert "Kafka Streams: EOS" not in lines
    assert len(report.terminal(measured())) == 1


def test_without_figures_the_section_says_how_to_get_them() -> None:
    assert "--only spark" in "\n".join(report.markdown(Results()))


def test_figures_about_spark_outlive_a_run_of_the_other_rows() -> None:
    kept = measured().only("spark")
    assert {key for key, _ in kept.samples} == {"spark-sink-100"}
    assert kept.facts["spark"] == "PySpark 4.3.0"
