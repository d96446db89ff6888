"""How long until a record that was produced is visible to a read_committed consumer.

The probe is a process of its own, as producers and consumers are: in the harness's process it would
share an interpreter with Spark's driver.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from statistics import median, quantiles

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.stats import Figures
from bench.systems import System
from bench.work import PARTITIONS
from tests.support.peer.kafka import ROOT

RECORDS_S = 1000
VALUE_BYTES = 100
SECONDS_MIN = 5.0
TICK_S = 0.005
READY_TIMEOUT_S = 60.0
LATE_S = 30.0
PER_BATCH_MAX = 1_000_000


class Probe:
    """The producer and the consumer around one pipeline."""

    def __init__(self, system: System, source: str, target: str, seconds: float) -> None:
        self._command = [sys.executable, "-m", "bench.spark.latency", system.bootstrap_servers]
        self._command += [source, target, str(seconds)]
        self._timeout_s = READY_TIMEOUT_S + seconds + LATE_S + 10

    def run(self) -> Figures:
        """Percentiles in ms, once the pipeline runs. Raises `RuntimeError`."""
        done = subprocess.run(
            self._command,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=self._timeout_s,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"the probe failed: {done.stderr.strip()[-300:]}")
        times = sorted(json.loads(done.stdout))
        return {"p50 ms": median(times), "p99 ms": quantiles(times, n=100)[98]}


def consumer(servers: str, target: str) -> Consumer:
    """Reads committed records of all partitions from their beginning."""
    client = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "probe",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    client.assign([TopicPartition(target, number, 0) for number in range(PARTITIONS)])
    return client


def produced_times_ns(client: Consumer, wait_s: float) -> Iterator[tuple[int, int]]:
    """(produced, seen) of the records that come within so long."""
    messages = client.consume(10_000, wait_s)
    now = time.time_ns()
    for message in messages:
        value = message.value()
        if message.error() is None and value is not None:
            yield int(value[:20]), now


def send(client: Producer, source: str, number: int) -> None:
    """A record that says when it was produced."""
    value = (b"%020d" % time.time_ns()).ljust(VALUE_BYTES, b"x")
    client.produce(source, value, b"%012d" % number, number % PARTITIONS)


def wait_until_running(client: Producer, reader: Consumer, source: str) -> int:
    """Records that were sent until one came through."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    sent, seen = 0, 0
    while seen == 0:
        if time.monotonic() > deadline:
            raise RuntimeError("no record came through")
        send(client, source, sent)
        client.poll(0)
        sent += 1
        seen += sum(1 for _ in produced_times_ns(reader, 0.2))
    while seen < sent:
        seen += sum(1 for _ in produced_times_ns(reader, 0.2))
        if time.monotonic() > deadline:
            raise RuntimeError(f"only {seen} of {sent} records came through")
    return sent


def measured_ms(servers: str, source: str, target: str, seconds: float) -> list[float]:
    """Of each record of a steady input."""
    client = Producer({"bootstrap.servers": servers, "linger.ms": 0, "log_level": 0})
    reader = consumer(servers, target)
    first = wait_until_running(client, reader, source)
    begun = time.monotonic()
    count = int(RECORDS_S * seconds)
    sent = 0
    times: list[float] = []
    while len(times) < count:
        due = min(count, int((time.monotonic() - begun) * RECORDS_S))
        for number in range(sent, due):
            send(client, source, first + number)
        sent = max(sent, due)
        client.poll(0)
        times += [(seen - made) / 1e6 for made, seen in produced_times_ns(reader, TICK_S)]
        if time.monotonic() - begun > seconds + LATE_S:
            raise RuntimeError(f"only {len(times)} of {count} records came through")
    client.flush(10)
    reader.close()
    return times


if __name__ == "__main__":
    servers, source, target, seconds = sys.argv[1:]
    print(json.dumps(measured_ms(servers, source, target, float(seconds))))
