"""A rolling restart of three brokers under the load of stock clients, whoever made the brokers.

Each broker is stopped in order (SIGTERM), started again, and the next one follows when all replicas
are in sync. Judged are what each application was told by its client (nothing may be an error), what
its consumers read (each committed record once and in order), and how long its producers waited at
the longest.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from oncelog import NewTopic
from oncelog.sync import Admin
from tests.support.checker import History, Outcome, Seen, Value, check
from tests.support.java_program import compiled
from tests.support.peer.cluster import BrokerCluster
from tests.support.peer.kafka import jars, java
from tests.support.rolling_client import ABORTS_EVERY, IDEMPOTENT, PAUSE_S, TRANSACTIONAL
from tests.support.workload import PARTITION_COUNT

JAVA = "java"
KINDS = (IDEMPOTENT, TRANSACTIONAL)
LIBRARIES = ("confluent-kafka", "aiokafka", "kafka-python", JAVA)
SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
}
"""Of all brokers."""
SOURCES = Path(__file__).with_name("java")
BEGIN_TIMEOUT_S = 90.0
IN_SYNC_TIMEOUT_S = 120.0
END_TIMEOUT_S = 200.0
CALM_S = 0.5
"""How long the load runs before the first broker is stopped, and after each is back."""


@dataclass
class Report:
    """What came of a rolling restart."""

    pauses_s: dict[str, float] = field(default_factory=dict)
    """The longest time that each producer waited, by its name."""
    counts: dict[str, int] = field(default_factory=dict)
    """How many records each reader had."""
    problems: list[str] = field(default_factory=list)
    """What clients told their applications: which part it was, and the error, which ended it."""
    findings: list[str] = field(default_factory=list)
    """What is wrong with what came, or did not come."""


@dataclass(frozen=True)
class Told:
    """What the application of a library has told, in a file."""

    library: str
    path: Path

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of its two producers."""
        return tuple(f"{self.library}-{kind}" for kind in KINDS)

    def lines(self) -> list[str]:
        """All that it has told until now."""
        return self.path.read_text(errors="replace").splitlines()


class Application:
    """The process of one library's clients."""

    def __init__(self, library: str, servers: str, folder: Path) -> None:
        self.told = Told(library, folder / f"{library}.told")
        command = [sys.executable, "-m", "tests.support.rolling_client", library, servers, library]
        if library == JAVA:
            classes = compiled("Rolling", SOURCES)
            command = [java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
            command += ["-cp", f"{jars()}:{classes}", "Rolling", servers, library]
            command += [str(PARTITION_COUNT), str(int(PAUSE_S * 1000)), str(ABORTS_EVERY)]
        with self.told.path.open("wb") as told, (folder / f"{library}.err").open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=told, stderr=errors
            )

    def wait_begun(self) -> None:
        """Return once both consumers have read something, or it has a problem."""

        def is_ready() -> bool:
            lines = self.told.lines()
            has_problem = any(line.startswith("problem") for line in lines)
            return has_problem or all(
                any(line.startswith(f"read {topic} ") for line in lines)
                for topic in self.told.topics
            )

        until(is_ready, f"the clients of {self.told.library} to begin", BEGIN_TIMEOUT_S)

    def end(self) -> None:
        """Produce no more, and wait until all is read."""
        with suppress(subprocess.TimeoutExpired):
            self._process.communicate(b"stop\n", END_TIMEOUT_S)

    def kill(self) -> None:
        """End the process, if it still runs."""
        self._process.kill()
        with suppress(BrokenPipeError, ValueError):
            self._process.communicate()


def roll(
    cluster: BrokerCluster[Any],
    folder: Path,
    libraries: Sequence[str] = LIBRARIES,
    tell: Callable[[str], None] = lambda _: None,
) -> Report:
    """Restart each broker of a cluster that runs, under load."""
    report = Report()
    servers = cluster.bootstrap_servers
    with Admin(servers) as admin:
        topics = [
            NewTopic(f"{one}-{kind}", PARTITION_COUNT, 3) for one in libraries for kind in KINDS
        ]
        admin.create_topics(topics)
    wait_in_sync(servers)
    with ExitStack() as exits:
        applications = []
        for library in libraries:
            applications.append(Application(library, servers, folder))
            exits.callback(applications[-1].kill)
        for each in applications:
            each.wait_begun()
        time.sleep(CALM_S)
        begun_s = time.monotonic()
        for broker_id, broker in cluster.brokers.items():
            tell(f"broker {broker_id} restarts")
            broker.stop()
            broker.start()
            wait_in_sync(servers)
            time.sleep(CALM_S)
        ended_s = time.monotonic()
        for each in applications:
            each.end()
    for each in applications:
        judge(report, each.told, begun_s, ended_s)
    return report


def wait_in_sync(servers: str) -> None:
    """Return once every replica of every partition is in sync. Raises `TimeoutError`."""
    with Admin(servers) as admin:

        def is_whole() -> bool:
            parts = [part for topic in admin.list_topics().values() for part in topic.partitions]
            return all(set(part.isr) == set(part.replicas) for part in parts)

        until(is_whole, "all replicas to be in sync", IN_SYNC_TIMEOUT_S)


def until(condition: Callable[[], bool], what: str, timeout_s: float) -> None:
    """Wait for a condition. Raises `TimeoutError`."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"waited {timeout_s:g} s for {what}")
        time.sleep(0.05)


def judge(report: Report, told: Told, begun_s: float, ended_s: float) -> None:
    """Add what one application told; the pauses are those of a stretch of time."""
    histories = defaultdict[str, History](History)
    times = defaultdict[str, list[float]](list)
    seen = defaultdict[str, list[Seen]](list)
    problems: list[str] = []
    lines = told.lines()
    for line in lines:
        what, _, rest = line.partition(" ")
        words = rest.split()
        if what == "sent":
            value = Value(words[0], int(words[1]), int(words[2]))
            histories[words[0]].send(value, int(words[3]))
        elif what == "acked":
            histories[words[0]].ack(Value(words[0], int(words[1])), int(words[2]))
            times[words[0]].append(int(words[3]) / 1e9)
        elif what == "ended":
            histories[words[0]].end(words[0], int(words[1]), Outcome[words[2]])
            times[words[0]].append(int(words[3]) / 1e9)
        elif what == "read":
            value = Value.decode(words[3].encode())
            seen[words[0]].append(Seen(int(words[1]), int(words[2]), value))
        elif what == "problem":
            problems.append(rest)
    if not lines or lines[-1] != "done":
        report.findings.append(f"{told.library} did not come to its end")
    report.problems += problems
    for topic, kind in zip(told.topics, KINDS, strict=True):
        found = check(histories[topic], seen[topic])
        if not any(each.startswith(f"{told.library}-reader-{kind} ") for each in problems):
            report.findings += [f"{topic}: {each.kind}: {each.detail}" for each in found]
        report.counts[topic] = len(seen[topic])
        report.pauses_s[topic] = longest_s(times[topic], begun_s, ended_s)


def longest_s(times: Sequence[float], begun_s: float, ended_s: float) -> float:
    """The longest time between two answers in a stretch of time, and at its ends."""
    inside = [at_s for at_s in sorted(times) if begun_s < at_s < ended_s]
    return max(later - earlier for earlier, later in pairwise([begun_s, *inside, ended_s]))
