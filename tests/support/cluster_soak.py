"""`make soak`: three brokers and their store under faults, and whether anything came of it.

Producers of librdkafka and of the Java client (idempotent, acks=all) and a consumer of each run
while brokers and ZooKeeper are killed, stopped by signals and cut off, as the seed says. In the end
each record that was acknowledged has to be in each replica's files and have been read by each
consumer: once, at its offset, in the order in which it was sent. No election may be unclean, and a
leader's death costs a producer no more than `death_bound_s`, besides what its survivors waited for
a processor that other work of the machine had.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.support import evidence
from tests.support.broker_processes import Brokers
from tests.support.checker import History, Seen, check
from tests.support.cluster_faults import KILL, ON_BOTH, ON_ZOOKEEPER, Fault, Striker, Struck, draw
from tests.support.cluster_load import (
    Acknowledged,
    JavaClients,
    Reader,
    TimedWriter,
    ends_of,
    longest_gap_s,
    merged,
)
from tests.support.peer.kafka import PeerUnavailable, jars
from tests.support.replica_logs import read_replica
from tests.support.workload import IDEMPOTENT_TOPIC, PARTITION_COUNT
from tests.support.zookeeper import ZooKeeperServer, one_server

SQLITE, ZOOKEEPER = "sqlite", "zookeeper"
SECONDS = 300.0
"""On each store: ten minutes in all."""
SESSION_MS = 3_000
CLIENT_SPARE_MS = 1_000
"""A client waits for an answer as long as a session lasts, and so much longer."""
SQLITE_DEATH_S = 3.0
ZOOKEEPER_DEATH_S = 2.0
"""Besides the session's timeout."""
JOIN_TIMEOUT_S = 90.0
FINDINGS_SHOWN_MAX = 20
FAULTS_FILE = "faults.txt"
UNCLEAN = re.compile(r"unclean election|led by the longest log")
FAILURE = re.compile(r" (ERROR|CRITICAL) (?!oncelog.broker.membership.store_health)|^Traceback")
"""That the store is away is said as an error, and a fault."""
_chroots = count(1)


@dataclass
class Report:
    """What a run did, and what was wrong with it."""

    struck: list[Struck] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)


def settings(session_ms: int) -> dict[str, object]:
    """The settings of all brokers."""
    return {
        "default.replication.factor": 3,
        "min.insync.replicas": 2,
        "broker.session.timeout.ms": session_ms,
        "zookeeper.session.timeout.ms": session_ms,
        "replica.lag.time.max.ms": session_ms * 2 // 3,
        "offsets.topic.num.partitions": 3,
        "offsets.topic.replication.factor": 3,
        "group.initial.rebalance.delay.ms": 0,
    }


def death_bound_s(store: str, session_ms: int) -> float:
    """How long a producer may wait when the leader of its partition has died."""
    return SQLITE_DEATH_S if store == SQLITE else session_ms / 1000 + ZOOKEEPER_DEATH_S


def run(
    store: str,
    folder: Path,
    faults: Iterable[Fault],
    *,
    session_ms: int = SESSION_MS,
    has_java: bool = True,
    seed: int = 1,
    zookeeper: ZooKeeperServer | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Report:
    """Do all faults to a cluster under load, then judge. Without a ZooKeeper one is started."""
    report = Report()
    with ExitStack() as exits:
        if store == ZOOKEEPER and zookeeper is None:
            zookeeper = exits.enter_context(one_server())
        chroot = f"/oncelog/soak-{next(_chroots)}"
        at = None if zookeeper is None else (zookeeper.port, chroot)
        brokers = exits.enter_context(Brokers(folder, settings(session_ms), at))
        brokers.create_topic(IDEMPOTENT_TOPIC, PARTITION_COUNT)
        timeout_ms = session_ms + CLIENT_SPARE_MS
        load = Load(brokers.servers, folder, seed, timeout_ms, has_java=has_java)
        exits.callback(load.kill)
        load.wait_begun()
        striker = Striker(brokers, zookeeper, load.pids(), report.findings)
        for fault in faults:
            tell(f"fault {len(striker.struck) + 1}: {fault.kind}")
            striker.strike(fault)
        tell("reading to the end")
        load.end(report.findings)
        brokers.until(lambda: brokers.is_whole(IDEMPOTENT_TOPIC), JOIN_TIMEOUT_S)
    tell("judging")
    data = {i: process.folder for i, process in brokers.processes.items()}
    replicas = {
        f"the log of broker {broker_id}": read_replica(path, IDEMPOTENT_TOPIC, PARTITION_COUNT)
        for broker_id, path in data.items()
    }
    report.findings += judge(load.history(), load.seen(), replicas)
    report.findings += said_in(process.log_path for process in brokers.processes.values())
    report.struck = striker.struck
    judge_gaps(report, load.acknowledged(), death_bound_s(store, session_ms))
    write_faults(folder / FAULTS_FILE, report.struck)
    report.counts = {
        "faults": len(striker.struck),
        **{f"acknowledged to {who}": len(each) for who, each in load.acknowledged().items()},
        "records in each log": len(next(iter(replicas.values()))),
    }
    return report


class Load:
    """All producers and consumers of a run."""

    def __init__(
        self, servers: str, folder: Path, seed: int, timeout_ms: int, *, has_java: bool
    ) -> None:
        self._servers = servers
        self._stop = threading.Event()
        writer = TimedWriter(servers, "librdkafka", seed, self._stop)
        self._writer = writer.answers_within(timeout_ms)
        self._reader = Reader(servers, timeout_ms)
        self._java = JavaClients(servers, folder, timeout_ms) if has_java else None
        self._writer.thread.start()
        self._reader.thread.start()

    def wait_begun(self) -> None:
        """Return once every producer has had an acknowledgement."""
        if self._java is not None:
            self._java.wait_begun()

    def pids(self) -> list[int]:
        """The processes of all clients."""
        return [os.getpid(), *([] if self._java is None else [self._java.pid])]

    def end(self, findings: list[str]) -> None:
        """Have the producers end, and the consumers read all that there is."""
        self._stop.set()
        self._writer.thread.join(JOIN_TIMEOUT_S)
        if self._writer.thread.is_alive():
            findings.append(f"the librdkafka producer did not end within {JOIN_TIMEOUT_S:g} s")
        if self._java is not None:
            self._java.stop_producing()
            self._java.read_to_the_end()
            findings += self._java.problems
        self._reader.read_to(ends_of(self._servers))
        findings += [*self._writer.problems, *self._reader.problems]

    def kill(self) -> None:
        """End what still runs."""
        self._stop.set()
        if self._java is not None:
            self._java.kill()

    def history(self) -> History:
        """What all producers did."""
        java = [] if self._java is None else [self._java.history]
        return merged([self._writer.history, *java])

    def seen(self) -> dict[str, list[Seen]]:
        """What each consumer saw."""
        java = {} if self._java is None else {self._java.name: self._java.seen}
        return {self._reader.name: self._reader.seen, **java}

    def acknowledged(self) -> dict[str, list[Acknowledged]]:
        """When each producer's records were acknowledged."""
        java = {} if self._java is None else {"Java": self._java.acknowledged}
        return {"librdkafka": self._writer.acknowledged, **java}


def judge(
    history: History, readers: Mapping[str, list[Seen]], replicas: Mapping[str, list[Seen]]
) -> list[str]:
    """What is wrong with what consumers saw and replicas hold."""
    findings = []
    for who, seen in {**readers, **replicas}.items():
        anomalies = check(history, seen)
        findings += [
            f"{who}: {each.kind}: {each.detail}" for each in anomalies[:FINDINGS_SHOWN_MAX]
        ]
    (first, wanted), *others = replicas.items()
    for who, held in others:
        if held != wanted:
            differ = sorted(set(held) ^ set(wanted), key=lambda s: (s.partition, s.offset))
            findings.append(f"{who} differs from {first}: {differ[:3]}")
    return findings


def judge_gaps(report: Report, acked: Mapping[str, list[Acknowledged]], bound_s: float) -> None:
    """Take the longest times without an acknowledgement; a leader's death has a bound."""
    for struck in report.struck:
        for who, times in acked.items():
            for partition in struck.led or range(PARTITION_COUNT):
                gap_s = longest_gap_s(times, partition, struck.at_s, struck.whole_s)
                struck.gap_s = max(struck.gap_s, gap_s)
                if struck.kind == KILL and gap_s > bound_s + struck.cpu_wait_s:
                    report.findings.append(
                        f"{who} waited {gap_s:.1f} s at partition {partition} when its leader was "
                        f"killed; {bound_s:g} s are allowed, and {struck.cpu_wait_s:.1f} s for "
                        "processors that others had"
                    )


def said_in(logs: Iterable[Path]) -> Iterator[str]:
    """The lines in the brokers' logs that must not be there."""
    for path in logs:
        for line in path.read_text(errors="replace").splitlines():
            if UNCLEAN.search(line) or FAILURE.search(line):
                yield f"{path.name}: {line[:300]}"


def write_faults(path: Path, struck: Iterable[Struck]) -> None:
    """Note when each fault was, by the clock of the brokers' logs, and what it cost."""
    offset_s = time.time() - time.monotonic()
    with path.open("w") as file:
        for each in struck:
            begun = datetime.fromtimestamp(each.at_s + offset_s, UTC).strftime("%H:%M:%S.%f")[:-3]
            what = f"{each.kind} of {each.victims}, leaders of {each.led}"
            costs = f"gap {each.gap_s:.1f} s, healed after {each.healed_s - each.at_s:.1f} s, "
            costs += f"whole after {each.whole_s - each.at_s:.1f} s"
            file.write(f"{begun} {what}: {costs}, waits for a processor {each.cpu_wait_s:.1f} s\n")


def until_over(faults: Iterator[Fault], seconds: float) -> Iterator[Fault]:
    """The faults that begin within so many seconds."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        yield next(faults)


def show(console: Console, report: Report) -> None:
    """One table of the faults, then the counts and each finding."""
    table = Table("fault", "count", "longest gap", "until whole", "waits for a processor")
    for kind in sorted({each.kind for each in report.struck}):
        these = [each for each in report.struck if each.kind == kind]
        costs = [(each.gap_s, each.whole_s - each.at_s, each.cpu_wait_s) for each in these]
        longest = [f"{max(cost):.1f} s" for cost in zip(*costs, strict=True)]
        table.add_row(kind, str(len(these)), *longest)
    console.print(table)
    console.print(", ".join(f"{what}: {number:,}" for what, number in report.counts.items()))
    ready = [each.ready_after_s for each in report.struck if each.ready_after_s is not None]
    if ready:
        console.print(f"ready {max(ready):.1f} s after the start of all brokers, at most")
    for finding in report.findings[:FINDINGS_SHOWN_MAX]:
        console.print(f"[red]finding[/red] {finding}", highlight=False)
    verdict = f"[red]{len(report.findings)} findings[/red]" if report.findings else "exact"
    console.print(verdict)


def java_here(console: Console) -> bool:
    """Whether the Java client can be had."""
    try:
        jars()
    except PeerUnavailable as reason:
        console.print(f"[yellow]without the Java client[/yellow]: {reason}")
        return False
    return True


def main() -> int:
    """Exit code 0 only when nothing was wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--store", choices=[SQLITE, ZOOKEEPER], default=SQLITE)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--seed", type=int, default=1)
    kinds = sorted({*ON_BOTH, *ON_ZOOKEEPER})
    parser.add_argument("--only", choices=kinds, default="", help="faults of this kind alone")
    given = parser.parse_args()
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="oncelog-cluster-soak-"))
    how = f"--store {given.store} --seconds {given.seconds:g} --seed {given.seed}"
    console.print(f"{how}, data in {folder}")
    is_on_zookeeper = given.store == ZOOKEEPER
    drawn = draw(given.seed, is_on_zookeeper, SESSION_MS / 1000, PARTITION_COUNT, given.only)
    with console.status("starting") as status:
        report = run(
            given.store,
            folder,
            until_over(drawn, given.seconds),
            has_java=java_here(console),
            seed=given.seed,
            tell=status.update,
        )
    show(console, report)
    if given.seconds >= SECONDS and not given.only:
        verdict = "not exact" if report.findings else "exact"
        taken = sum(n for what, n in report.counts.items() if what.startswith("acknowledged"))
        what = f"{given.seconds:g} s, {report.counts['faults']} faults, {taken:,} records"
        command = f"python -m tests.support.cluster_soak {how}"
        evidence.note(f"cluster soak, {given.store}", verdict, what, command, seed=given.seed)
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
