"""Groups of every stock consumer, one of whose members is killed every second for a minute.

A row is a client, a protocol, an assignor, and whether the members are static. 12 consumers share
24 partitions into which records come all the while. Each second one of them dies by SIGKILL, and a
new process takes its place at once. After the last kill the group has to settle within its session
timeout and 5 s: all 12 living members, and each partition with one of them. In the end every record
is processed, every partition committed to its end, and in `__consumer_offsets` no commit went back
(`tests.support.group_judge`).

`python -m tests.support.group_kills` runs every row that this checkout has not run on the same
sources yet, and keeps each when it is done, so that an interrupted run keeps its rows. `--again`
runs them all, `--only NAME` those whose names have NAME in them, and `--kills` is for a trial, of
which nothing is kept. Part of `make test-full`. With `--peer kafka` the rows of our own consumer
run on Apache Kafka.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
)
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.support import campaigns, evidence
from tests.support.broker import BrokerProcess
from tests.support.group_judge import GroupHistory, judge
from tests.support.group_log import commits_of, ends_of, wait_for_coordinator
from tests.support.group_member import Membership, command
from tests.support.java_program import compiled
from tests.support.peer.kafka import KafkaPeer, PeerUnavailable, jars, java
from tests.support.workload import QUIET

NAME, NAME_ON_KAFKA = "groups", "groups-kafka"
TOPIC, GROUP = "work", "workers"
MEMBERS_COUNT, PARTITIONS_COUNT = 12, 24
KILLS_COUNT = 60
KILL_EVERY_S = 1.0
SESSION_MS = 6_000
SETTLE_S_MAX = SESSION_MS / 1000 + 5
FORM_S_MAX = 60
CATCH_UP_S_MAX = 60
WAIT_S = 20
LOOK_EVERY_S = 0.25
WIDTH = 120
WRITE_EVERY_S = 0.1
RECORDS_PER_WRITE = 24
JAVA = "java"
PER_JVM = 3
"""A JVM costs seconds of CPU to start: three consumers share one, and die together every 3 s."""
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
}
JAVA_SOURCES = Path(__file__).with_name("java")


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of group."""

    client: str
    protocol: str
    assignor: str
    is_static: bool

    @property
    def name(self) -> str:
        static = " static" if self.is_static else ""
        return f"{self.client} {self.protocol} {self.assignor}{static}"

    @property
    def per_process(self) -> int:
        return PER_JVM if self.client == JAVA else 1


CLASSIC = {
    "confluent-kafka": ("range", "roundrobin", "cooperative-sticky"),
    "kafka-python": ("range", "roundrobin", "sticky", "cooperative-sticky"),
    "aiokafka": ("range", "roundrobin", "sticky"),
    "oncelog": ("range", "roundrobin", "sticky", "cooperative-sticky"),
    JAVA: ("range", "roundrobin", "sticky", "cooperative-sticky"),
}
NEW = dict.fromkeys(("confluent-kafka", "oncelog", JAVA), ("uniform", "range"))
ROWS = tuple(
    Row(client, protocol, assignor, is_static)
    for protocol, clients in (("classic", CLASSIC), ("consumer", NEW))
    for client, assignors in clients.items()
    for assignor in assignors
    for is_static in (False, True)
)
ROWS_ON_KAFKA = tuple(row for row in ROWS if row.client == "oncelog")


class Members:
    """The processes of a row, by slot; a slot's next process has the same instance id."""

    def __init__(self, row: Row, servers: str, folder: Path) -> None:
        self._row, self._servers, self._folder = row, servers, folder
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._lives = [0] * (MEMBERS_COUNT // row.per_process)
        self.gave_up_count = 0

    @property
    def slots(self) -> range:
        return range(len(self._lives))

    @property
    def expected(self) -> set[str]:
        """The instance ids of static members, the client ids of others."""
        return {self._instance(n) or n for slot in self.slots for n in self._names(slot)}

    def _names(self, slot: int) -> list[str]:
        per = self._row.per_process
        return [f"m{n}-{self._lives[slot]}" for n in range(slot * per, slot * per + per)]

    def _instance(self, name: str) -> str | None:
        return name.partition("-")[0] if self._row.is_static else None

    def start(self, slot: int) -> None:
        """A new process in a slot."""
        self._lives[slot] += 1
        names = self._names(slot)
        notes = self._folder / f"{names[0]}.notes"
        with (self._folder / "members.err").open("ab") as trouble:
            self._processes[slot] = subprocess.Popen(
                self._command(names, notes), stdout=trouble, stderr=trouble
            )

    def _command(self, names: Sequence[str], notes: Path) -> list[str]:
        row = self._row
        if row.client != JAVA:
            (name,) = names
            how = Membership(row.protocol, row.assignor, SESSION_MS, self._instance(name))
            return command(row.client, self._servers, TOPIC, GROUP, name, notes, how)
        classes = f"{jars()}:{compiled('Members', JAVA_SOURCES)}"
        program = [java(), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", classes, "Members"]
        members = [f"{n}@{i}" if (i := self._instance(n)) else n for n in names]
        given = [self._servers, TOPIC, GROUP, row.protocol, row.assignor, str(SESSION_MS)]
        return [*program, *given, str(notes), *members]

    def kill(self, slot: int) -> None:
        """SIGKILL."""
        process = self._processes.pop(slot)
        process.kill()
        process.wait()

    def restart_ended(self) -> None:
        """New processes for those whose client had enough and ended, as a supervisor does."""
        for slot, process in list(self._processes.items()):
            if process.poll() is not None:
                self.gave_up_count += 1
                self.start(slot)

    def wait_until(self, deadline_s: float) -> None:
        """Let time pass."""
        while (left_s := deadline_s - time.monotonic()) > 0:
            time.sleep(min(left_s, LOOK_EVERY_S))
            self.restart_ended()

    def close(self) -> None:
        for slot in list(self._processes):
            self.kill(slot)

    def read(self, history: GroupHistory) -> None:
        """What all of them noted."""
        for path in self._folder.glob("*.notes"):
            history.read_notes(path.read_text())


class Writing:
    """Records come into all partitions until told to stop."""

    def __init__(self, servers: str) -> None:
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, **QUIET})
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        while not self._is_over.wait(WRITE_EVERY_S):
            for number in range(RECORDS_PER_WRITE):
                self._producer.produce(TOPIC, b"work", partition=number % PARTITIONS_COUNT)
            self._producer.poll(0)

    def stop(self) -> None:
        """Return once all is written."""
        self._is_over.set()
        self._thread.join(WAIT_S)
        if self._producer.flush(WAIT_S):
            raise TimeoutError("the records could not be written")


@dataclass(slots=True)
class RowRun:
    """One row, from the broker's start to the verdict."""

    row: Row
    seed: int
    folder: Path
    kills_count: int
    tell: Callable[[str], None]
    is_on_kafka: bool = False
    findings: list[str] = field(default_factory=list)
    facts: dict[str, object] = field(default_factory=dict)

    def run(self) -> None:
        kind = KafkaPeer if self.is_on_kafka else BrokerProcess
        with kind(self.folder / "data", SETTINGS) as broker, ExitStack() as ending:
            servers = broker.bootstrap_servers
            admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
            topic = NewTopic(TOPIC, PARTITIONS_COUNT, 1)
            admin.create_topics([topic])[TOPIC].result(WAIT_S)
            members = Members(self.row, servers, self.folder)
            ending.callback(members.close)
            self._consume(servers, admin, members)

    def _consume(self, servers: str, admin: AdminClient, members: Members) -> None:
        # librdkafka's administrator hangs where `__consumer_offsets` is created meanwhile.
        wait_for_coordinator(servers, TOPIC)
        writing = Writing(servers)
        self.tell("the group forms")
        begun_s = time.monotonic()
        for slot in members.slots:
            members.start(slot)
        self._settle(admin, members, begun_s, FORM_S_MAX, "to form")
        last_kill_s = self._kill(members)
        self.tell("the group settles")
        self._settle(admin, members, last_kill_s, SETTLE_S_MAX, "to settle")
        writing.stop()
        self.tell("the rest is processed")
        history = GroupHistory(ends_of(servers, TOPIC, PARTITIONS_COUNT))
        self._catch_up(admin, history)
        members.close()
        members.read(history)
        history.commits = commits_of(servers, GROUP)
        self.findings += judge(history)
        self.facts |= {**history.counts(), "clients that gave up": members.gave_up_count}

    def _kill(self, members: Members) -> float:
        """Kill and replace at the row's pace; returns when the last kill was."""
        rng = random.Random(f"{self.seed}/{self.row.name}")
        every_s = KILL_EVERY_S * self.row.per_process
        processes_count = self.kills_count // self.row.per_process
        next_s = time.monotonic()
        for number in range(processes_count):
            next_s += every_s
            members.wait_until(next_s)
            slot = rng.choice(members.slots)
            members.kill(slot)
            killed_s = time.monotonic()
            members.start(slot)
            self.tell(f"kill {number + 1} of {processes_count}")
        self.facts |= {
            "consumers killed": processes_count * self.row.per_process,
            "processes killed": processes_count,
        }
        return killed_s

    def _settle(
        self, admin: AdminClient, members: Members, since_s: float, bound_s: float, what: str
    ) -> None:
        """Wait until the living members share all partitions; `bound_s` counts from `since_s`."""
        found = "nothing was described"
        while True:
            with suppress(KafkaException):
                found = unsettled(admin, members.expected)
            took_s = time.monotonic() - since_s
            if not found:
                self.facts[f"seconds {what}"] = round(took_s, 1)
                break
            if took_s > bound_s + FORM_S_MAX:
                self.facts[f"seconds {what}"] = None
                break
            members.wait_until(time.monotonic() + LOOK_EVERY_S)
        if found or took_s > bound_s:
            self.findings.append(f"the group took {took_s:.1f} s {what}: {found or 'late'}")

    def _catch_up(self, admin: AdminClient, history: GroupHistory) -> None:
        """Wait until everything is committed; the judge tells what is not."""
        begun_s = time.monotonic()
        wanted = [ConsumerGroupTopicPartitions(GROUP)]
        while time.monotonic() - begun_s < CATCH_UP_S_MAX:
            with suppress(KafkaException):
                answer = admin.list_consumer_group_offsets(wanted)[GROUP].result(WAIT_S)
                if {p.partition: p.offset for p in answer.topic_partitions or ()} == history.ends:
                    break
            time.sleep(LOOK_EVERY_S)
        self.facts["seconds to the end"] = round(time.monotonic() - begun_s, 1)


def unsettled(admin: AdminClient, expected: set[str]) -> str:
    """What is missing until these members share all partitions; nothing when they do.

    Static members are expected by their instance ids: Apache Kafka tells the client id of the
    process that first joined with one.
    """
    group = admin.describe_consumer_groups([GROUP])[GROUP].result(WAIT_S)
    if group.state is not ConsumerGroupState.STABLE:
        return f"it is {group.state.name}"
    there = sorted(member.group_instance_id or member.client_id for member in group.members)
    if there != sorted(expected):
        return f"its members are {there}, and not {sorted(expected)}"
    owned = sorted(at.partition for m in group.members for at in m.assignment.topic_partitions)
    return "" if owned == list(range(PARTITIONS_COUNT)) else f"{owned} are assigned"


def sources() -> str:
    """A digest of what a row depends on: the broker, and this test."""
    digest = hashlib.sha256()
    paths = sorted((evidence.ROOT / "src").rglob("*.py"))
    paths += sorted(Path(__file__).parent.glob("group_*.py")) + sorted(JAVA_SOURCES.glob("*.java"))
    for path in paths:
        digest.update(str(path.relative_to(evidence.ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def kept(name: str) -> dict[str, dict[str, object]]:
    """The rows of earlier runs."""
    return dict(evidence.kept(name).get("rows", {}))


def keep(
    name: str, there_are: Sequence[Row], rows: dict[str, dict[str, object]], digest: str
) -> str:
    """Keep all rows, and write what they say together, which is returned."""
    known = {row.name: rows[row.name] for row in there_are if row.name in rows}
    broken = [name for name, row in known.items() if row["verdict"] != "passed"]
    current = [name for name, row in known.items() if row["sources"] == digest]
    verdict = "broken" if broken else "passed" if len(current) == len(there_are) else "incomplete"
    evidence.keep(name, {"rows": known})
    kills = sum(row.get("consumers killed", 0) for row in known.values())  # type: ignore[misc]
    count = f"{len(current)} of {len(there_are)} kinds of groups, {kills:,} consumers killed"
    peer = " --peer kafka" if name == NAME_ON_KAFKA else ""
    seeds = ", ".join(sorted({str(row.get("seed", "")) for row in known.values()}))
    evidence.note(name, verdict, count, f"python -m tests.support.group_kills{peer}", seed=seeds)
    return verdict


def carry_out(
    row: Row,
    seed: int,
    kills_count: int,
    digest: str,
    tell: Callable[[str], None],
    *,
    is_on_kafka: bool = False,
) -> dict[str, object]:
    """Run a row; returns what is to be kept of it."""
    begun_s = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="oncelog-groups-"))
    run = RowRun(row, seed, folder, kills_count, tell, is_on_kafka)
    try:
        run.run()
    except (KafkaException, RuntimeError, TimeoutError) as error:
        run.findings.append(f"it did not come to its end: {error!r}")
    if not run.findings:
        shutil.rmtree(folder)
    return {
        "verdict": "broken" if run.findings else "passed",
        "commit": evidence.commit(),
        "sources": digest,
        "seed": seed,
        "seconds": round(time.monotonic() - begun_s),
        **run.facts,
        "findings": run.findings,
        **({"folder": str(folder)} if run.findings else {}),
    }


def table(there_are: Sequence[Row], rows: dict[str, dict[str, object]]) -> Table:
    """The rows for a terminal."""
    columns = ("processed", "processed again", "seconds to form", "seconds to settle")
    made = Table("row", "verdict", *columns)
    for row in there_are:
        found = rows.get(row.name, {})
        colour = "green" if found.get("verdict") == "passed" else "red"
        verdict = f"[{colour}]{found['verdict']}[/{colour}]" if found else "not run"
        made.add_row(row.name, verdict, *(str(found.get(column, "")) for column in columns))
    return made


def rows_here(console: Console) -> list[Row]:
    """The rows whose client can be had."""
    try:
        jars()
        compiled("Members", JAVA_SOURCES)
    except PeerUnavailable as reason:
        console.print(f"[yellow]no Java consumers[/yellow]: {reason}")
        return [row for row in ROWS if row.client != JAVA]
    return list(ROWS)


def main() -> int:
    """Exit code 0 if every row that was run, now or before on these sources, passed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="rows whose name has this in it")
    parser.add_argument("--again", action="store_true", help="also rows that are kept")
    parser.add_argument("--kills", type=int, default=KILLS_COUNT)
    parser.add_argument("--peer", choices=["kafka"], help="start Apache Kafka and test that")
    parser.add_argument("--list", action="store_true", help="list the rows and end")
    given = parser.parse_args()
    # The table needs room where no terminal says how much there is.
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    is_on_kafka = given.peer is not None
    name, there_are = (NAME_ON_KAFKA, ROWS_ON_KAFKA) if is_on_kafka else (NAME, ROWS)
    rows, digest, is_trial = kept(name), sources(), given.kills != KILLS_COUNT
    if given.list:
        console.print(table(there_are, rows))
        return 0
    chosen = [
        row
        for row in rows_here(console)
        if row in there_are
        and given.only in row.name
        and (given.again or is_trial or rows.get(row.name, {}).get("sources") != digest)
    ]
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    # Ended by SIGTERM as by Ctrl-C: no process is left behind.
    with campaigns.interruptible(), Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=len(chosen))
        for row in chosen:

            def tell(text: str, row_name: str = row.name) -> None:
                progress.update(task, description=f"{row_name}: {text}")

            rows[row.name] = carry_out(
                row, given.seed, given.kills, digest, tell, is_on_kafka=is_on_kafka
            )
            if not is_trial:
                keep(name, there_are, rows, digest)
            progress.advance(task)
    console.print(table(there_are, rows))
    for row in chosen:
        for finding in rows[row.name]["findings"]:  # type: ignore[attr-defined]
            console.print(f"[red]{row.name}[/red]: {finding}")
    named = {row.name for row in chosen}
    seen = [row for name, row in rows.items() if name in named or row["sources"] == digest]
    return 0 if all(row["verdict"] == "passed" for row in seen) else 1


if __name__ == "__main__":
    sys.exit(main())
