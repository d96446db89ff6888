"""Three processes go from an earlier commit to these sources one by one, under load, and back.

Both versions run at once: each is the controller of the other for a while. docs/drills.md has the
drill, and its command says when to go on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncelog import NewTopic
from oncelog.client import ClientError
from oncelog.sync import Admin, Producer
from tests.support.drills import Operator, read_numbers
from tests.support.peer.child import free_port

pytestmark = [pytest.mark.soak, pytest.mark.timeout(240)]

ROOT = Path(__file__).resolve().parents[2]
EARLIER = "8e350cc076ad29b7a079f19955313ffbc20857c3"
"""The first commit with clusters that other versions may run beside."""
IDS = (1, 2, 3)
WAIT_S = 60.0


def earlier_sources(folder: Path) -> Path:
    """Unpack the sources of the earlier commit, or skip where there is no history."""
    packed = folder / "sources.tar"
    command = ["git", "archive", f"--output={packed}", EARLIER, "src"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"the sources of {EARLIER} are not here")
    subprocess.run(["tar", "xf", str(packed)], cwd=folder, check=True)
    return folder / "src"


class Brokers:
    """Processes by broker id; `earlier` are other sources."""

    def __init__(self, folder: Path, earlier: Path) -> None:
        self._folder = folder
        self._earlier = earlier
        self._ports = {broker_id: free_port() for broker_id in IDS}
        self._running: dict[int, subprocess.Popen[str]] = {}

    @property
    def servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def start(self, broker_id: int, *, is_earlier: bool) -> None:
        settings = {
            "node.id": broker_id,
            "oncelog.metadata.file": self._folder / "metadata.sqlite",
            "default.replication.factor": 3,
            "min.insync.replicas": 2,
        }
        command = [sys.executable, "-m", "oncelog", "serve"]
        command += [f"--data-dir={self._folder / str(broker_id)}"]
        command += [f"--listen=127.0.0.1:{self._ports[broker_id]}"]
        command += [f"--set={key}={value}" for key, value in settings.items()]
        environment = dict(os.environ)
        if is_earlier:
            environment["PYTHONPATH"] = str(self._earlier)
        with (self._folder / f"{broker_id}.log").open("a") as lines:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=lines, text=True, env=environment
            )
        self._running[broker_id] = process
        assert process.stdout is not None
        for line in process.stdout:
            if "ready on" in line:
                return
        raise AssertionError((self._folder / f"{broker_id}.log").read_text())

    def stop(self, broker_id: int) -> None:
        process = self._running.pop(broker_id)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
        assert process.stdout is not None
        process.stdout.close()

    def close(self) -> None:
        for broker_id in list(self._running):
            self.stop(broker_id)


@contextmanager
def started(tmp_path: Path) -> Iterator[Brokers]:
    brokers = Brokers(tmp_path, earlier_sources(tmp_path))
    try:
        for broker_id in IDS:
            brokers.start(broker_id, is_earlier=True)
        yield brokers
    finally:
        brokers.close()


class Load:
    """A thread that sends numbers, one after the other, until it is stopped."""

    def __init__(self, servers: str) -> None:
        self.sent_count = 0
        self._servers = servers
        self._stop = threading.Event()
        self._failures: list[ClientError] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with Producer(self._servers) as producer:
                while not self._stop.is_set():
                    value = b"%d" % self.sent_count
                    producer.send("t", value, partition=self.sent_count % 3).result(WAIT_S)
                    self.sent_count += 1
        except ClientError as failure:
            self._failures.append(failure)

    def stop(self) -> int:
        self._stop.set()
        self._thread.join(WAIT_S)
        assert self._failures == []
        return self.sent_count


def change_metadata(servers: str, name: str) -> None:
    """What only the controller can do, asked of any broker."""
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(name, 2, 3, {"retention.ms": "60000"})])
        admin.incremental_alter_configs(name, {"retention.ms": "70000"})
        admin.create_partitions({name: 3})
        assert admin.describe_configs([name])[name]["retention.ms"].value == "70000"
    for number, server in enumerate(servers.split(",")):
        # Created by the broker that is asked, which sends it to the controller.
        with Producer(server) as producer:
            producer.send(f"{name}-by-{number}", b"0").result(WAIT_S)


def test_brokers_are_upgraded_one_by_one_and_taken_back(tmp_path: Path) -> None:
    with started(tmp_path) as brokers:
        with Admin(brokers.servers) as admin:
            admin.create_topics([NewTopic("t", 3, 3)])
        operator = Operator(brokers.servers)
        load = Load(brokers.servers)
        # The first is the controller of both versions until it is upgraded as the last.
        for broker_id in (3, 2, 1):
            operator.wait_in_sync(3)
            brokers.stop(broker_id)
            brokers.start(broker_id, is_earlier=False)
            change_metadata(brokers.servers, f"upgraded-{broker_id}")
        operator.wait_in_sync(3)
        brokers.stop(3)
        brokers.start(3, is_earlier=True)
        change_metadata(brokers.servers, "taken-back")
        operator.wait_in_sync(3)
        count = load.stop()
        assert read_numbers(brokers.servers, "t", count) == list(range(count))
