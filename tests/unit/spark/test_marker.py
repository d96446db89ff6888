"""Which batch may run: every case of `compare`, and the marker's text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.core.ids import TopicPartition
from oncelog.spark.errors import FailClosedError
from oncelog.spark.marker import (
    ACCEPTABLE,
    BatchIdentity,
    Marker,
    Verdict,
    check_start,
    compare,
    latest,
    opened_query,
    opening,
    sources_hash,
)


def batch(batch_id: int, query: str = "q", sources: str = "s") -> BatchIdentity:
    return BatchIdentity(query, batch_id, sources)


LAST = Marker(9, batch(5))


@settings(deadline=None)
@given(st.integers(1, 2**40), st.text(max_size=20), st.integers(0, 2**31))
def test_a_marker_is_read_back_as_it_was_written(sequence: int, query: str, number: int) -> None:
    marker = Marker(sequence, BatchIdentity(query, number, sources_hash(["a"])))
    assert Marker.decode(marker.encode()) == marker
    assert len(marker.encode()) < 4096


@pytest.mark.parametrize("text", [None, "", "some user's metadata", '{"other":1}', '"oncelog"'])
def test_other_metadata_is_no_marker(text: str | None) -> None:
    assert Marker.decode(text) is None


@pytest.mark.parametrize("text", ['{"oncelog":2}', '{"oncelog":1}', '{"oncelog":1,"batch":"x"}'])
def test_a_marker_that_cannot_be_understood_stops_everything(text: str) -> None:
    with pytest.raises(FailClosedError):
        Marker.decode(text)


def test_the_latest_of_several_markers_counts() -> None:
    texts = [Marker(3, batch(2)).encode(), "", LAST.encode(), None]
    assert latest(texts) == LAST
    assert latest([]) is None


def test_an_opening_is_no_marker_of_a_batch_and_names_its_query() -> None:
    text = opening("q").encode()
    assert latest([text, LAST.encode()]) == LAST
    assert latest([text]) is None
    assert (opened_query(text), opened_query(LAST.encode()), opened_query("")) == ("q", None, None)


def test_the_next_batch_runs_and_the_committed_one_is_drained() -> None:
    assert compare(LAST, batch(6, sources="t")) is Verdict.RUN
    assert compare(LAST, batch(5)) is Verdict.DRAIN
    assert compare(None, batch(0)) is Verdict.RUN


CASES = [
    ("missing-marker", None, batch(3)),
    ("other-sources", LAST, batch(5, sources="t")),
    ("older-batch", LAST, batch(4)),
    ("older-batch", LAST, batch(0)),
    ("skipped-batches", LAST, batch(7)),
]


@pytest.mark.parametrize(("reason", "committed", "current"), CASES)
def test_every_other_case_fails_closed_and_only_its_own_override_opens_it(
    reason: str, committed: Marker | None, current: BatchIdentity
) -> None:
    with pytest.raises(FailClosedError) as failure:
        compare(committed, current, accept=ACCEPTABLE - {reason})
    assert failure.value.reason == reason
    assert reason in str(failure.value)
    assert compare(committed, current, accept=[reason]) is Verdict.RUN


def test_a_foreign_query_is_accepted_by_its_id_only() -> None:
    foreign = batch(0, query="new")
    with pytest.raises(FailClosedError, match="other-query"):
        compare(LAST, foreign, accept=ACCEPTABLE, replaces_query="x")
    assert compare(LAST, foreign, replaces_query="q") is Verdict.RUN


def test_the_hash_depends_on_every_line_and_their_order() -> None:
    hashes = {sources_hash(lines) for lines in (["a", "b"], ["b", "a"], ["a"], ["ab"])}
    assert len(hashes) == 4


@pytest.mark.parametrize(("begin", "what"), [(7, "again"), (12, "never")])
def test_a_replacing_query_that_begins_elsewhere_in_any_partition_is_refused(
    begin: int, what: str
) -> None:
    """What lies between is told as it would end: twice in the output, or not at all."""
    places = [TopicPartition("in", number) for number in range(2)]
    check_start(dict.fromkeys(places, 10), dict.fromkeys(places, 10), ())
    with pytest.raises(FailClosedError, match=rf"in-1.* would be written {what};"):
        check_start({places[0]: 10, places[1]: begin}, dict.fromkeys(places, 10), ())
