"""What survives what, under each setting: the rows of docs/durability.md.

Two topics, `ledger` and `plain`, on a simulated disk. Every append that returned was acknowledged.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final
from uuid import UUID

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.runtime import StorageFailure
from oncelog.simulation.disk import FaultKind
from oncelog.storage import LogConfig, LogManager
from tests.support.folders import take_folders
from tests.support.machine import Machine
from tests.unit.storage.context import NOW_MS, batch, read_all

LEDGER, PLAIN = TopicPartition("ledger", 0), TopicPartition("plain", 0)
TOPIC_IDS: Final = {LEDGER: UUID(int=7), PLAIN: UUID(int=8)}
DEFAULT = replace(LogConfig(), segment_bytes=500)
FLUSHED = replace(DEFAULT, flush_messages=1)
SETTINGS: Final = {
    "default": {LEDGER: DEFAULT, PLAIN: DEFAULT},
    "one topic": {LEDGER: FLUSHED, PLAIN: DEFAULT},
    "all topics": {LEDGER: FLUSHED, PLAIN: FLUSHED},
}
BEFORE_FLUSH, AFTER_FLUSH = 4, 5
SEEDS = range(12)


class Story:
    """A broker's folders from the first start on."""

    def __init__(self, setting: str, *folders: str) -> None:
        self.machine = Machine()
        self.configs = SETTINGS[setting]
        self.folders = folders or ("/data",)
        for folder in self.folders:
            self.machine.disk.mkdir(folder)
        self.machine.disk.sync_dir("/")
        self.acknowledged: dict[TopicPartition, list[bytes]] = {LEDGER: [], PLAIN: []}
        self.flushed = dict.fromkeys(TOPIC_IDS, 0)
        self.logs = self.start()
        for partition, topic_id in TOPIC_IDS.items():
            self.logs.create(partition, topic_id, self.configs[partition], NOW_MS)
        self.append(BEFORE_FLUSH)
        self.logs.flush()
        self.flushed = dict.fromkeys(TOPIC_IDS, BEFORE_FLUSH)
        self.append(AFTER_FLUSH)

    def start(self) -> LogManager:
        logs = take_folders(*self.folders, disk=self.machine.disk)
        by_topic = {partition.topic: config for partition, config in self.configs.items()}
        logs.open_logs(lambda topic: by_topic[topic], NOW_MS)
        self.logs = logs
        return logs

    def append(self, count: int) -> None:
        for _ in range(count):
            for partition, values in self.acknowledged.items():
                log = self.logs.get(partition)
                assert log is not None
                value = b"%s-%03d" % (partition.topic.encode(), len(values))
                data = batch(1, value=value + b"x" * 150)
                if log.append(data, leader_epoch=0, now_ms=NOW_MS).error is ErrorCode.none:
                    values.append(value)

    def append_and_flush(self) -> None:
        self.append(1)
        self.logs.flush()

    def count_of(self, partition: TopicPartition) -> int:
        """How many acknowledged records are there; they are the first ones, without a gap."""
        log = self.logs.get(partition)
        data = b"" if log is None else read_all(log)
        there = [value in data for value in self.acknowledged[partition]]
        assert there == sorted(there, reverse=True), "a record is lost in front of one that is kept"
        return sum(there)

    def survives(self, partition: TopicPartition, *, only_if_flushed: bool) -> None:
        """Everything acknowledged is there, or at least what had been flushed."""
        is_flushed = self.configs[partition].flush_messages == 1
        whole = len(self.acknowledged[partition])
        if is_flushed or not only_if_flushed:
            assert self.count_of(partition) == whole
        else:
            assert self.flushed[partition] <= self.count_of(partition) <= whole


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_crash_of_the_process_takes_nothing_acknowledged(setting: str) -> None:
    story = Story(setting)
    for _ in range(2):
        story.machine.restart()
        story.start()
        for partition in TOPIC_IDS:
            story.survives(partition, only_if_flushed=False)
        story.append(1)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("rate", [None, 0.0])
def test_a_power_cut_takes_at_most_the_unflushed_end(setting: str, rate: float | None) -> None:
    for seed in SEEDS:
        story = Story(setting)
        story.machine.lose_power(seed, rate=rate)
        story.start()
        for partition in TOPIC_IDS:
            story.survives(partition, only_if_flushed=True)


def test_a_power_cut_may_take_the_end_of_a_topic_that_is_not_flushed() -> None:
    story = Story("one topic")
    story.machine.lose_power(rate=0.0)
    story.start()
    assert story.count_of(LEDGER) == BEFORE_FLUSH + AFTER_FLUSH
    assert story.count_of(PLAIN) < BEFORE_FLUSH + AFTER_FLUSH


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_full_disk_takes_nothing_acknowledged(setting: str) -> None:
    for seed in SEEDS:
        story = Story(setting)
        story.machine.whole.faults.fill(random.Random(seed))
        with pytest.raises(StorageFailure):
            story.append(1)
        story.machine.restart()
        story.machine.whole.faults.drain()
        story.start()
        for partition in TOPIC_IDS:
            story.survives(partition, only_if_flushed=False)
        story.append(1)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("power_too", [False, True])
def test_a_failed_fsync_takes_at_most_the_unflushed_end(setting: str, power_too: bool) -> None:
    for seed in SEEDS:
        story = Story(setting)
        story.machine.whole.faults.fail(FaultKind.FSYNC, random.Random(seed))
        with pytest.raises(StorageFailure):
            story.append_and_flush()
        if power_too:
            story.machine.lose_power(seed)
        else:
            story.machine.restart()
        story.start()
        for partition in TOPIC_IDS:
            story.survives(partition, only_if_flushed=True)


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_lost_folder_takes_its_own_partitions_only(setting: str) -> None:
    story = Story(setting, "/one", "/two")
    places = {
        folder: [name for name in story.machine.disk.list(folder) if name.endswith("-0")]
        for folder in story.folders
    }
    assert sorted(places.values()) == [["ledger-0"], ["plain-0"]]
    story.machine.restart()
    for name in story.machine.disk.list("/one"):
        path = f"/one/{name}"
        if story.machine.disk.is_dir(path):
            story.machine.disk.remove_tree(path)
        else:
            story.machine.disk.remove(path)
    story.start()
    kept, gone = (PLAIN, LEDGER) if places["/one"] == ["ledger-0"] else (LEDGER, PLAIN)
    story.survives(kept, only_if_flushed=False)
    assert story.count_of(gone) == 0
