"""Log directories together: clean stops, partitions that come and go, and where they go."""

import errno
import shutil
from pathlib import Path
from uuid import UUID

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.runtime import FolderInUse, StorageFailure, SystemDisk
from oncelog.storage import FolderMismatch, LogConfig, LogManager
from oncelog.storage.identity import Identity
from tests.support.folders import CLUSTER, open_logs, take_folders
from tests.unit.storage.context import NOW_MS, batch

FIRST, SECOND = UUID(int=1), UUID(int=2)
PARTITION = TopicPartition("flights.by-carrier", 3)


def fill(manager: LogManager, count: int = 3) -> None:
    log = manager.create(PARTITION, FIRST, LogConfig(), NOW_MS)
    for _ in range(count):
        result = log.append(batch(), leader_epoch=0, now_ms=NOW_MS)
        assert result.error is ErrorCode.none


def test_a_new_folder_takes_its_identity_and_keeps_it(tmp_path: Path) -> None:
    manager = open_logs(tmp_path)
    manager.close()
    meta = (tmp_path / "meta.properties").read_text().splitlines()
    assert meta == ["version=1", f"cluster.id={CLUSTER}", "node.id=1", f"directory.id={1:022d}"]
    again = open_logs(tmp_path)
    assert again.cluster_id == CLUSTER
    assert again.folders[0].identity == Identity(CLUSTER, 1, f"{1:022d}", 2)
    again.close()


def test_a_folder_has_one_broker_at_a_time(tmp_path: Path) -> None:
    manager = open_logs(tmp_path)
    with pytest.raises(FolderInUse, match=str(tmp_path)):
        open_logs(tmp_path)
    manager.close()
    open_logs(tmp_path).close()


@pytest.mark.parametrize("clean", [True, False])
def test_logs_come_back_after_any_stop(tmp_path: Path, clean: bool) -> None:
    manager = open_logs(tmp_path)
    fill(manager)
    manager.write_high_watermarks({PARTITION: 2})
    manager.close(clean=clean)
    again = open_logs(tmp_path)
    assert again.folders[0].was_clean is clean
    assert list(again) == [PARTITION]
    assert len(again) == 1
    log = again.get(PARTITION)
    assert log is not None
    assert log.log_end_offset == 3
    assert (log.recovery.scanned_bytes == 0) is clean
    assert again.topic_id(PARTITION) == FIRST
    assert again.read_high_watermarks() == {PARTITION: 2}
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    again.close()


def test_a_crash_after_a_clean_start_is_a_crash(tmp_path: Path) -> None:
    open_logs(tmp_path).close()
    killed = open_logs(tmp_path)
    fill(killed)
    killed.folders[0].release()
    again = open_logs(tmp_path)
    assert not again.folders[0].was_clean
    log = again.get(PARTITION)
    assert log is not None
    assert log.log_end_offset == 3
    again.close()


def test_checkpoints_carry_recovery_points_and_log_starts(tmp_path: Path) -> None:
    manager = open_logs(tmp_path)
    fill(manager)
    log = manager.get(PARTITION)
    assert log is not None
    log.delete_records(2)
    manager.flush()
    recovery = (tmp_path / "recovery-point-offset-checkpoint").read_text()
    assert recovery == "0\n1\nflights.by-carrier 3 3\n"
    starts = (tmp_path / "log-start-offset-checkpoint").read_text()
    assert starts == "0\n1\nflights.by-carrier 3 2\n"
    manager.folders[0].release()
    again = open_logs(tmp_path)
    found = again.get(PARTITION)
    assert found is not None
    assert (found.log_start_offset, found.recovery_point) == (2, 3)
    again.close()


def test_a_topic_made_again_does_not_inherit_the_old_log(tmp_path: Path) -> None:
    manager = open_logs(tmp_path)
    fill(manager)
    with pytest.raises(FolderMismatch):
        manager.create(PARTITION, SECOND, LogConfig(), NOW_MS)
    manager.delete(PARTITION)
    manager.delete(PARTITION)
    assert manager.get(PARTITION) is None
    log = manager.create(PARTITION, SECOND, LogConfig(), NOW_MS)
    assert log.log_end_offset == 0
    assert manager.create(PARTITION, SECOND, LogConfig(), NOW_MS) is log
    manager.close()


def test_an_interrupted_deletion_is_finished(tmp_path: Path) -> None:
    manager = open_logs(tmp_path)
    fill(manager)
    manager.close()
    doomed = tmp_path / f"{PARTITION}.{FIRST.hex}-delete"
    (tmp_path / str(PARTITION)).rename(doomed)
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "meta.properties.1.tmp").write_text("torn")
    again = open_logs(tmp_path)
    assert len(again) == 0
    # Removed by its owner, in the background.
    assert again.deleted == [str(doomed)]
    assert (tmp_path / "lost+found").exists()
    again.close()


def test_a_lost_topic_id_is_noted_again(tmp_path: Path) -> None:
    manager = open_logs(tmp_path)
    fill(manager)
    manager.close()
    (tmp_path / str(PARTITION) / "partition.metadata").write_bytes(b"")
    again = open_logs(tmp_path)
    assert again.topic_id(PARTITION) is None
    again.create(PARTITION, FIRST, LogConfig(), NOW_MS)
    assert again.topic_id(PARTITION) == FIRST
    assert again.folders[0].failure is None
    again.close()


def name_of(manager: LogManager, partition: TopicPartition) -> str:
    folder = manager.folder_of(partition)
    assert folder is not None
    return Path(folder.directory).name


def test_a_new_partition_goes_to_the_folder_with_the_fewest(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b", "c")]
    manager = open_logs(*folders)
    partitions = [TopicPartition("t", index) for index in range(5)]
    for partition in partitions:
        manager.create(partition, FIRST, LogConfig(), NOW_MS)
    assert [name_of(manager, partition) for partition in partitions] == ["a", "b", "c", "a", "b"]
    manager.write_high_watermarks(dict.fromkeys(partitions, 0))
    manager.close()
    for folder, count in zip(folders, (2, 2, 1), strict=True):
        assert (folder / "recovery-point-offset-checkpoint").read_text().split()[1] == str(count)
        assert (folder / "replication-offset-checkpoint").read_text().split()[1] == str(count)
        assert (folder / ".kafka_cleanshutdown").exists()
    again = open_logs(*reversed(folders))
    assert sorted(again) == partitions
    assert again.read_high_watermarks() == dict.fromkeys(partitions, 0)
    assert [name_of(again, partition) for partition in partitions] == ["a", "b", "c", "a", "b"]
    again.close()


class FullDisk(SystemDisk):
    """Some folders have no room for new files."""

    full: frozenset[str] = frozenset()

    def write_atomic(self, path: str, data: bytes, *, sync: bool) -> None:
        if any(path.startswith(f"{folder}/") for folder in self.full):
            raise StorageFailure("write", path, OSError(errno.ENOSPC, "No space left on device"))
        super().write_atomic(path, data, sync=sync)


def test_a_new_partition_passes_over_folders_without_room(tmp_path: Path) -> None:
    disk = FullDisk()
    folders = [tmp_path / name for name in ("a", "b", "c")]
    manager = open_logs(*folders, disk=disk)
    disk.full = frozenset(map(str, folders[:2]))
    manager.create(PARTITION, FIRST, LogConfig(), NOW_MS)
    assert name_of(manager, PARTITION) == "c"
    disk.full = frozenset(map(str, folders))
    with pytest.raises(StorageFailure, match="No space left"):
        manager.create(TopicPartition("t", 0), FIRST, LogConfig(), NOW_MS)
    disk.full = frozenset()
    manager.close()
    assert not list(tmp_path.glob("*/t-0"))


def test_times_are_written_in_the_folder_that_has_the_partition(tmp_path: Path) -> None:
    manager = open_logs(tmp_path / "a", tmp_path / "b")
    partitions = [TopicPartition("t", index) for index in range(2)]
    for partition in partitions:
        manager.create(partition, FIRST, LogConfig(), NOW_MS)
    manager.write_times("times", dict.fromkeys(partitions, NOW_MS))
    assert manager.read_times("times") == dict.fromkeys(partitions, NOW_MS)
    manager.close()
    for name, own in zip("ab", partitions, strict=True):
        alone = open_logs(tmp_path / name)
        assert alone.read_times("times") == {own: NOW_MS}
        alone.close()


def test_no_more_threads_close_logs_than_there_are_logs(tmp_path: Path) -> None:
    manager = open_logs(tmp_path / "a", tmp_path / "b")
    for index in range(3):
        manager.create(TopicPartition("t", index), FIRST, LogConfig(), NOW_MS)
    assert [close() for close in manager.closing(8)] == [None] * 3
    manager.close()


@pytest.mark.damages
def test_the_high_watermark_counts_that_the_folder_of_the_log_has(tmp_path: Path) -> None:
    """A crash may leave an older one in the folder that the log was moved from."""
    manager = open_logs(tmp_path / "a", tmp_path / "b")
    partitions = [TopicPartition("t", index) for index in range(2)]
    for partition in partitions:
        manager.create(partition, FIRST, LogConfig(), NOW_MS)
    for folder in manager.folders:
        own = {partition: 7 for partition in partitions if partition in folder}
        folder.write_high_watermarks(dict.fromkeys([*partitions, PARTITION], 3) | own)
    held = dict.fromkeys(partitions, 7)
    assert manager.read_high_watermarks() == {**held, PARTITION: 3}
    manager.close()


def test_folders_of_one_broker_share_the_cluster_and_differ_in_their_ids(tmp_path: Path) -> None:
    open_logs(tmp_path / "a").close()
    manager = open_logs(tmp_path / "b", tmp_path / "a")
    identities = [folder.identity for folder in manager.folders]
    assert None not in identities
    assert {identity.cluster_id for identity in identities if identity} == {CLUSTER}
    assert len({identity.directory_id for identity in identities if identity}) == 2
    manager.close()


def test_a_folder_that_was_not_closed_in_order_is_recovered_alone(tmp_path: Path) -> None:
    manager = open_logs(tmp_path / "a", tmp_path / "b")
    fill(manager)
    manager.close()
    (tmp_path / "b" / ".kafka_cleanshutdown").unlink()
    again = open_logs(tmp_path / "a", tmp_path / "b")
    assert [folder.was_clean for folder in again.folders] == [True, False]
    again.close()


@pytest.mark.damages
def test_a_partition_in_two_folders_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    manager = open_logs(tmp_path / "a", tmp_path / "b")
    fill(manager)
    manager.close()
    (tmp_path / "b" / str(PARTITION)).mkdir()
    before = contents(tmp_path)
    with pytest.raises(FolderMismatch, match=f"the partition {PARTITION} is both in"):
        open_logs(tmp_path / "a", tmp_path / "b")
    assert contents(tmp_path) == before


def test_a_copy_of_a_folder_is_refused(tmp_path: Path) -> None:
    open_logs(tmp_path / "a").close()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with pytest.raises(FolderMismatch, match=r"same directory\.id"):
        open_logs(tmp_path / "a", tmp_path / "b")


def test_folders_of_two_clusters_are_refused(tmp_path: Path) -> None:
    open_logs(tmp_path / "a").close()
    open_logs(tmp_path / "b").close()
    meta = tmp_path / "b" / "meta.properties"
    meta.write_text("version=1\ncluster.id=x\nnode.id=1\ndirectory.id=y\n")
    with pytest.raises(FolderMismatch, match="belongs to cluster x"):
        open_logs(tmp_path / "a", tmp_path / "b")


def test_a_start_that_goes_no_further_leaves_checkpoints_and_marks_nothing(tmp_path: Path) -> None:
    """The metadata may be refused between the two steps."""
    manager = open_logs(tmp_path)
    fill(manager)
    manager.flush()
    manager.folders[0].release()
    before = contents(tmp_path)
    take_folders(tmp_path).close()
    assert contents(tmp_path) == before


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
