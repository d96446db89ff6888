"""Producers and readers of a cluster under faults: librdkafka's here, the Java client in a JVM.

Each producer is idempotent, with acks=all, and never gives up on a record. Each keeps when every
record was acknowledged, so that the longest time without an acknowledgement can be told for each
partition. Readers read all partitions from their beginning, and keep what they saw.
"""

from __future__ import annotations

import subprocess
import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.support.checker import History, Seen, Value
from tests.support.java_program import compiled
from tests.support.peer.kafka import jars, java
from tests.support.workload import (
    IDEMPOTENT_TOPIC,
    PARTITION_COUNT,
    QUIET,
    IdempotentWriter,
)

SOURCES = Path(__file__).with_name("java")
END_TIMEOUT_S = 60.0
JAVA_RATE = 200


class Acknowledged(NamedTuple):
    """When a record of a partition was acknowledged, by the clock of `time.monotonic`."""

    at_s: float
    partition: int


class TimedWriter(IdempotentWriter):
    """A writer of librdkafka that keeps when each record was acknowledged."""

    rate = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        self.acknowledged: list[Acknowledged] = []

    def answers_within(self, timeout_ms: int) -> TimedWriter:
        """Wait only so long for a broker that is stopped or cut off; the default is 30 s."""
        self.settings = {"request.timeout.ms": timeout_ms, "socket.timeout.ms": 2 * timeout_ms}
        return self

    def report(self, value: Value) -> Callable[[KafkaError | None, Message], None]:
        """See `Writer.report`."""
        note = super().report(value)

        def delivered(error: KafkaError | None, message: Message) -> None:
            note(error, message)
            if error is None:
                self.acknowledged.append(Acknowledged(time.monotonic(), message.partition() or 0))

        return delivered


class Reader:
    """A librdkafka consumer that reads all partitions while they are written."""

    def __init__(self, servers: str, timeout_ms: int) -> None:
        self.name = "the librdkafka consumer"
        self.seen: list[Seen] = []
        self.problems: list[str] = []
        self._ends: dict[int, int] | None = None
        self._servers = servers
        self._timeout_ms = timeout_ms
        self.thread = threading.Thread(target=self._read, daemon=True)

    def read_to(self, ends: dict[int, int]) -> None:
        """Read on to these ends; returns once it has, or could not in time."""
        self._ends = ends
        self.thread.join(END_TIMEOUT_S)
        if self.thread.is_alive():
            self.problems.append(f"{self.name} did not come to the end")

    def _read(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "alone",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "socket.timeout.ms": 2 * self._timeout_ms,
                **QUIET,
            }
        )
        consumer.assign([TopicPartition(IDEMPOTENT_TOPIC, p, 0) for p in range(PARTITION_COUNT)])
        positions = dict.fromkeys(range(PARTITION_COUNT), 0)
        while self._ends is None or any(positions[p] < end for p, end in self._ends.items()):
            for message in consumer.consume(1000, 0.2):
                if (error := message.error()) is not None:
                    if not error.retriable() and error.code() >= 0:
                        self.problems.append(f"{self.name}: {error}")
                    continue
                partition, offset = message.partition() or 0, message.offset() or 0
                self.seen.append(Seen(partition, offset, Value.decode(message.value() or b"")))
                positions[partition] = offset + 1
        consumer.close()


class JavaClients:
    """A Java producer and a Java consumer in one JVM, and what they told."""

    stream = "java"
    name = "the Java consumer"

    def __init__(self, servers: str, folder: Path, timeout_ms: int) -> None:
        self.history = History()
        self.acknowledged: list[Acknowledged] = []
        self.seen: list[Seen] = []
        self.problems: list[str] = []
        self._notes = folder / "java.log"
        classes = compiled("Load", SOURCES)
        command = [java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        command += ["-cp", f"{jars()}:{classes}", "Load", servers, IDEMPOTENT_TOPIC]
        command += [str(PARTITION_COUNT), str(JAVA_RATE), str(timeout_ms), self.stream]
        with self._notes.open("wb") as notes, (folder / "java.err").open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=notes, stderr=errors
            )

    def wait_begun(self) -> None:
        """Return once something is acknowledged. Raises `TimeoutError`."""
        deadline_s = time.monotonic() + END_TIMEOUT_S
        while b"\nacked " not in self._notes.read_bytes():
            if time.monotonic() > deadline_s or self._process.poll() is not None:
                raise TimeoutError(f"no record of the Java producer was taken: {self._notes}")
            time.sleep(0.05)

    def stop_producing(self) -> None:
        """Produce no more, and wait until all is acknowledged."""
        self._tell("stop")
        deadline_s = time.monotonic() + END_TIMEOUT_S
        while b"\nproduced" not in self._notes.read_bytes():
            if time.monotonic() > deadline_s or self._process.poll() is not None:
                self.problems.append("the Java producer did not come to its end")
                return
            time.sleep(0.05)

    def read_to_the_end(self) -> None:
        """Have the consumer read to the ends of all partitions, and take in what both told."""
        self._tell("end")
        try:
            code = self._process.wait(END_TIMEOUT_S)
            if code:
                self.problems.append(f"the JVM ended with code {code}")
        except subprocess.TimeoutExpired:
            self.problems.append(f"{self.name} did not come to the end")
            self.kill()
        self._take(self._notes.read_text())

    @property
    def pid(self) -> int:
        """Process id of the JVM."""
        return self._process.pid

    def kill(self) -> None:
        """End the JVM, if it still runs."""
        self._process.kill()
        with suppress(BrokenPipeError):
            self._process.communicate()

    def _tell(self, word: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(word.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self.problems.append(f"the JVM has ended before it was told: {word}")

    def _take(self, told: str) -> None:
        for line in told.splitlines():
            what, _, rest = line.partition(" ")
            if what == "sent":
                number, partition = map(int, rest.split())
                self.history.send(Value(self.stream, number), partition)
            elif what == "acked":
                number, partition, offset, at_ns = map(int, rest.split())
                self.history.ack(Value(self.stream, number), offset)
                self.acknowledged.append(Acknowledged(at_ns / 1e9, partition))
            elif what == "read":
                at, read, value = rest.split()
                self.seen.append(Seen(int(at), int(read), Value.decode(value.encode())))
            elif what == "problem":
                self.problems.append(f"Java: {rest}")


def longest_gap_s(
    acknowledged: list[Acknowledged], partition: int, from_s: float, to_s: float
) -> float:
    """The longest time without an acknowledgement of a partition, in a stretch of time.

    It begins with the last acknowledgement before the stretch.
    """
    times = sorted(each.at_s for each in acknowledged if each.partition == partition)
    first = max(0, bisect_left(times, from_s) - 1)
    inside = [at_s for at_s in times[first:] if at_s <= to_s]
    marks = [*(inside or [from_s]), to_s]
    return max(later - earlier for earlier, later in pairwise(marks))


def merged(histories: list[History]) -> History:
    """The histories of producers whose streams differ, as one."""
    whole = History()
    for each in histories:
        whole.sent.update(each.sent)
        whole.acked.update(each.acked)
    return whole


def ends_of(servers: str) -> dict[int, int]:
    """The next offset of each partition. Raises `KafkaException`."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "ends", **QUIET})
    found = {}
    for partition in range(PARTITION_COUNT):
        at = TopicPartition(IDEMPOTENT_TOPIC, partition)
        low_high = consumer.get_watermark_offsets(at, END_TIMEOUT_S)
        if low_high is None:
            raise KafkaException(f"no end of {at}")
        found[partition] = low_high[1]
    consumer.close()
    return found
