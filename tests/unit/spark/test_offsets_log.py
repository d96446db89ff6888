"""Spark's offsets log, as Spark 4.3 writes it."""

import pytest

from oncelog.core.ids import TopicPartition
from oncelog.spark.errors import UsageError
from oncelog.spark.offsets_log import cluster_ids, initial_offsets, kafka_offsets, parse

ENTRY = 'v1\n{"batchWatermarkMs":0,"conf":{}}\n{"in":{"0":10,"1":7}}\n{"in":{"0":12,"1":6}}\n-\n'


def test_an_entry_gives_one_line_per_source() -> None:
    entry = parse(3, ENTRY)
    assert entry.batch_id == 3
    assert entry.source_lines == ('{"in":{"0":10,"1":7}}', '{"in":{"0":12,"1":6}}', "-")


def test_a_partition_read_by_two_sources_gets_the_lower_offset() -> None:
    offsets = kafka_offsets(parse(3, ENTRY).source_lines)
    assert offsets == {TopicPartition("in", 0): 10, TopicPartition("in", 1): 6}


@pytest.mark.parametrize(
    "line",
    ["-", "17", '{"offset":5}', '{"in":{"a":1}}', '{"in":{"0":"1"}}', "x", '{"in":{"0":-1}}'],
)
def test_a_source_that_is_not_kafka_carries_no_offsets(line: str) -> None:
    assert kafka_offsets([line]) == {}


@pytest.mark.parametrize("text", ["", "v2\n{}\n{}\n", "v1\n{}\n"])
def test_an_entry_in_another_format_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="offsets/4"):
        parse(4, text)


OURS = '{"in":{"0":10},"@oncelog":{"cluster":"c1","begin":{"in":{"0":4}}}}'


def test_our_source_tells_its_cluster_and_its_beginning_beside_the_offsets() -> None:
    assert kafka_offsets([OURS]) == {TopicPartition("in", 0): 10}
    assert cluster_ids([OURS, '{"in":{"0":10}}', "-"]) == {"c1"}
    assert initial_offsets([OURS]) == {TopicPartition("in", 0): 4}


def test_where_a_query_began_may_stand_in_a_file_beside_the_log() -> None:
    line = '{"in":{"0":10}}'
    assert initial_offsets([line]) is None
    assert initial_offsets([line], ['{"in":{"1":3}}']) is None
    of_spark = '\0v1\n{"in":{"0":3}}'
    assert initial_offsets([line], [of_spark]) == {TopicPartition("in", 0): 3}


def test_an_entry_tells_when_it_was_planned() -> None:
    assert parse(3, ENTRY).planned_at_s is None
    assert parse(0, 'v1\n{"batchTimestampMs":1500}\n-\n').planned_at_s == 1.5
