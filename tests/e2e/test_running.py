"""What docs/running.md says of a broker as a service: its log, its copy, its older folder."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncelog import NewTopic, TopicPartition
from oncelog.sync import Admin, Consumer, Producer
from tests.support.broker import BrokerProcess
from tests.support.documents.blocks import ROOT

pytestmark = pytest.mark.slow

UNIT = ROOT / "deploy" / "systemd" / "oncelog.service"
OLD_FOLDER = Path(__file__).parent / "folder-of-format-1.tar.xz"
FEW = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
WAIT_S, WAIT_MS = 30, 30_000


def numbers(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def send(servers: str, values: list[bytes]) -> None:
    with Producer(servers) as producer:
        for value in values:
            producer.send("in", value)
        producer.flush()


def carry(servers: str, count: int) -> None:
    """Carry so many records from `in` to `out`, in transactions with their offsets."""
    with (
        Producer(servers, transactional_id="carry") as producer,
        Consumer(
            servers, group_id="carry", enable_auto_commit=False, auto_offset_reset="earliest"
        ) as consumer,
    ):
        producer.init_transactions()
        consumer.subscribe(["in"])
        while count:
            records = consumer.poll(1000, max_records=count)
            producer.begin_transaction()
            for record in records:
                producer.send("out", record.value)
            producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
            producer.commit_transaction()
            count -= len(records)


def read(servers: str, topic: str, count: int) -> list[bytes]:
    """Return what a read_committed consumer gets, which has to be so many records."""
    found: list[bytes] = []
    with Consumer(servers, isolation_level="read_committed") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 0)
        while len(found) < count:
            found += [record.value or b"" for record in consumer.poll(WAIT_MS)]
        assert not consumer.poll(100)
    return found


def test_a_copy_of_a_stopped_broker_goes_on_exactly_once(tmp_path: Path) -> None:
    folder, backup = tmp_path / "data", tmp_path / "backup"
    with BrokerProcess(folder, FEW) as broker:
        servers = broker.bootstrap_servers
        with Admin(servers) as admin:
            admin.create_topics([NewTopic("in", 1, 1), NewTopic("out", 1, 1)])
        send(servers, numbers(0, 20))
        carry(servers, 8)
        assert broker.stop() == 0
        subprocess.run(["cp", "-a", folder, backup], check=True)

        broker.start()
        # What comes after the copy is lost with the folder.
        carry(servers, 6)
        send(servers, numbers(100, 5))
        assert broker.stop() == 0
        shutil.rmtree(folder)
        subprocess.run(["cp", "-a", backup, folder], check=True)

        broker.start()
        assert read(servers, "in", 20) == numbers(0, 20)
        assert read(servers, "out", 8) == numbers(0, 8)
        send(servers, numbers(20, 5))
        carry(servers, 17)
        assert read(servers, "out", 25) == numbers(0, 25)


@contextmanager
def service_manager(folder: Path) -> Iterator[socket.socket]:
    """What systemd listens to."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(folder / "notify"))
        manager.settimeout(WAIT_S)
        yield manager


def test_a_service_tells_its_manager_and_has_its_log_rotated(tmp_path: Path) -> None:
    with service_manager(tmp_path) as manager:
        variables = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}
        with BrokerProcess(tmp_path / "data", FEW, variables=variables) as broker:
            assert manager.recv(100) == b"READY=1"
            log, rotated = broker.log_path, tmp_path / "oncelog.log.1"
            assert "ready on" in log.read_text()

            # As logrotate's copytruncate does it.
            shutil.copy(log, rotated)
            os.truncate(log, 0)
            with Admin(broker.bootstrap_servers) as admin:
                admin.create_topics([NewTopic("in", 1, 1)])
            assert broker.stop() == 0
            assert manager.recv(100) == b"STOPPING=1"
    assert "ready on" in rotated.read_text()
    lines = log.read_bytes()
    assert b"the logs are closed cleanly" in lines
    assert b"\0" not in lines
    assert b"ready on" not in lines


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    command = Path(sys.executable).with_name("oncelog")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/oncelog/bin/oncelog", str(command)))
    verify = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_folder_of_an_older_version_is_upgraded_and_says_so(tmp_path: Path) -> None:
    """It was written by the last commit of format 1: 20 records, 8 of them carried over."""
    with tarfile.open(OLD_FOLDER) as packed:
        packed.extractall(tmp_path, filter="data")
    with BrokerProcess(tmp_path / "data", FEW) as broker:
        servers = broker.bootstrap_servers
        assert read(servers, "in", 20) == numbers(0, 20)
        carry(servers, 12)
        assert read(servers, "out", 20) == numbers(0, 20)
        assert broker.stop() == 0
    said = broker.log_path.read_text()
    assert "from format 1 to 2: older versions of Oncelog refuse it now" in said
    assert "upgraded the metadata to format 2" in said
