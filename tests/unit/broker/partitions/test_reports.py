"""What a broker says of its logs: whether records may be lost and in which, and what is gone."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest

from oncelog.broker.partitions.strays import (
    LogReport,
    not_waited_for,
    off_line,
    removals,
    report_logs,
)
from oncelog.controller.events import RemovedReplica
from oncelog.controller.image import MetadataImage, PartitionImage, TopicImage
from oncelog.core.ids import TopicPartition
from oncelog.storage import LogConfig, LogManager
from tests.support.folders import NOW_MS, open_logs
from tests.unit.broker.support import batch

ME, OTHER, THIRD = 1, 2, 3
EPOCH = 5
LONE, LED, FOLLOWED, ELSEWHERE = (TopicPartition(name, 0) for name in "abcd")


def state(leader: int, *replicas: int, **fields: Any) -> PartitionImage:
    return PartitionImage(leader, 3, fields.pop("isr", replicas), replicas, **fields)


STATES = {
    LONE: state(ME, ME),
    LED: state(ME, ME, OTHER),
    FOLLOWED: state(OTHER, OTHER, ME),
    ELSEWHERE: state(OTHER, OTHER, THIRD),
}
NO_CHANGE: Mapping[str, PartitionImage] = MappingProxyType({})
ENDS = {LED: (3, 2), FOLLOWED: (3, 2)}


def image(**states: PartitionImage) -> MetadataImage:
    all_states = {label.topic: each for label, each in STATES.items()} | states
    return MetadataImage(
        cluster_id="c",
        topics=[
            TopicImage(name, UUID(int=number + 1), (each,))
            for number, (name, each) in enumerate(all_states.items())
        ],
    )


def fill(manager: LogManager, *, closes: bool = True) -> None:
    """A life with two records of epoch 3 in each log."""
    manager.begin_life(EPOCH)
    manager.note_life(is_synced=False)
    for number, label in enumerate((LONE, LED, FOLLOWED)):
        held = manager.create(label, UUID(int=number + 1), LogConfig(), NOW_MS)
        held.append(batch(2), leader_epoch=3, now_ms=NOW_MS)
    if closes:
        manager.close()
    else:
        manager.abandon()


def report(
    folder: Path, last_epoch: int = EPOCH, states: Mapping[str, PartitionImage] = NO_CHANGE
) -> LogReport:
    manager = open_logs(folder)
    try:
        return report_logs(manager, image(**states), ME, last_epoch)
    finally:
        manager.abandon()


def test_after_a_clean_stop_no_log_is_uncertain(tmp_path: Path) -> None:
    fill(open_logs(tmp_path))
    assert report(tmp_path) == (None, {})


def test_after_a_kill_what_is_led_begins_an_epoch_and_all_is_clean(tmp_path: Path) -> None:
    fill(open_logs(tmp_path), closes=False)
    assert report(tmp_path) == (None, {LONE: (3, 2), LED: (3, 2)})


def test_after_an_unclean_life_every_log_is_uncertain(tmp_path: Path) -> None:
    fill(open_logs(tmp_path / "a"), closes=False)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    found = report(tmp_path / "b")
    assert found.unclean_because is not None
    assert found.uncertain == {LONE: (3, 2), **ENDS}


def test_an_older_folder_is_uncertain_though_it_was_closed(tmp_path: Path) -> None:
    fill(open_logs(tmp_path))
    found = report(tmp_path, EPOCH + 1)
    assert found.unclean_because is not None
    assert found.uncertain == {LONE: (3, 2), **ENDS}


def test_an_off_line_folder_leaves_what_is_alone_in_another(tmp_path: Path) -> None:
    fill(open_logs(tmp_path))
    manager = open_logs(tmp_path)
    manager.missing = frozenset({"another"})
    found = report_logs(manager, image(), ME, EPOCH)
    manager.abandon()
    assert found == ("the log directory with directory.id=another is missing", ENDS)


def test_a_log_that_an_off_line_folder_may_hold_is_not_told_empty(tmp_path: Path) -> None:
    fill(open_logs(tmp_path))
    remove(tmp_path / "a-0")
    remove(tmp_path / "b-0")
    manager = open_logs(tmp_path)
    manager.missing = frozenset({"another"})
    found = report_logs(manager, image(), ME, EPOCH)
    manager.abandon()
    assert found.uncertain == {FOLLOWED: (3, 2)}


@pytest.mark.parametrize(
    ("states", "uncertain"),
    [
        # A store that is older than the logs.
        ({"a": PartitionImage(ME, 2, (ME,), (ME,))}, {LONE: (3, 2)}),
        ({"b": PartitionImage(ME, 2, (ME, OTHER), (ME, OTHER))}, {LED: (3, 2)}),
        ({"c": PartitionImage(-1, 2, (ME,), (OTHER, ME))}, {FOLLOWED: (3, 2)}),
        ({"c": PartitionImage(-1, 2, (OTHER,), (OTHER, ME), eligible=(ME,))}, {FOLLOWED: (3, 2)}),
        ({"c": PartitionImage(OTHER, 2, (OTHER, ME), (OTHER, ME))}, {FOLLOWED: (3, 2)}),
        ({"c": PartitionImage(OTHER, 3, (OTHER, ME), (OTHER, ME))}, {}),
        # The controller asks where its log ends.
        (
            {"c": state(-1, OTHER, ME, isr=(OTHER,), suspects=MappingProxyType({ME: None}))},
            {FOLLOWED: (3, 2)},
        ),
    ],
)
def test_a_clean_registration_reports_what_the_controller_needs(
    tmp_path: Path,
    states: dict[str, PartitionImage],
    uncertain: dict[TopicPartition, tuple[int, int]],
) -> None:
    fill(open_logs(tmp_path))
    assert report(tmp_path, states=states) == (None, uncertain)


def remove(folder: Path) -> None:
    shutil.rmtree(folder)


def cut(folder: Path) -> None:
    (path,) = folder.glob("*.log")
    path.write_bytes(b"")


def fail_sync(folder: Path) -> None:
    (folder / "oncelog.failed-fsync").touch()


@pytest.mark.damages
@pytest.mark.parametrize(
    ("harm", "reason", "end"),
    [
        (remove, "c-0 has no folder any more", (-1, 0)),
        (cut, "c-0 has lost records that were synced", (-1, 0)),
        (fail_sync, "c-0 may have lost records in a failed fsync", (3, 2)),
    ],
)
def test_a_log_that_lost_records_makes_the_registration_unclean(
    tmp_path: Path, harm: Callable[[Path], None], reason: str, end: tuple[int, int]
) -> None:
    fill(open_logs(tmp_path))
    harm(tmp_path / "c-0")
    assert report(tmp_path) == (reason, {LED: (3, 2), FOLLOWED: end})
    outside = {"c": state(OTHER, OTHER, ME, isr=(OTHER,))}
    assert report(tmp_path, states=outside)[0] is None


@pytest.mark.damages
def test_a_log_without_other_replicas_is_uncertain_by_itself(tmp_path: Path) -> None:
    fill(open_logs(tmp_path))
    remove(tmp_path / "a-0")
    assert report(tmp_path) == (None, {LONE: (-1, 0)})


def exchange(folder: Path) -> LogManager:
    """An empty folder came in the place of one that is missing."""
    manager = open_logs(folder)
    manager.expect(frozenset({"another"}))
    return manager


def test_a_replica_of_an_exchanged_disk_is_off_line_where_no_other_broker_has_its_records(
    tmp_path: Path,
) -> None:
    manager = exchange(tmp_path)
    states = {
        "b": state(ME, ME, OTHER),
        "c": state(-1, ME, OTHER, isr=(ME,)),
        "e": state(ME, ME, OTHER, isr=(ME,), eligible=(OTHER,)),
    }
    assert off_line(manager, image(**states), ME) == [LONE, FOLLOWED]
    manager.abandon()


def test_a_replica_of_an_exchanged_disk_is_made_again_only_where_the_image_still_has_it(
    tmp_path: Path,
) -> None:
    manager = exchange(tmp_path)
    waiting = [LONE, LED, FOLLOWED, ELSEWHERE, TopicPartition("deleted", 0)]
    found = list(not_waited_for(manager, image(), ME, waiting))
    assert [label for label, _, _ in found] == [LED, FOLLOWED]
    manager.abandon()


def test_a_removed_replica_is_told_once_its_folder_is_gone(tmp_path: Path) -> None:
    fill(open_logs(tmp_path))
    removed = state(OTHER, OTHER, removed=(ME,))
    states = {"b": removed, "c": removed, "d": state(OTHER, OTHER)}
    remove(tmp_path / "c-0")
    manager = open_logs(tmp_path)
    told = removals(manager, image(**states), ME)
    assert told == (RemovedReplica(UUID(int=3), 0, 3),)
    manager.abandon()
