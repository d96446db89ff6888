"""The readers, planning against a cluster that is a few dictionaries."""

import logging
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import StructType

from oncelog.client.machines.positions import Position
from oncelog.client.requests import EARLIEST, LATEST
from oncelog.core.ids import TopicPartition
from oncelog.spark.errors import DataLossError, UsageError
from oncelog.spark.source import OncelogBatchReader, OncelogStreamReader
from oncelog.spark.source_cluster import SourceCluster
from oncelog.spark.source_offsets import ClusterState, Places, SourceOffset
from oncelog.spark.source_options import SourceOptions
from oncelog.spark.source_read import OffsetRange

OLD, NEW = UUID(int=1), UUID(int=2)
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
ALL = ReadAllAvailable()


@dataclass
class Logs:
    """What the cluster holds. Times are offsets here: record 7 was written at 7 ms."""

    first: Places
    ends: Places
    topic_id: UUID = OLD
    committed: Places = field(default_factory=dict)
    high_watermark: int = 0
    questions: int = 0
    epoch: int = 3
    kept: int = 1_000
    """Where the epochs before this one end."""

    def state(
        self, start: SourceOffset | None = None, *, may_be_gone: bool = False
    ) -> ClusterState:
        self.questions += 1
        known = {tp.topic for tp in start.ends} if start is not None else set()
        if not (self.ends or may_be_gone or "a" in known):
            raise UsageError("topic 'a' does not exist")
        epochs = dict.fromkeys(self.ends, self.epoch)
        return ClusterState(dict(self.ends), {"a": self.topic_id}, "c", epochs=epochs)

    def diverged(self, read: dict[TopicPartition, Position]) -> Places:
        self.questions += 1
        return {tp: self.kept for tp, at in read.items() if self.kept < at.offset}

    def offsets(self, wanted: Places, isolation: int | None = None) -> Places:
        self.questions += 1
        where = {EARLIEST: self.first, LATEST: self.ends}
        return {
            tp: where[at][tp] if at < 0 else at if at < self.ends[tp] else -1
            for tp, at in wanted.items()
        }

    def beginnings(self, partitions: Any) -> Places:
        return self.offsets(dict.fromkeys(partitions, EARLIEST))

    def high_watermarks(self, partitions: Any) -> Places:
        return dict.fromkeys(partitions, self.high_watermark)

    def group_offsets(self, _group_id: str) -> Places:
        return self.committed

    def close(self) -> None:
        """Nothing is open."""


def options(**given: str) -> SourceOptions:
    return SourceOptions.parse({"bootstrapServers": "h:1", "subscribe": "a"} | given)


def streaming(logs: Logs, now_s: Any = lambda: 0.0, **given: str) -> OncelogStreamReader:
    def connect(_options: SourceOptions) -> SourceCluster:
        return cast(SourceCluster, logs)

    given = {"startingOffsets": "earliest"} | given
    return OncelogStreamReader(options(**given), StructType(), connect, now_s)


def batch(logs: Logs, **given: str) -> list[tuple[int, int, int]]:
    def connect(_options: SourceOptions) -> SourceCluster:
        return cast(SourceCluster, logs)

    return ranges(OncelogBatchReader(options(**given), StructType(), connect).partitions())


def ranges(partitions: list[InputPartition]) -> list[tuple[int, int, int]]:
    found = [partition for partition in partitions if isinstance(partition, OffsetRange)]
    return [(one.partition, one.start, one.end) for one in found]


def test_batches_follow_each_other_and_new_partitions_begin_at_their_beginning() -> None:
    logs = Logs({A0: 0}, {A0: 10})
    reader = streaming(logs)
    start = reader.initialOffset()
    first = reader.latestOffset(start, ALL)
    assert ranges(reader.partitions(start, first)) == [(0, 0, 10)]
    logs.first[A1], logs.ends[A1] = 0, 4
    second = reader.latestOffset(first, ALL)
    assert ranges(reader.partitions(first, second)) == [(1, 0, 4)]
    assert reader.latestOffset(second, ALL) == second
    assert reader.partitions(second, second) == []


def test_a_batch_costs_the_planner_one_question() -> None:
    logs = Logs({A0: 0}, {A0: 10})
    reader = streaming(logs)
    first = reader.latestOffset(reader.initialOffset(), ALL)
    logs.ends, logs.questions = {A0: 20}, 0
    second = reader.latestOffset(first, ALL)
    assert ranges(reader.partitions(first, second)) == [(0, 10, 20)]
    assert logs.questions == 1


@pytest.mark.parametrize("starting", ["latest", "group", '{"a":{"0":-1}}'])
def test_batch_0_reads_the_same_after_a_crash_though_the_beginning_has_moved(starting: str) -> None:
    logs = Logs({A0: 0}, {A0: 10}, committed={A0: 10})
    before = streaming(logs, startingOffsets=starting, groupId="g")
    start = before.initialOffset()
    logs.ends = {A0: 15}
    end = before.latestOffset(start, ALL)
    logs.ends, logs.committed = {A0: 30}, {A0: 30}
    after = streaming(logs, startingOffsets=starting, groupId="g")
    assert ranges(after.partitions(after.initialOffset(), end)) == [(0, 10, 15)]


@pytest.mark.parametrize("end", [5, 10, 15])
@pytest.mark.parametrize("is_available_now", [False, True])
def test_a_topic_made_again_is_seen_by_every_trigger(
    end: int, is_available_now: bool, caplog: pytest.LogCaptureFixture
) -> None:
    logs = Logs({A0: 0}, {A0: 10})
    reader = streaming(logs)
    start = reader.latestOffset(reader.initialOffset(), ALL)
    logs.topic_id, logs.ends = NEW, {A0: end}
    failing, going_on = streaming(logs), streaming(logs, failOnDataLoss="false")
    if is_available_now:
        failing.prepareForTriggerAvailableNow()
        going_on.prepareForTriggerAvailableNow()
    with pytest.raises(DataLossError, match="topic 'a' was deleted and made again"):
        failing.latestOffset(start, ALL)
    with caplog.at_level(logging.WARNING):
        planned = going_on.latestOffset(start, ALL)
    assert "topic 'a' was deleted and made again" in caplog.text
    (one,) = going_on.partitions(start, planned)
    assert isinstance(one, OffsetRange)
    assert (one.start, one.end, one.topic_id) == (0, end, NEW)


@pytest.mark.parametrize("is_available_now", [False, True])
def test_a_lost_tail_whose_offsets_were_given_out_again_is_seen(
    is_available_now: bool, caplog: pytest.LogCaptureFixture
) -> None:
    logs = Logs({A0: 0}, {A0: 100})
    reader = streaming(logs)
    start = reader.latestOffset(reader.initialOffset(), ALL)
    logs.epoch, logs.kept, logs.ends = 5, 80, {A0: 120}
    failing, going_on = streaming(logs), streaming(logs, failOnDataLoss="false")
    if is_available_now:
        failing.prepareForTriggerAvailableNow()
        going_on.prepareForTriggerAvailableNow()
    lost = "read up to 100 under leader epoch 3, which ends at 80"
    with pytest.raises(DataLossError, match=lost):
        failing.latestOffset(start, ALL)
    with pytest.raises(DataLossError, match=lost):
        failing.partitions(reader.initialOffset(), start)
    with caplog.at_level(logging.WARNING):
        planned = going_on.latestOffset(start, ALL)
    assert lost in caplog.text
    assert ranges(going_on.partitions(start, planned)) == [(0, 80, 120)]
    assert going_on.latestOffset(planned, ALL) == planned


def test_a_leader_that_kept_everything_is_asked_once_for_each_new_epoch() -> None:
    logs = Logs({A0: 0}, {A0: 100})
    reader = streaming(logs)
    start = reader.latestOffset(reader.initialOffset(), ALL)
    logs.epoch, logs.ends, logs.questions = 5, {A0: 120}, 0
    second = reader.latestOffset(start, ALL)
    assert (ranges(reader.partitions(start, second)), logs.questions) == ([(0, 100, 120)], 2)
    assert reader.latestOffset(second, ALL) == second
    assert logs.questions == 3


def test_a_batch_that_was_planned_before_a_topic_was_made_again_is_not_run() -> None:
    logs = Logs({A0: 0}, {A0: 10})
    reader = streaming(logs)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    logs.topic_id = NEW
    with pytest.raises(DataLossError, match="made again"):
        streaming(logs).partitions(start, end)


def test_available_now_does_not_hide_a_loss() -> None:
    logs = Logs({A0: 0}, {A0: 5})
    reader = streaming(logs)
    reader.prepareForTriggerAvailableNow()
    with pytest.raises(DataLossError, match="ends at 5, before 10"):
        reader.latestOffset({"a": {"0": 10}}, ALL)


def test_available_now_tells_a_deleted_topic_from_one_that_never_existed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    start = {"a": {"0": 10}}
    logs = Logs({}, {})
    reader = streaming(logs, failOnDataLoss="false")
    reader.prepareForTriggerAvailableNow()
    with pytest.raises(UsageError, match="'a' does not exist"):
        reader.initialOffset()
    assert reader.latestOffset(start, ALL)["a"] == {"0": 10}
    assert "a-0 is gone" in caplog.text
    failing = streaming(logs)
    failing.prepareForTriggerAvailableNow()
    with pytest.raises(DataLossError, match="a-0 is gone"):
        failing.latestOffset(start, ALL)


def test_available_now_asks_once_more_for_a_topic_that_a_broker_did_not_know_yet() -> None:
    logs = Logs({A0: 0}, {})
    reader = streaming(logs)
    reader.prepareForTriggerAvailableNow()
    logs.ends = {A0: 12}
    end = reader.latestOffset({"a": {"0": 10}}, ALL)
    assert end["a"] == {"0": 12}
    logs.ends = {A0: 15}
    assert reader.latestOffset(end, ALL) == end


def test_a_query_that_read_uncommitted_records_waits_for_their_transactions() -> None:
    logs = Logs({A0: 0}, {A0: 5}, high_watermark=10)
    start = {"a": {"0": 10}}
    planned = streaming(logs).latestOffset(start, ALL)
    assert planned["a"] == {"0": 10}
    with pytest.raises(DataLossError):
        streaming(logs, isolationLevel="read_uncommitted").latestOffset(start, ALL)


def test_a_new_partition_that_lost_its_beginning_is_a_loss() -> None:
    logs = Logs({A0: 0, A1: 3}, {A0: 10, A1: 9})
    start = {"a": {"0": 10}}
    with pytest.raises(DataLossError, match="new partition a-1 begins at 3"):
        streaming(logs).latestOffset(start, ALL)
    reader = streaming(logs, failOnDataLoss="false")
    assert ranges(reader.partitions(start, reader.latestOffset(start, ALL))) == [(1, 3, 9)]


def test_too_few_offsets_wait_until_the_delay_is_over() -> None:
    logs = Logs({A0: 0}, {A0: 1})
    now_s = [0.0]
    reader = streaming(logs, lambda: now_s[0], minOffsetsPerTrigger="10", maxTriggerDelay="60s")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert first["a"] == {"0": 1}, "the first trigger does not wait"
    logs.ends = {A0: 10}
    assert reader.latestOffset(first, limit) == first
    assert reader.latestOffset(first, ALL) != first, "Trigger.Once reads everything"
    now_s[0] = 59.0
    assert reader.latestOffset(first, limit) == first
    now_s[0] = 60.0
    assert reader.latestOffset(first, limit)["a"] == {"0": 10}


def test_a_limit_cuts_the_batch() -> None:
    reader = streaming(Logs({A0: 0}, {A0: 100}), maxOffsetsPerTrigger="30")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(30)
    assert reader.latestOffset(reader.initialOffset(), limit)["a"] == {"0": 30}


def test_a_batch_read_is_bounded_by_its_options() -> None:
    logs = Logs({A0: 2, A1: 0}, {A0: 10, A1: 0})
    assert batch(logs) == [(0, 2, 10)]
    assert batch(logs, endingOffsets='{"a":{"0":7,"1":-1}}') == [(0, 2, 7)]
    assert batch(logs, startingTimestamp="4", endingTimestamp="6", **LATEST_IF_NONE) == [(0, 4, 6)]
    assert batch(logs, startingTimestamp="99", **LATEST_IF_NONE) == []
    assert batch(logs, minPartitions="3") == [(0, 2, 4), (0, 4, 7), (0, 7, 10)]


LATEST_IF_NONE = {"startingOffsetsByTimestampStrategy": "latest"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffsets": '{"a":{"0":5}}'}, "startingOffsets leaves out a-1"),
        ({"startingOffsets": '{"a":{"0":5,"1":0,"2":0}}'}, "names a-2, not subscribed"),
        ({"startingOffsetsByTimestamp": '{"a":{"1":5}}'}, "Timestamp leaves out a-0"),
        ({"startingTimestamp": "99"}, "startingTimestamp is after the last record of a-0, a-1"),
        ({"endingOffsets": '{"a":{"0":11,"1":0}}'}, "a-0 from 2 to 11, but it ends at 10"),
    ],
)
def test_bounds_that_do_not_fit_the_topic_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        batch(Logs({A0: 2, A1: 0}, {A0: 10, A1: 1}), **given)


def test_a_batch_read_from_below_the_log_start_is_a_loss_or_begins_there() -> None:
    logs = Logs({A0: 2}, {A0: 10})
    with pytest.raises(DataLossError, match="a-0 begins at 2, and 1 was asked for"):
        batch(logs, startingOffsets='{"a":{"0":1}}')
    given = {"startingOffsets": '{"a":{"0":1}}', "failOnDataLoss": "false"}
    assert batch(logs, **given) == [(0, 2, 10)]


def test_a_batch_read_of_nothing_has_no_rows() -> None:
    reader = OncelogBatchReader(options(), StructType())
    assert list(reader.read(InputPartition(None))) == []
