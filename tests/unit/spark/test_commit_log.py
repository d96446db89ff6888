"""When ``commits/N`` is written before a query starts, and when it is left to Spark."""

import json
from dataclasses import dataclass, field

import pytest

from oncelog.spark.commit_log import complete_commit_log
from oncelog.spark.marker import BatchIdentity, Marker, sources_hash

LINES = ('{"in":{"0":20}}',)
OFFSETS = "\n".join(["v1", '{"batchWatermarkMs":0}', *LINES])


@dataclass
class Files:
    """A checkpoint in memory: batch 1 is planned, batch 0 committed."""

    texts: dict[str, str] = field(
        default_factory=lambda: {
            "metadata": '{"id":"q"}',
            "offsets/0": OFFSETS,
            "offsets/1": OFFSETS,
            "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
        }
    )

    def last_entry(self, log: str) -> int:
        numbers = (int(name.split("/")[1]) for name in self.texts if name.startswith(f"{log}/"))
        return max(numbers, default=-1)

    def read(self, name: str) -> str:
        return self.texts[name]

    def create(self, name: str, text: str) -> None:
        assert name not in self.texts
        self.texts[name] = text


def marker(batch_id: int = 1, query_id: str = "q", watermark_ms: int | None = 7) -> Marker:
    return Marker(5, BatchIdentity(query_id, batch_id, sources_hash(LINES)), watermark_ms)


def never() -> Marker | None:
    raise AssertionError("nobody needs to be fenced")


def test_a_committed_batch_that_spark_did_not_note_is_noted_with_its_watermark() -> None:
    files = Files()
    assert complete_commit_log(files, marker) == 1
    version, entry = files.texts["commits/1"].split("\n")
    assert version == "v1"
    assert json.loads(entry) == {"nextBatchWatermarkMs": 7}


def test_the_first_batch_of_a_query_is_noted_too() -> None:
    files = Files()
    del files.texts["offsets/1"], files.texts["commits/0"]
    assert complete_commit_log(files, lambda: marker(0)) == 0


@pytest.mark.parametrize(
    "found",
    [
        None,
        marker(0),
        marker(query_id="another"),
        marker(watermark_ms=None),
        Marker(5, BatchIdentity("q", 1, sources_hash(["other lines"])), 7),
    ],
    ids=["no marker", "the batch before", "another query", "no watermark", "other records"],
)
def test_a_batch_that_is_not_surely_committed_is_left_to_spark(found: Marker | None) -> None:
    files = Files()
    before = dict(files.texts)
    assert complete_commit_log(files, lambda: found) is None
    assert files.texts == before


def test_a_query_that_stopped_cleanly_or_never_ran_sends_no_request() -> None:
    files = Files()
    files.texts["commits/1"] = files.texts["commits/0"]
    assert complete_commit_log(files, never) is None
    assert complete_commit_log(Files({}), never) is None


def test_a_query_that_runs_is_not_fenced_by_its_second_start() -> None:
    assert complete_commit_log(Files(), never, {"q"}) is None


def test_a_commit_log_of_another_format_is_left_alone() -> None:
    files = Files()
    files.texts["commits/0"] = 'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{}}'
    assert complete_commit_log(files, never) is None


def test_a_commit_log_that_lacks_more_than_one_batch_is_left_alone() -> None:
    files = Files()
    del files.texts["commits/0"]
    assert complete_commit_log(files, never) is None
