"""Jobs that are killed, the records they read, and reading as a stock consumer."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from oncelog.client.admin import Admin
from oncelog.client.producer import Producer
from oncelog.client.values import NewTopic
from oncelog.spark.progress import CrashRow, crash_row, read_progress
from tests.spark.job import LOCAL, JobOptions, builder_on, start, worker_environment
from tests.spark.orders import Order, check_counts
from tests.spark.queries import QUERIES
from tests.spark.sources import connector_jars, register
from tests.support.interop.librdkafka import given

JOB_TIMEOUT_S = 300
"""A job takes seconds; on a loaded machine the start of Spark alone takes a minute."""
POLL_TIMEOUT_S = 15
KEYS = [b"k%d" % number for number in range(7)]
PARTITIONS_COUNT = 2


@dataclass
class Job:
    """One streaming application: its topics, its checkpoint, its options."""

    bootstrap_servers: str
    folder: Path
    name: str
    query: str = "copy"
    per_batch: int = 1000
    master: str = LOCAL
    """Where a job in a process of its own runs."""

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

    def options(self, **others: Any) -> JobOptions:
        return JobOptions(
            bootstrap=self.bootstrap_servers,
            name=self.name,
            checkpoint=str(self.checkpoint),
            progress=str(self.progress),
            query=self.query,
            per_batch=self.per_batch,
            master=self.master,
            **{"connector": connector_jars(), **others},
        )

    def run_here(self, spark: SparkSession, **others: Any) -> None:
        """Run to the end of what is there in this process; raises what the query raised."""
        start(spark, self.options(**others)).awaitTermination()

    def run(self, **others: Any) -> int:
        """Run to the end in a process of its own; returns the exit code (-9: killed)."""
        process = self.start(**others)
        try:
            return process.wait(JOB_TIMEOUT_S)
        finally:
            kill_session(process)

    def start(self, **others: Any) -> "subprocess.Popen[bytes]":
        """Start it in a session of its own, so that its JVM and its workers can be killed too."""
        return self.start_module("tests.spark.job", self.options(**others).encode())

    def start_module(self, module: str, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start another program in place of `tests.spark.job`."""
        with self.output.open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdout=output,
                stderr=output,
                env={**os.environ, **worker_environment()},
                cwd=self.folder,
                start_new_session=True,
            )

    @property
    def output(self) -> Path:
        return self.folder / "output"

    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def load_orders(self, first: int, count: int) -> None:
        """Create the job's topics if they are missing, and produce orders and their payments."""
        asyncio.run(self._load_orders(range(first, first + count)))

    async def _load_orders(self, numbers: range) -> None:
        await create_topics(self.bootstrap_servers, self.name)
        copies = QUERIES[self.query].copies_per_order
        async with Producer(self.bootstrap_servers) as producer:
            sent = []
            for order in (Order(number) for number in numbers for _ in range(copies)):
                place = order.number % PARTITIONS_COUNT
                records = [("in", order.record)]
                if order.is_paid and "payments" in QUERIES[self.query].input_suffixes:
                    records.append(("payments", order.payment))
                for suffix, (key, value) in records:
                    topic = f"{self.name}-{suffix}"
                    sent.append(producer.send(topic, value, key=key, partition=place))
            await producer.flush()
            for future in sent:
                await future

    def findings(self, count: int) -> list[str]:
        """What is wrong with the visible output of the first `count` orders."""
        query = QUERIES[self.query]
        found = query.check(self._read("out"), count)
        return found + (check_counts(self._read("counts"), count) if query.adds_counts else [])

    def _read(self, suffix: str) -> list[tuple[bytes | None, bytes]]:
        records = read(self.bootstrap_servers, f"{self.name}-{suffix}")
        return [(key, value) for _, key, value in records]


def lasting_session(master: str = LOCAL) -> SparkSession:
    """A session that lasts for many tests: starting Spark costs seconds."""
    os.environ.update(worker_environment())
    builder = builder_on(master).config("spark.log.level", "OFF")
    spark = builder.config("spark.jars", connector_jars()).getOrCreate()
    register(spark)
    return spark


def end_session() -> None:
    """Stop the session that runs in this process, if one does."""
    running = SparkSession.getActiveSession()
    if running is not None:
        running.stop()


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
    """Look every 2 ms, so that a fault strikes where the job is."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"waited {timeout_s:.0f} s: {what}"
        time.sleep(0.002)


def kill_session(process: "subprocess.Popen[bytes]") -> None:
    """SIGKILL what the job leaves behind: its JVM and its Python workers."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def topics_of(name: str) -> list[str]:
    """The topics of a job."""
    return [f"{name}-{suffix}" for suffix in ("in", "payments", "out", "counts")]


async def create_topics(bootstrap_servers: str, name: str) -> None:
    """The topics of a job, unless they are there."""
    topics = [NewTopic(topic, PARTITIONS_COUNT) for topic in topics_of(name)]
    async with Admin(bootstrap_servers) as admin:
        if f"{name}-in" not in await admin.list_topics():
            await admin.create_topics(topics)
            await admin.wait_for_topics([topic.name for topic in topics])


def load(bootstrap_servers: str, name: str, first: int, count: int) -> None:
    """Create the job's topics if they are missing, and produce numbered records."""

    async def go() -> None:
        await create_topics(bootstrap_servers, name)
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


def message_of(failure: StreamingQueryException) -> str:
    """What a user reads of the sink's error in a running query: one message, no nested traceback.

    Around it are Spark's own lines, and the calls that lead from Spark to the sink.
    """
    told = str(failure).split("=== Streaming Query ===")[0]
    assert told.count("Traceback") == 1, told
    assert told.count("oncelog/spark") == 1, told
    message, *rest = told[told.index("oncelog.spark.errors.") :].strip().splitlines()
    assert len(message) < 1000
    assert [line for line in rest if not line.startswith(" SQLSTATE")] == []
    return message


def check_copied(job: Job, count: int) -> None:
    """Every source record stands in the output exactly once, and each key's records in order."""
    records = read(job.bootstrap_servers, f"{job.name}-out")
    values = Counter(value for _, _, value in records)
    assert values == Counter(b"%d" % number for number in range(count))
    for key in KEYS:
        numbers = [int(value) for _, record_key, value in records if record_key == key]
        assert numbers == sorted(numbers)
