"""INV-10 under simulation: a few runs of the Spark model, and that its judge fires."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from oncelog.client.values import OffsetAndMetadata
from oncelog.core.ids import TopicPartition
from oncelog.simulation.final import FinalPartition, FinalState, LoggedRecord
from oncelog.simulation.history import Value
from oncelog.spark.marker import BatchIdentity, Marker, sources_hash
from tests.simulation.planted import ROOT, load
from tests.simulation.spark_application import Application, Refusal
from tests.simulation.spark_checkpoint import Checkpoint
from tests.simulation.spark_judge import judge_batches
from tests.simulation.spark_model import draw_spark_plan, run_spark
from tests.simulation.spark_planted import names
from tests.support.patches import patched

SOURCE = TopicPartition("source", 0)
OUTPUT = TopicPartition("output", 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "profile", "path"),
    [
        (1, "calm", "stage writes"),
        (6, "processes", "partition shared by tasks"),
        (3, "network", "stage writes"),
    ],
)
def test_micro_batches_are_whole_and_committed_once(seed: int, profile: str, path: str) -> None:
    result = run_spark(draw_spark_plan(seed, profile))
    assert not result.findings, f"python -m tests.simulation.spark_model --runs 1 --seed {seed}"
    assert result.batches > 3
    assert result.reached[path], "no batch was written in this way"


@pytest.mark.slow
def test_a_seed_decides_everything_though_drivers_block_on_threads() -> None:
    plan = replace(draw_spark_plan(6, "processes"), duration_s=2.0)
    assert run_spark(plan).digest == run_spark(plan).digest


@pytest.mark.parametrize("name", names())
def test_a_planted_bug_fits_the_code(name: str) -> None:
    for file, text in patched(name, load(name).edits, ROOT).items():
        compile(text, file, "exec")


# --- the judge ---------------------------------------------------------------------------


class Outcome:
    """Two batches of two records each, as they should be."""

    def __init__(self) -> None:
        self.checkpoint = Checkpoint("q", {SOURCE: 0})
        self.checkpoint.log_offsets(0, {SOURCE: 2})
        self.checkpoint.log_offsets(1, {SOURCE: 4})
        self.checkpoint.log_commit(0)
        self.copies = [self.copy(n, transaction=1 + n // 2) for n in range(4)]
        self.committed = 4
        self.marker: Marker | None = self.marker_of(1)
        self.app = Application.__new__(Application)
        self.app.partitions = (SOURCE,)
        self.app.marker_partition = None
        self.app.checkpoint = self.checkpoint
        self.app.checkpoints = {"q": self.checkpoint}
        self.app.refusals = []
        self.app.finished = {("q", 0): "c0.0", ("q", 1): "c0.0"}

    def copy(self, offset: int, transaction: int, client: str = "c0.0") -> Value:
        return Value(client, 10 * transaction + offset, transaction, f"source-0@{offset}")

    def marker_of(self, batch_id: int) -> Marker:
        lines = self.checkpoint.lines(batch_id)
        return Marker(batch_id + 1, BatchIdentity("q", batch_id, sources_hash(lines)))

    def findings(self) -> list[str]:
        written = tuple(LoggedRecord(n, Value("f", n)) for n in range(4))
        output = tuple(LoggedRecord(n, value) for n, value in enumerate(self.copies))
        final = FinalState(
            {SOURCE: _partition(SOURCE, written), OUTPUT: _partition(OUTPUT, output)}
        )
        committed = {}
        if self.committed:
            text = "" if self.marker is None else self.marker.encode()
            committed = {SOURCE: OffsetAndMetadata(self.committed, text)}
        found = judge_batches(self.app, final, committed, "output", 1.0)
        return sorted({anomaly.signature.removeprefix("INV-10: ") for anomaly in found})


def _partition(place: TopicPartition, records: tuple[LoggedRecord, ...]) -> FinalPartition:
    return FinalPartition(place, "id", 0, len(records), len(records), (), records)


def refuse(outcome: Outcome, reason: str, batch_id: int, query_id: str = "q") -> None:
    marker = outcome.marker_of(1)
    outcome.app.refusals.append(Refusal(reason, query_id, batch_id, marker, "c0.1"))


def test_the_judge_finds_nothing_where_batches_are_whole() -> None:
    outcome = Outcome()
    refuse(outcome, "other-query", 0, "lost")
    refuse(outcome, "older-batch", 0)
    assert outcome.findings() == []


@pytest.mark.parametrize(
    ("spoil", "finding"),
    [
        (lambda o: o.copies.append(o.copy(3, 3)), "a record is there twice"),
        (lambda o: o.copies.pop(), "a record is missing"),
        (lambda o: setattr(o, "committed", 3), "output is there without its offset"),
        (lambda o: setattr(o, "committed", 3), "marker and source offsets disagree"),
        (lambda o: setattr(o, "marker", o.marker_of(0)), "a finished batch is not committed"),
        (lambda o: setattr(o, "marker", None), "offsets are committed without a marker"),
        (lambda o: o.copies.reverse(), "output is out of order"),
        (
            lambda o: o.copies.__setitem__(3, o.copy(3, 2, "c0.1")),
            "a batch is of several transactions",
        ),
        (
            lambda o: o.copies.__setitem__(slice(2, 4), [o.copy(n, 1) for n in (2, 3)]),
            "a transaction holds several batches",
        ),
        (lambda o: o.app.finished.update({("q", 2): "c0.0"}), "a finished batch is not committed"),
        (
            lambda o: o.__dict__.update(committed=2, marker=o.marker_of(0)),
            "the query stopped before the end",
        ),
        (
            lambda o: refuse(o, "skipped-batches", 3),
            "failed closed without need [skipped-batches]",
        ),
        (lambda o: refuse(o, "older-batch", 1), "failed closed without need [older-batch]"),
        (lambda o: refuse(o, "other-query", 2), "failed closed without need [other-query]"),
    ],
)
def test_the_judge_finds(spoil: Callable[[Outcome], object], finding: str) -> None:
    outcome = Outcome()
    spoil(outcome)
    assert finding in outcome.findings()
