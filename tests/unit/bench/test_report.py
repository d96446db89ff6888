"""From figures to tables: what is judged, what a run that was cut short leaves, what is written."""

from pathlib import Path

from bench import plot, report
from bench.cluster.rows import CLUSTER_ROWS
from bench.counting import Calls
from bench.gauges import CpuTime
from bench.results import Results, WarmUp
from bench.rows import COSTS, FRESH, ROWS, TITLES, TLS_ROWS
from bench.storage.rows import STORAGE


def measured(rounds: int = 3) -> Results:
    """Two rows and a start; Oncelog twice as good throughout."""
    made = Results(facts={"commit": "0123456789abcdef", "system calls": "perf stat"})
    for number in range(rounds):
        for system, factor in (("oncelog", 1.0), ("kafka", 0.5)):
            speed = (100 + number) * factor
            made.add("bulk-1000", system, {"MB/s": speed})
            made.add("latency", system, {"p50 ms": 1 / speed})
            made.add("start", system, {"seconds": 10 / speed})
            made.add_cpu("latency", system, CpuTime(1 / factor, 0.8 / factor, 0.2 / factor), 1e4)
    made.add("latency", "client alone", {"p50 ms": 0.001})
    made.system_calls["latency"] = {"oncelog": 3.0, "kafka": 9.5}
    for system in ("oncelog", "kafka"):
        made.warm_ups["latency"][system] = WarmUp(12.0, 100.0, 250.0, steady=system == "oncelog")
    return made


CALLS = {"Produce": Calls(79, 79, 85)}


def test_every_row_has_a_title_and_a_key_of_its_own() -> None:
    assert len(TITLES) == len(FRESH) + len(ROWS) + len(TLS_ROWS) + len(STORAGE) + len(CLUSTER_ROWS)
    assert {key for pair in COSTS for key in pair} <= set(TITLES)


def test_higher_is_better_for_rates_only() -> None:
    by_figure = {one.figure: one for one in report.results(measured(), "kafka")}
    assert by_figure["MB/s"].ratio.value == 2.0
    assert by_figure["p50 ms"].ratio.value == 0.5
    assert {one.verdict for one in by_figure.values()} == {"better"}


def test_the_other_way_round_is_worse() -> None:
    made = measured()
    for by_system in made.samples.values():
        by_system["oncelog"], by_system["kafka"] = by_system["kafka"], by_system["oncelog"]
    assert {one.verdict for one in report.results(made, "kafka")} == {"worse"}


def test_an_interval_that_holds_one_is_no_difference() -> None:
    made = Results()
    for ours, theirs in ((10, 11), (11, 10), (10, 10)):
        made.add("bulk-1000", "oncelog", {"MB/s": ours})
        made.add("bulk-1000", "kafka", {"MB/s": theirs})
    (one,) = report.results(made, "kafka")
    assert one.verdict == "same"


def test_half_a_round_does_not_count() -> None:
    made = measured()
    made.add("bulk-1000", "oncelog", {"MB/s": 1e9})
    assert report.results(made, "kafka") == report.results(measured(), "kafka")


def test_a_row_that_only_one_system_has_done_is_left_out() -> None:
    made = measured()
    made.add("consume", "oncelog", {"MB/s": 1.0})
    assert "consume" not in {one.key for one in report.results(made, "kafka")}


def test_cpu_is_told_per_unit_with_its_split() -> None:
    made = measured()
    (one,) = report.cpu_results(made, "kafka")
    assert (one.figure, one.ours, one.theirs) == ("CPU us/request", 100.0, 200.0)
    assert report.split_text(made.split["latency"]["kafka"], 1e6) == "160 + 40.0"


def test_what_is_kept_on_the_disk_is_what_was_measured(tmp_path: Path) -> None:
    made = measured()
    made.save(tmp_path / "kept" / "results.json")
    again = Results.load(tmp_path / "kept" / "results.json")
    assert report.document(again, CALLS) == report.document(made, CALLS)


def test_a_forgotten_row_leaves_nothing() -> None:
    made = measured()
    made.forget("latency")
    assert report.cpu_results(made, "kafka") == []
    assert {one.key for one in report.results(made, "kafka")} == {"bulk-1000", "start"}


def test_the_document_holds_every_table_and_how_it_was_measured() -> None:
    text = report.document(measured(), CALLS)
    assert "| produce + flush of one 100 B record | p50 ms | 0.010 | 0.020 | 0.50 |" in text
    assert "| request | 100 us | 80.0 + 20.0 | 200 us | 160 + 40.0 | 0.50 |" in text
    assert "| 3.00 | 9.50 |" in text
    assert "| Produce | 79 | 79 | 85 |" in text
    assert "| 12 | 2.50 | 12 (not steady) | 2.50 |" in text
    assert "## How it is measured" in text
    assert "$" not in text


def test_a_run_without_rows_still_makes_a_document() -> None:
    text = report.document(Results(), {})
    assert "neither `perf` nor `strace`" in text


def test_what_a_guarantee_costs_is_told_within_each_system() -> None:
    made = Results()
    for system, shares in (("oncelog", (0.9, 0.9)), ("kafka", (0.4, 0.6))):
        for number, share in enumerate(shares):
            made.add("idempotent", system, {"MB/s": 100.0 * share * (number + 1)})
            made.add("plain", system, {"MB/s": 100.0 * (number + 1)})
    titles = "1000 B, idempotent | 1000 B, not idempotent"
    assert f"| {titles} | -10% (-10% to -10%) | -50% (-60% to -40%) |" in report.cost_table(
        made, "kafka"
    )


def test_the_plot_has_a_dot_for_each_figure_inside_its_axis() -> None:
    found = report.results(measured(), "kafka")
    drawn = plot.svg(found)
    assert drawn.count("<circle") == len(found)
    assert drawn.startswith("<svg")
    assert drawn.rstrip().endswith("</svg>")


def test_the_document_opens_with_what_the_tables_come_to() -> None:
    first, second = measured(), measured()
    for by_system in second.samples.values():
        by_system["oncelog"], by_system["kafka"] = by_system["kafka"], by_system["oncelog"]
    rounds = len(second.samples["latency", "p50 ms"]["kafka"])
    second.samples["latency", "p99 ms"] = {"oncelog": [1.0] * rounds, "kafka": [2.0] * rounds}
    opening = [report.document(made, CALLS).splitlines()[2] for made in (first, second)]
    assert "better than Apache Kafka in 2 of 2 figures" in opening[0]
    assert opening[0].endswith("It spends less CPU in 1 of 1 rows.")
    worse = f"{TITLES['latency']}: p50 ms 2.00 of Kafka's, beside p99 ms 0.50; "
    assert f"worse in 2 ({worse}" in opening[1]
