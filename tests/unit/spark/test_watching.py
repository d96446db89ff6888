"""What a terminal shows of a running query."""

import io
import signal
from typing import Any

import pytest
from rich.console import Console

from oncelog.spark.watching import Restarts, shown, watch

PROGRESS = {
    "batchId": 7,
    "processedRowsPerSecond": 12345.6,
    "durationMs": {"triggerExecution": 250},
    "sources": [],
    "oncelog": {
        "outcome": "committed",
        "numOutputRows": 3000,
        "attempts": 1,
        "transaction": {"producerId": 4, "producerEpoch": 9},
        "durationMs": {"begin": 1, "write": 200, "commit": 3},
        "lag": 1200,
    },
}


def text_of(renderable: Any) -> str:
    console = Console(file=io.StringIO(), width=120)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


class Query:
    """A query with two batches, then its end."""

    runId = "elsewhere"  # noqa: N815 - Spark's name

    def __init__(self, *endings: Any) -> None:
        self.endings = list(endings)
        self.is_stopped = False
        self.lastProgress = PROGRESS

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802
        ending = self.endings.pop(0)
        if isinstance(ending, BaseException):
            raise ending
        return bool(ending)

    def stop(self) -> None:
        self.is_stopped = True


def test_one_row_holds_all_that_a_batch_tells() -> None:
    text = text_of(shown(PROGRESS, 2))
    for part in ("7 committed", "12,346", "3,000", "250 ms", "4/9 in 4 ms", "1,200"):
        assert part in text
    assert text.rstrip().endswith("2")


def test_before_the_first_batch_it_waits() -> None:
    assert "waiting" in text_of(shown(None, 0))


def test_a_query_of_another_sink_shows_what_spark_tells() -> None:
    assert "12,346" in text_of(shown({**PROGRESS, "oncelog": {}}, 0))


def test_a_terminal_is_drawn_until_the_query_ends() -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, width=120)
    watch(Query(False, True), terminal)
    assert "12,346" in terminal.file.getvalue()  # type: ignore[attr-defined]


def test_a_file_gets_nothing() -> None:
    console = Console(file=io.StringIO())
    watch(Query(False, True), console)
    assert console.file.getvalue() == ""  # type: ignore[attr-defined]


def test_the_querys_failure_is_raised() -> None:
    console = Console(file=io.StringIO())
    with pytest.raises(ValueError, match="why"):
        watch(Query(ValueError("why")), console)


def test_ctrl_c_stops_the_query_between_two_calls_and_leaves_the_handler_as_it_was() -> None:
    class Interrupted(Query):
        def awaitTermination(self, timeout: float) -> bool:  # noqa: N802
            signal.raise_signal(signal.SIGINT)
            return False

    before = signal.getsignal(signal.SIGINT)
    query = Interrupted()
    watch(query, Console(file=io.StringIO()))
    assert query.is_stopped
    assert signal.getsignal(signal.SIGINT) is before


def test_an_attempt_that_failed_and_a_batch_found_committed_are_restarts_counted_once() -> None:
    restarts = Restarts()
    for batch_id, outcome, attempts in (
        (0, "drained", 0),
        (1, "committed", 3),
        (1, "committed", 3),
    ):
        ours = {"outcome": outcome, "attempts": attempts}
        count = restarts.count({"batchId": batch_id, "oncelog": ours})
    assert count == 3
