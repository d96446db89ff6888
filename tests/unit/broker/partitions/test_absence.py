"""When each replica of a compacted partition last had everything."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from oncelog.broker.partitions.absence import CaughtUpTimes
from oncelog.core.ids import TopicPartition

MINUTE_MS = 60_000
NOW_MS = 1_000 * MINUTE_MS


class Logs:
    """A log directory's file of times."""

    def __init__(self, **times: int) -> None:
        self.times = {TopicPartition(topic, 0): at for topic, at in times.items()}

    def read_times(self, name: str) -> dict[TopicPartition, int]:
        return dict(self.times)

    def write_times(self, name: str, times: dict[TopicPartition, int]) -> None:
        self.times = dict(times)


def partition(topic: str, *, is_leader: bool = False, is_compacted: bool = True) -> Any:
    return SimpleNamespace(
        topic_partition=TopicPartition(topic, 0),
        log=SimpleNamespace(config=SimpleNamespace(is_compacted=is_compacted)),
        state=SimpleNamespace(is_leader=is_leader),
    )


def test_times_are_noted_once_a_minute_and_at_the_end() -> None:
    logs: Any = Logs()
    times = CaughtUpTimes(logs)
    assert times.plan([], NOW_MS) is not None
    assert times.plan([], NOW_MS + MINUTE_MS - 1) is None
    assert times.plan([], NOW_MS + MINUTE_MS - 1, is_last=True) is not None
    assert times.plan([], NOW_MS + 2 * MINUTE_MS - 1) is not None


def test_the_times_of_compacted_partitions_that_are_here_are_written() -> None:
    logs: Any = Logs(followed=5, deleted=6)
    times = CaughtUpTimes(logs)
    times.note(TopicPartition("kept", 0), 7)
    here = [
        partition("led", is_leader=True),
        partition("followed"),
        partition("kept", is_compacted=False),
        partition("retained", is_leader=True, is_compacted=False),
    ]
    write = times.plan(here, NOW_MS)
    assert write is not None
    write()
    assert logs.times == {TopicPartition("led", 0): NOW_MS, TopicPartition("followed", 0): 5}
    assert times.away_ms(TopicPartition("followed", 0), 9) == 4
    assert times.away_ms(TopicPartition("unknown", 0), 9) is None
