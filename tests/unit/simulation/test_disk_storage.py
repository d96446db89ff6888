"""Logs on a simulated disk: a process dies at every single change, then maybe the power goes."""

import random
from dataclasses import replace
from uuid import UUID

import pytest

from oncelog.core.ids import TopicPartition
from oncelog.runtime import FolderInUse
from oncelog.simulation.disk import Moment
from oncelog.simulation.process import ProcessDied
from oncelog.storage import LogConfig
from tests.support.folders import open_logs
from tests.support.machine import Machine
from tests.unit.storage.context import NOW_MS, batch, read_all

PARTITION = TopicPartition("flights", 0)
TOPIC_ID = UUID(int=7)
CONFIG = replace(LogConfig(), segment_bytes=400)
FLUSHED = replace(CONFIG, flush_messages=1)
MOMENTS: list[Moment] = ["before", "after", "torn"]


def new_machine() -> Machine:
    """One with a log directory whose name survives."""
    machine = Machine()
    machine.disk.mkdir("/data")
    machine.disk.sync_dir("/")
    return machine


def live(machine: Machine, config: LogConfig, acknowledged: list[bytes]) -> None:
    """Open the folder, append, roll, flush, retain and close; add what was acknowledged."""
    logs = open_logs("/data", disk=machine.disk, node_id=0, config=config)
    log = logs.create(PARTITION, TOPIC_ID, config, NOW_MS)
    for index in range(6):
        value = b"%03d" % len(acknowledged) + b"x" * 150
        log.append(batch(1, value=value), leader_epoch=0, now_ms=NOW_MS)
        acknowledged.append(value)
        if index == 4:
            logs.flush()
    log.delete_records(0)
    logs.close()


def die_at(machine: Machine, config: LogConfig, values: list[bytes]) -> bool:
    """Whether the process came to die."""
    try:
        live(machine, config, values)
    except ProcessDied:
        return True
    return False


def what_is_missing(machine: Machine, config: LogConfig, acknowledged: list[bytes]) -> list[bytes]:
    log = open_logs("/data", disk=machine.disk, node_id=0, config=config).get(PARTITION)
    data = b"" if log is None else read_all(log)
    places = [data.find(value) for value in acknowledged]
    assert places == sorted(places) or -1 in places
    return [value for value, place in zip(acknowledged, places, strict=True) if place < 0]


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_process_may_die_at_every_change_and_again_while_it_recovers(moment: Moment) -> None:
    dies, at = True, 0
    while dies:
        at += 1
        machine, values = new_machine(), list[bytes]()
        machine.whole.arm_kill(machine.process, after_operations=at, moment=moment)
        dies = die_at(machine, CONFIG, values)
        machine.restart()
        machine.whole.arm_kill(machine.process, after_operations=1 + at % 7, moment=moment)
        die_at(machine, CONFIG, values)
        machine.restart()
        assert what_is_missing(machine, CONFIG, values) == [], (at, machine.deaths)
    assert at > 80


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_the_power_may_go_at_every_change_when_each_message_is_flushed(moment: Moment) -> None:
    dies, at = True, 0
    while dies:
        at += 1
        machine, values, rng = new_machine(), list[bytes](), random.Random(at)
        machine.whole.arm_kill(machine.process, after_operations=at, moment=moment, rng=rng)
        dies = die_at(machine, FLUSHED, values)
        lost = machine.lose_power(at)
        machine.whole.arm_kill(machine.process, after_operations=1 + at % 23, moment=moment)
        die_at(machine, FLUSHED, values)
        lost += machine.lose_power(at + 1)
        assert what_is_missing(machine, FLUSHED, values) == [], (at, machine.deaths, lost)
    assert at > 80


def test_the_folder_of_a_new_partition_survives_a_loss_of_power() -> None:
    machine, values = new_machine(), list[bytes]()
    machine.whole.arm_kill(machine.process, after_operations=70)
    assert die_at(machine, FLUSHED, values)
    machine.lose_power(rate=0.0)
    assert values
    assert what_is_missing(machine, FLUSHED, values) == []


def test_a_new_data_folder_survives_a_loss_of_power() -> None:
    machine = Machine()
    open_logs("/data", disk=machine.disk, node_id=0, config=CONFIG).close()
    machine.lose_power(rate=0.0)
    assert machine.disk.exists("/data")


def test_a_folder_is_refused_to_a_second_process_while_the_first_lives() -> None:
    machine = new_machine()
    open_logs("/data", disk=machine.disk, node_id=0, config=CONFIG)
    first = machine.process
    machine.process, machine.disk = machine.new_process()
    with pytest.raises(FolderInUse):
        open_logs("/data", disk=machine.disk, node_id=0, config=CONFIG)
    first.kill("killed")
    assert not open_logs("/data", disk=machine.disk, node_id=0, config=CONFIG).folders[0].was_clean
