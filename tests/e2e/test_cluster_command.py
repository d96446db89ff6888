"""`oncelog cluster`: three real brokers on this machine, through SIGKILL of one and of all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncelog import NewTopic
from oncelog.sync import Admin, Consumer, Producer

pytestmark = [pytest.mark.slow, pytest.mark.interop, pytest.mark.timeout(180)]

READY_S = 60.0
WAIT_S = 60.0


class Cluster:
    """The command, running; `pids` has the process of each broker by id."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pids: dict[int, int] = {}
        self.addresses: dict[int, str] = {}

    @property
    def servers(self) -> str:
        return ",".join(self.addresses.values())

    def read_until_ready(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("oncelog: cluster ready on "):
                return
            row = json.loads(line)
            self.pids[row["broker"]], self.addresses[row["broker"]] = row["pid"], row["address"]
        raise AssertionError(f"not ready: {self.process.wait(WAIT_S)}")

    def kill(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            os.kill(self.pids[broker_id], signal.SIGKILL)


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    command = [sys.executable, "-m", "oncelog", "cluster", "--brokers=3", f"--data-dir={folder}"]
    command += ["--listen=127.0.0.1:0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    made = Cluster(process)
    try:
        made.read_until_ready()
        yield made
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) in (0, 1)
        assert process.stdout is not None
        process.stdout.close()


def send(servers: str, *values: str) -> None:
    with Producer(servers) as producer:
        sent = [producer.send("t", value.encode(), partition=0) for value in values]
        producer.flush()
        assert [each.result().offset for each in sent]


def read(servers: str, count: int) -> list[str]:
    found: list[str] = []
    deadline_s = time.monotonic() + WAIT_S
    with Consumer(servers, group_id="readers", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["t"])
        while len(found) < count and time.monotonic() < deadline_s:
            found += [(record.value or b"").decode() for record in consumer.poll(500)]
    return found


def leader(servers: str) -> tuple[int, tuple[int, ...]]:
    """Who leads and who is in sync, as some broker knows; not every one knows the topic at once."""
    with Admin(servers) as admin:
        topic = admin.list_topics().get("t")
    if topic is None:
        return -1, ()
    (partition,) = topic.partitions
    return partition.leader, tuple(sorted(partition.isr))


def until(condition: object, wanted: object) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while condition() != wanted:  # type: ignore[operator]
        assert time.monotonic() < deadline_s, f"it is {condition()}, not {wanted}"  # type: ignore[operator]
        time.sleep(0.05)


def test_nothing_is_lost_when_the_leader_or_all_brokers_are_killed(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        with Admin(three.servers) as admin:
            admin.create_topics([NewTopic("t", 1)])
        until(lambda: leader(three.servers)[1], (1, 2, 3))
        send(three.servers, "a", "b")
        killed, _ = leader(three.servers)
        three.kill(killed)
        left = {each: address for each, address in three.addresses.items() if each != killed}
        servers = ",".join(left.values())
        until(lambda: leader(servers)[0] in left, True)
        send(servers, "c")
        assert read(servers, 3) == ["a", "b", "c"]
        three.kill(*left)
        assert three.process.wait(WAIT_S) == 1
    with cluster(tmp_path) as again:
        until(lambda: leader(again.servers)[1], (1, 2, 3))
        send(again.servers, "d")
        assert read(again.servers, 1) == ["d"]
    for number in (1, 2, 3):
        assert "unclean" not in (tmp_path / f"broker-{number}.log").read_text()


def test_a_broker_that_cannot_start_ends_the_command_with_its_reason(tmp_path: Path) -> None:
    said = refused(f"--data-dir={tmp_path}", "--set=min.insync.replicas=none")
    assert "did not start: Invalid value none for configuration min.insync.replicas" in said


def refused(*arguments: str) -> str:
    """What the command says that does not start."""
    done = subprocess.run(
        [sys.executable, "-m", "oncelog", "cluster", "--listen=127.0.0.1:0", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    return done.stderr


def test_the_folder_of_a_lone_broker_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\n")
    said = refused(f"--data-dir={tmp_path}")
    assert f"{tmp_path} is a log directory of one broker" in said
    assert os.listdir(tmp_path) == ["meta.properties"]


def test_brokers_of_before_that_are_not_started_are_named(tmp_path: Path) -> None:
    for number in (1, 2, 3, 12):
        (tmp_path / f"broker-{number}").mkdir()
    said = refused(f"--data-dir={tmp_path}", "--brokers=2", "--set=min.insync.replicas=none")
    assert f"{tmp_path} has the brokers 3, 12 too, which are not started" in said
