"""The source's offsets: their JSON, what is missing, and the next batch."""

from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.core.ids import TopicPartition
from oncelog.spark.errors import UsageError
from oncelog.spark.offsets_log import cluster_ids, kafka_offsets
from oncelog.spark.source_offsets import (
    ClusterState,
    GapKind,
    SourceOffset,
    begins_of,
    compare_with,
    limit_ends,
    next_offset,
    parse_places,
    parts_of,
    places_json,
    positions_after,
    split_range,
)

OLD, NEW = UUID(int=1), UUID(int=2)
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)

places = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 12)), st.integers(0, 1000)
)


@settings(deadline=None)
@given(places, places, st.booleans())
def test_offsets_survive_json_in_a_fixed_order(
    ends: dict[TopicPartition, int], begins: dict[TopicPartition, int], told: bool
) -> None:
    offset = SourceOffset(ends, {"a": OLD} if told else {}, "c" if told else None, begins)
    written = offset.to_json()
    assert SourceOffset.from_json(written) == offset
    assert parse_places(places_json(ends)) == ends
    assert list(written) == sorted(places_json(ends)) + (["@oncelog"] if told or begins else [])


def test_offsets_without_identities_are_read_and_a_log_of_ours_as_kafkas() -> None:
    assert SourceOffset.from_json({"a": {"0": 5}}) == SourceOffset({A0: 5})
    line = '{"a":{"0":5},"@oncelog":{"cluster":"c","ids":{},"begin":{"a":{"0":1}}}}'
    assert kafka_offsets([line]) == {A0: 5}
    assert cluster_ids([line, '{"b":{"0":1}}', "-", "[]"]) == {"c"}


@pytest.mark.parametrize("value", [{"a": 5}, {"a": {"x": 1}}, {"@oncelog": {"ids": {"a": "?"}}}])
def test_an_offset_that_is_none_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="source offset"):
        SourceOffset.from_json(value)


def resume(start: SourceOffset, now: ClusterState) -> SourceOffset:
    """What a query with failOnDataLoss=false plans, where every log begins at 0."""
    positions = positions_after(start, now, compare_with(start, now))
    return next_offset(start, now, {**dict.fromkeys(now.ends, 0), **positions})


@pytest.mark.parametrize("end", [0, 99, 100, 101])
def test_a_topic_made_again_is_seen_whatever_its_length_and_read_from_its_beginning(
    end: int,
) -> None:
    start = SourceOffset({A0: 100, B0: 7}, {"a": OLD, "b": OLD}, "c")
    now = ClusterState({A0: end, B0: 7}, {"a": NEW, "b": OLD}, "c")
    (gap,) = compare_with(start, now)
    assert gap.kind is GapKind.REPLACED
    assert "topic 'a' was deleted and made again" in gap.what
    planned = resume(start, now)
    assert planned.ends == {A0: end, B0: 7}
    assert begins_of(start, planned) == {A0: 0, B0: 7}
    assert planned.topic_ids == {"a": NEW, "b": OLD}
    assert compare_with(planned, now) == []


def test_another_cluster_is_seen_and_all_its_logs_are_new() -> None:
    start = SourceOffset({A0: 5, A1: 5}, {"a": OLD}, "here")
    now = ClusterState({A0: 9, A1: 3}, {"a": NEW}, "there")
    (gap,) = compare_with(start, now)
    assert "cluster here" in gap.what
    assert "cluster there" in gap.what
    assert begins_of(start, resume(start, now)) == {A0: 0, A1: 0}


def test_a_partition_that_is_gone_keeps_its_place_and_a_shortened_one_goes_on_at_its_end() -> None:
    start = SourceOffset({A0: 5, A1: 5, B0: 5}, {"a": OLD, "b": OLD})
    now = ClusterState({A0: 3}, {"a": OLD}, unsubscribed=frozenset({"b"}))
    whats = [gap.what for gap in compare_with(start, now)]
    assert whats == [
        "partition a-0 ends at 3, before 5",
        "partition a-1 is gone",
        "partition b-0 is in the query's offsets, but not subscribed to any more",
    ]
    planned = resume(start, now)
    assert planned.ends == {A0: 3, A1: 5, B0: 5}
    assert begins_of(start, planned) == {A0: 3, A1: 5, B0: 5}


def test_without_topic_ids_an_end_below_the_position_counts_as_a_new_log() -> None:
    start, now = SourceOffset({A0: 100}), ClusterState({A0: 30}, {"a": NEW})
    assert [gap.kind for gap in compare_with(start, now)] == [GapKind.SHORTENED]
    planned = resume(start, now)
    assert begins_of(start, planned) == {A0: 0}
    assert planned.topic_ids == {"a": NEW}


def test_the_first_batch_and_new_partitions_carry_their_beginning() -> None:
    """Spark does not keep the beginning: asked again after a crash, it would have moved."""
    start = SourceOffset({A0: 10}, {"a": OLD}, "c", {A0: 10})
    first = next_offset(start, ClusterState({A0: 20}, {"a": OLD}, "c"), {A0: 10})
    asked_again = SourceOffset({A0: 15}, {"a": OLD}, "c", {A0: 15})
    assert begins_of(asked_again, first) == {A0: 10}
    more = ClusterState({A0: 20, A1: 4}, {"a": OLD}, "c")
    second = next_offset(first, more, {A0: 20, A1: 0})
    assert second.begins == {A1: 0}
    assert begins_of(first, second) == {A0: 20, A1: 0}


def test_the_same_offset_comes_back_when_there_is_nothing_new() -> None:
    start = SourceOffset({A0: 20}, {"a": OLD}, "c", {A0: 10})
    now = ClusterState({A0: 20}, {"a": OLD}, "c")
    assert next_offset(start, now, {A0: 20}) is start
    untold = SourceOffset({A0: 20})
    assert next_offset(untold, now, {A0: 20}).topic_ids == {"a": OLD}


@settings(deadline=None)
@given(places, st.integers(1, 500))
def test_a_limit_moves_every_waiting_partition_and_never_past_its_end(
    ends: dict[TopicPartition, int], rows_max: int
) -> None:
    begins = dict.fromkeys(ends, 0)
    limited = limit_ends(begins, ends, rows_max)
    assert all((limited[tp] > 0) == (end > 0) and limited[tp] <= end for tp, end in ends.items())
    assert sum(limited.values()) <= rows_max + len(ends)


@given(
    st.lists(st.integers(1, 1000), min_size=1, max_size=9),
    st.none() | st.integers(1, 50),
    st.none() | st.integers(1, 500),
)
def test_ranges_are_cut_without_a_gap_and_none_is_empty_or_too_large(
    sizes: list[int], parts_min: int | None, size_max: int | None
) -> None:
    counts = parts_of(sizes, parts_min, size_max)
    for size, count in zip(sizes, counts, strict=True):
        cuts = split_range(7, 7 + size, count)
        assert (cuts[0][0], cuts[-1][1]) == (7, 7 + size)
        assert all(after[0] == before[1] for before, after in pairwise(cuts))
        assert all(0 < end - begin <= (size_max or size) for begin, end in cuts)
    if parts_min is None and size_max is None:
        assert counts == [1] * len(sizes)


def test_large_ranges_are_cut_to_reach_the_least_number_of_tasks() -> None:
    assert parts_of([900, 100], 10, None) == [9, 1]
    assert parts_of([900, 100], 2, None) == [1, 1]
