"""What the steps of a batch, and Spark's progress, tell together."""

from typing import Any

from oncelog.spark.batch_progress import describe_batch, lag_of, last_progress


def steps(*names: str) -> list[dict[str, Any]]:
    """One step each 10 ms."""
    details = {
        "after_init": {"producer": 7, "epoch": 3},
        "tasks_done": {"records": 40, "partitions": 2},
    }
    return [
        {"step": name, "batch": 1, "time_ms": 10 * index, **details.get(name, {})}
        for index, name in enumerate(names)
    ]


def test_a_committed_batch_tells_rows_transaction_and_times() -> None:
    names = ["wal_written", "after_init", "tasks_done", "offsets_committed", "ending", "txn_ended"]
    assert describe_batch(steps(*names)) == {
        "outcome": "committed",
        "numOutputRows": 40,
        "partitions": 2,
        "attempts": 1,
        "transaction": {"producerId": 7, "producerEpoch": 3},
        "durationMs": {"begin": 10, "write": 10, "commit": 30},
    }


def test_the_times_are_those_of_the_last_attempt() -> None:
    names = ["wal_written", "after_init", "failed", "after_init", "tasks_done", "txn_ended"]
    told = describe_batch(steps(*names))
    assert told["attempts"] == 2
    assert told["durationMs"] == {"begin": 10, "write": 10, "commit": 10}


def test_a_drained_batch_wrote_nothing() -> None:
    told = describe_batch(steps("wal_written", "drain", "drained"))
    assert (told["outcome"], told["numOutputRows"], told["attempts"]) == ("drained", 0, 0)


def test_a_batch_that_nothing_is_known_of_is_running() -> None:
    assert describe_batch([])["outcome"] == "running"


def test_lag_is_the_sum_over_partitions_of_sources_that_tell() -> None:
    told = {"endOffset": '{"t":{"0":5,"1":5}}', "latestOffset": '{"t":{"0":9,"1":5,"2":4}}'}
    silent = {"endOffset": '{"logOffset":1}', "latestOffset": None}
    assert lag_of([told, silent, told]) == 16
    assert lag_of([silent]) is None


def test_a_query_of_another_process_has_sparks_progress_only() -> None:
    class Query:
        runId = "elsewhere"  # noqa: N815 - Spark's name
        lastProgress: Any = None  # noqa: N815

    query = Query()
    assert last_progress(query) is None
    query.lastProgress = {"batchId": 1}
    assert last_progress(query) == {"batchId": 1}
