"""The drills of docs/drills.md on real processes; that of an upgrade is in test_rolling_upgrade."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from oncelog import NewTopic
from oncelog.client import ClientError
from oncelog.sync import Admin, Producer
from tests.support.broker import BrokerProcess, broker_processes
from tests.support.drills import Operator, read_numbers
from tests.support.zookeeper import one_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

WAIT_S = 60.0
DISK_BYTES = 16 << 20
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@contextmanager
def running(brokers: list[BrokerProcess]) -> Iterator[str]:
    """Start them; yields their addresses. Those that a drill has ended are passed over."""
    with ExitStack() as stack:
        for broker in brokers:
            stack.enter_context(broker)
        yield ",".join(broker.bootstrap_servers for broker in brokers)


def create(servers: str) -> None:
    with Admin(servers) as admin:
        admin.create_topics([NewTopic("orders", 2, 3)])


def send(servers: str, values: range, size: int = 0) -> None:
    """Have each acknowledged by all in sync, or fail."""
    with Producer(servers, acks="all") as producer:
        for value in values:
            producer.send("orders", str(value).encode().ljust(size)).result(WAIT_S)


def wait_until_said(broker: BrokerProcess, text: str) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while text not in broker.log_path.read_text():
        assert time.monotonic() < deadline_s, broker.log_tail()
        time.sleep(0.1)


def lose(broker: BrokerProcess) -> None:
    """The machine is gone, and its disk with it."""
    broker.kill()
    shutil.rmtree(broker.folder)


def test_a_broker_is_lost_for_good(tmp_path: Path) -> None:
    brokers = broker_processes(tmp_path, 3, SETTINGS)
    with running(brokers) as servers:
        operator = Operator(servers)
        create(servers)
        send(servers, range(10))
        lose(brokers[2])
        send(servers, range(10, 20))
        assert operator.away() == [3]

        brokers[2].start()
        operator.wait_in_sync(3)
        send(servers, range(20, 30))

        lose(brokers[2])
        assert "no other broker can take" in operator.run("oncelog cluster drain 3", code=1)
        operator.run("oncelog cluster drain 3 --fewer-replicas")
        operator.run("oncelog cluster forget 3")
        operator.wait_in_sync(2)
        assert operator.away() == []
        send(servers, range(30, 40))
        assert read_numbers(servers, "orders", 40) == list(range(40))


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of a few MiB; skipped where nobody may mount one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "oncelog-drill", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        said = done.stderr
    except OSError as error:
        said = str(error)
    if said:
        pytest.skip(f"no file system can be mounted: {said}")
    try:
        (folder / "data").mkdir()
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_is_full(tmp_path: Path) -> None:
    brokers = broker_processes(tmp_path, 3, SETTINGS)
    small = brokers[1]
    disk = tmp_path / "disk"
    # Its log lies beside the link, on another file system.
    small.folder.symlink_to(disk / "data")
    with small_disk(disk), running(brokers) as servers:
        operator = Operator(servers)
        create(servers)
        send(servers, range(10))
        filler = disk / "not-the-brokers"
        free = os.statvfs(disk)
        filler.write_bytes(bytes(free.f_bavail * free.f_frsize - (1 << 20)))
        send(servers, range(10, 40), size=100_000)
        assert small.child.wait(WAIT_S) == 1
        assert "stopping, as no log directory is left" in small.log_tail()
        assert operator.away() == [2]
        send(servers, range(40, 50))

        operator.run("oncelog topics alter orders --config retention.ms=3600000")
        filler.unlink()
        small.start()
        operator.wait_in_sync(3)
        send(servers, range(50, 60))
        assert read_numbers(servers, "orders", 60) == list(range(60))


@pytest.mark.soak
def test_zookeeper_is_gone(tmp_path: Path) -> None:
    with one_server() as zookeeper:
        stores = {"zookeeper.connect": f"{zookeeper.bootstrap_servers}/oncelog", **SETTINGS}
        settings = {"default.replication.factor": "3", "min.insync.replicas": "2", **stores}
        brokers = [
            BrokerProcess(tmp_path / f"broker-{number}", {"node.id": str(number), **settings})
            for number in (1, 2, 3)
        ]
        with running(brokers) as servers:
            operator = Operator(servers)
            create(servers)
            send(servers, range(10))
            assert read_numbers(servers, "orders", 10) == list(range(10))
            zookeeper.kill()
            send(servers, range(10, 20))
            assert read_numbers(servers, "orders", 10) == list(range(10, 20))
            with Admin(servers) as admin, pytest.raises(ClientError):
                admin.create_topics([NewTopic("more", 1, 3)])
            assert operator.status()["troubles"] == []

            zookeeper.start()
            wait_until_said(brokers[0], "the metadata store answers again")
            with Admin(servers) as admin:
                admin.create_topics([NewTopic("again", 1, 3)])
            operator.wait_in_sync(3)
            send(servers, range(20, 30))
