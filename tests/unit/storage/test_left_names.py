"""Names of folders and files that a loss of power, a move or a new topic must not bring back."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from oncelog.core.ids import TopicPartition
from oncelog.protocol.record import Record, build_batch
from oncelog.storage import LogConfig
from oncelog.storage.cleaner import clean_log
from oncelog.storage.moves import LogMove
from tests.support.folders import open_logs
from tests.support.machine import Machine
from tests.unit.storage.context import NOW_MS, batch

T0, TOPIC_ID = TopicPartition("t", 0), UUID(int=7)
CONFIG = replace(LogConfig(), segment_bytes=300)
COMPACTED = replace(CONFIG, cleanup_policy=frozenset({"compact"}))


def test_a_name_used_again_in_another_folder_is_not_there_twice() -> None:
    machine = Machine()
    manager = open_logs("/one", "/two", disk=machine.disk)
    for number in range(6):
        manager.create(TopicPartition("other", number), UUID(int=1), CONFIG, NOW_MS)
    manager.create(T0, TOPIC_ID, CONFIG, NOW_MS).flush()
    for held in [each for each in manager.folders[1] if each != T0]:
        manager.delete(held)
    manager.delete(T0)
    manager.create(T0, UUID(int=8), CONFIG, NOW_MS).flush()
    first, second = manager.folders
    assert T0 in second
    assert T0 not in first
    # Of each folder the machine keeps what was synced, and nothing else.
    machine.lose_power(rate=0.0)
    again = open_logs("/one", "/two", disk=machine.disk)
    assert again.folder_of(T0) is again.folders[1]


def test_a_name_that_a_killed_process_renamed_is_not_there_twice() -> None:
    machine = Machine()
    manager = open_logs("/one", "/two", disk=machine.disk)
    manager.create(T0, TOPIC_ID, CONFIG, NOW_MS).flush()
    doomed = manager.delete(T0)
    assert doomed is not None
    machine.disk.remove_tree(doomed)
    again = open_logs("/one", "/two", disk=machine.restart())
    again.create(TopicPartition("other", 0), UUID(int=1), CONFIG, NOW_MS)
    again.create(T0, UUID(int=8), CONFIG, NOW_MS).flush()
    assert again.folder_of(T0) is again.folders[1]
    machine.lose_power(rate=0.0)
    last = open_logs("/one", "/two", disk=machine.disk)
    assert last.folder_of(T0) is last.folders[1]


def test_a_moved_log_whose_head_was_compacted_starts_where_it_did() -> None:
    machine = Machine()
    manager = open_logs("/one", "/two", disk=machine.disk, config=COMPACTED)
    log = manager.create(T0, TOPIC_ID, COMPACTED, NOW_MS)
    for number in range(9):
        value = b"%d" % number
        record = Record(0, NOW_MS, b"key", value + bytes(100))
        log.append(build_batch([record]), leader_epoch=0, now_ms=NOW_MS)
    clean_log(machine.disk, log, NOW_MS)
    assert log.log_start_offset == 0
    one, two = manager.folders
    move = LogMove(machine.disk, log, one, two, TOPIC_ID, NOW_MS)
    move.finish()
    move.swap()
    moved = manager.get(T0)
    assert moved is not None
    assert moved.log_start_offset == 0
    manager.close()
    again = open_logs("/one", "/two", disk=machine.restart(), config=COMPACTED)
    held = again.get(T0)
    assert held is not None
    assert held.log_start_offset == 0


def test_a_file_of_batches_without_its_snapshot_goes_at_the_start() -> None:
    machine = Machine()
    manager = open_logs("/one", disk=machine.disk)
    log = manager.create(T0, TOPIC_ID, CONFIG, NOW_MS)
    log.append(batch(1), leader_epoch=0, now_ms=NOW_MS)
    lonely = f"{log.directory}/{7:020d}.batches"
    manager.close()
    machine.disk.write_atomic(lonely, b"", sync=False)
    open_logs("/one", disk=machine.restart()).close()
    assert lonely not in machine.paths()


def test_a_file_of_batches_beside_its_snapshot_stays_at_a_start() -> None:
    machine = Machine()
    manager = open_logs("/one", disk=machine.disk)
    log = manager.create(T0, TOPIC_ID, CONFIG, NOW_MS)
    for number in range(2):
        data = batch(producer=1, epoch=0, sequence=number)
        log.append(data, leader_epoch=0, now_ms=NOW_MS)
    manager.close()
    for _ in range(2):
        manager = open_logs("/one", disk=machine.restart())
        held = manager.get(T0)
        assert held is not None
        again = held.append(batch(producer=1, epoch=0, sequence=0), leader_epoch=0, now_ms=NOW_MS)
        assert (again.duplicate, again.base_offset) == (True, 0)
        manager.close()
