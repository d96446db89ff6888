"""The data folder: identity, lock, clean stops, and folders that come and go."""

import base64
from pathlib import Path
from uuid import UUID

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.runtime import FolderInUse, SystemDisk
from oncelog.storage import FolderMismatch, LogConfig, LogManager
from tests.unit.storage.context import NOW_MS, batch

CLUSTER = base64.urlsafe_b64encode(bytes(16)).decode()[:22]
FIRST, SECOND = UUID(int=1), UUID(int=2)
PARTITION = TopicPartition("flights.by-carrier", 3)


def open_folder(folder: Path, node_id: int = 1) -> LogManager:
    return LogManager.open(
        SystemDisk(),
        str(folder),
        config_for=lambda topic: LogConfig(),
        now_ms=NOW_MS,
        node_id=node_id,
        cluster_id=CLUSTER,
        directory_id=CLUSTER,
    )


def fill(manager: LogManager, count: int = 3) -> None:
    log = manager.create(PARTITION, FIRST, LogConfig(), NOW_MS)
    for _ in range(count):
        result = log.append(batch(), leader_epoch=0, now_ms=NOW_MS)
        assert result.error is ErrorCode.none


def test_a_new_folder_takes_its_identity_and_keeps_it(tmp_path: Path) -> None:
    manager = open_folder(tmp_path)
    manager.close()
    meta = (tmp_path / "meta.properties").read_text().splitlines()
    assert meta == ["version=1", f"cluster.id={CLUSTER}", "node.id=1", f"directory.id={CLUSTER}"]
    again = open_folder(tmp_path)
    assert (again.cluster_id, again.node_id, again.directory_id) == (CLUSTER, 1, CLUSTER)
    again.close()


def test_a_folder_has_one_broker_at_a_time(tmp_path: Path) -> None:
    manager = open_folder(tmp_path)
    with pytest.raises(FolderInUse, match=str(tmp_path)):
        open_folder(tmp_path)
    manager.close()
    open_folder(tmp_path).close()


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    open_folder(tmp_path).close()
    with pytest.raises(FolderMismatch, match="belongs to broker 1, not 2"):
        open_folder(tmp_path, node_id=2)
    (tmp_path / "oncelog.format").write_text("9\n")
    with pytest.raises(FolderMismatch, match="format '9'"):
        open_folder(tmp_path)
    (tmp_path / "oncelog.format").unlink()
    with pytest.raises(FolderMismatch, match="another program"):
        open_folder(tmp_path)


@pytest.mark.parametrize("clean", [True, False])
def test_logs_come_back_after_any_stop(tmp_path: Path, clean: bool) -> None:
    manager = open_folder(tmp_path)
    fill(manager)
    manager.write_high_watermarks({PARTITION: 2})
    manager.close(clean=clean)
    again = open_folder(tmp_path)
    assert again.was_clean is clean
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
    open_folder(tmp_path).close()
    killed = open_folder(tmp_path)
    fill(killed)
    killed._lock.release()
    again = open_folder(tmp_path)
    assert not again.was_clean
    log = again.get(PARTITION)
    assert log is not None
    assert log.log_end_offset == 3
    again.close()


def test_checkpoints_carry_recovery_points_and_log_starts(tmp_path: Path) -> None:
    manager = open_folder(tmp_path)
    fill(manager)
    log = manager.get(PARTITION)
    assert log is not None
    log.delete_records(2)
    manager.flush()
    recovery = (tmp_path / "recovery-point-offset-checkpoint").read_text()
    assert recovery == "0\n1\nflights.by-carrier 3 3\n"
    starts = (tmp_path / "log-start-offset-checkpoint").read_text()
    assert starts == "0\n1\nflights.by-carrier 3 2\n"
    manager._lock.release()
    again = open_folder(tmp_path)
    found = again.get(PARTITION)
    assert found is not None
    assert (found.log_start_offset, found.recovery_point) == (2, 3)
    again.close()


def test_a_topic_made_again_does_not_inherit_the_old_log(tmp_path: Path) -> None:
    manager = open_folder(tmp_path)
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
    manager = open_folder(tmp_path)
    fill(manager)
    manager.close()
    doomed = tmp_path / f"{PARTITION}.{FIRST.hex}-delete"
    (tmp_path / str(PARTITION)).rename(doomed)
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "meta.properties.1.tmp").write_text("torn")
    again = open_folder(tmp_path)
    assert len(again) == 0
    assert not doomed.exists()
    assert (tmp_path / "lost+found").exists()
    again.close()


def test_a_lost_topic_id_is_noted_again(tmp_path: Path) -> None:
    manager = open_folder(tmp_path)
    fill(manager)
    manager.close()
    (tmp_path / str(PARTITION) / "partition.metadata").write_bytes(b"")
    again = open_folder(tmp_path)
    assert again.topic_id(PARTITION) is None
    again.create(PARTITION, FIRST, LogConfig(), NOW_MS)
    assert again.topic_id(PARTITION) == FIRST
    assert again.failure is None
    again.close()
