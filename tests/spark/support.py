"""Running `tests.spark.job` in processes that are killed, and reading as a stock consumer."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from oncelog.client.admin import Admin
from oncelog.client.producer import Producer
from oncelog.client.values import NewTopic
from oncelog.spark.progress import CrashRow, crash_row, read_progress
from tests.support.interop.librdkafka import given

JOB_TIMEOUT_S = 300
POLL_TIMEOUT_S = 15
KEYS = [b"k%d" % number for number in range(7)]


@dataclass
class Job:
    """One streaming application: its topics, its checkpoint, its arguments."""

    bootstrap_servers: str
    folder: Path
    name: str
    arguments: list[str] = field(default_factory=list)
    has_counts: bool = False

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def progress(self) -> Path:
        return self.folder / "progress"

    def steps(self) -> list[dict[str, Any]]:
        return read_progress(str(self.progress))

    def crash_row(self) -> CrashRow:
        return crash_row(self.steps(), str(self.checkpoint))

    def run(self, crash_point: str = "", *more: str) -> int:
        """Run to the end of what is there, or to the crash; returns the exit code (-9: killed)."""
        process = self.start(crash_point, *more)
        try:
            return process.wait(JOB_TIMEOUT_S)
        finally:
            kill_session(process)

    def start(self, crash_point: str = "", *more: str) -> "subprocess.Popen[bytes]":
        """Start it in a session of its own, so that its JVM and its workers can be killed too."""
        command = [sys.executable, "-m", "tests.spark.job", "--bootstrap", self.bootstrap_servers]
        command += ["--source", f"{self.name}-in", "--output", f"{self.name}-out"]
        command += ["--application", self.name, "--checkpoint", str(self.checkpoint)]
        command += ["--progress", str(self.progress), *self.arguments, *more]
        if self.has_counts:
            command += ["--counts", f"{self.name}-counts"]
        root = str(Path(__file__).parents[2])
        environment = {**os.environ, "ONCELOG_CRASH_POINT": crash_point, "PYTHONPATH": root}
        with self.output.open("wb") as output:
            return subprocess.Popen(
                command,
                stdout=output,
                stderr=output,
                env=environment,
                cwd=self.folder,
                start_new_session=True,
            )

    @property
    def output(self) -> Path:
        return self.folder / "output"

    def text(self) -> str:
        return self.output.read_text(errors="replace")


def kill_session(process: "subprocess.Popen[bytes]") -> None:
    """SIGKILL what the job leaves behind: its JVM and its Python workers."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def load(bootstrap_servers: str, name: str, first: int, count: int) -> None:
    """Create the job's topics if they are missing, and produce numbered records."""

    async def go() -> None:
        topics = [NewTopic(f"{name}-{suffix}", 2) for suffix in ("in", "out", "counts")]
        async with Admin(bootstrap_servers) as admin:
            if f"{name}-in" not in await admin.list_topics():
                await admin.create_topics(topics)
                await admin.wait_for_topics([topic.name for topic in topics])
        async with Producer(bootstrap_servers) as producer:
            numbers = range(first, first + count)
            sent = [
                producer.send(f"{name}-in", b"%d" % n, key=KEYS[n % len(KEYS)]) for n in numbers
            ]
            await producer.flush()
            for future in sent:
                await future

    asyncio.run(go())


def read(
    bootstrap_servers: str, topic: str, isolation: str = "read_committed"
) -> list[tuple[int, bytes | None, bytes]]:
    """(partition, key, value) of every record, as librdkafka reads them."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "tests-spark",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        left = set(consumer.list_topics(topic, timeout=POLL_TIMEOUT_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
        records = []
        while left:
            message = consumer.poll(POLL_TIMEOUT_S)
            assert message is not None, f"{topic} has no end within {POLL_TIMEOUT_S} s"
            if message.error():
                left.discard(given(message.partition()))
            else:
                place = given(message.partition())
                records.append((place, message.key(), given(message.value())))
        return records
    finally:
        consumer.close()


def check_copied(job: Job, count: int) -> None:
    """Every source record stands in the output exactly once, and each key's records in order."""
    records = read(job.bootstrap_servers, f"{job.name}-out")
    values = Counter(value for _, _, value in records)
    assert values == Counter(b"%d" % number for number in range(count))
    for key in KEYS:
        numbers = [int(value) for _, record_key, value in records if record_key == key]
        assert numbers == sorted(numbers)


def check_counts(job: Job, count: int) -> None:
    """The last count of every key is the true one."""
    last = {key: value for _, key, value in read(job.bootstrap_servers, f"{job.name}-counts")}
    expected = Counter(KEYS[number % len(KEYS)] for number in range(count))
    assert last == {key: b"%d" % number for key, number in expected.items()}
