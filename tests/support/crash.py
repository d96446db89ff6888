"""The crash run: load from `workload`, a broker killed again and again, the checker's verdict."""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from tests.support.checker import Anomaly, Outcome, check, check_copy, check_isolation
from tests.support.copier import Copier
from tests.support.workload import (
    COPY_TOPIC,
    IDEMPOTENT_TOPIC,
    TRANSACTIONAL_TOPIC,
    IdempotentWriter,
    TransactionalWriter,
    Writer,
    committed_offsets,
    create_topics,
    read_all,
    read_values,
)

JOIN_TIMEOUT_S = 150


class Killable(Protocol):
    """A broker that can be killed and started again on the same folder and port."""

    @property
    def bootstrap_servers(self) -> str: ...

    def start(self) -> object: ...

    def kill(self) -> None: ...


@dataclass
class CrashReport:
    """What a run did and what was wrong with it."""

    counts: dict[str, int] = field(default_factory=dict)
    anomalies: list[Anomaly] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def exact(self) -> bool:
        return not self.anomalies and not self.problems


def run(
    broker: Killable,
    seed: int,
    duration_s: float,
    kill_every_s: tuple[float, float],
    on_progress: Callable[[str], None] = lambda line: None,
) -> CrashReport:
    """Load a started broker for `duration_s`, with a SIGKILL at random intervals, then judge."""
    rng = random.Random(seed)
    stop = threading.Event()
    servers = broker.bootstrap_servers
    create_topics(servers)
    writers: list[Writer] = [
        IdempotentWriter(servers, "idem-0", seed, stop),
        IdempotentWriter(servers, "idem-1", seed, stop),
        TransactionalWriter(servers, "txn-0", seed, stop),
        TransactionalWriter(servers, "txn-1", seed, stop),
        Copier(servers, "copier", seed, stop),
    ]
    for writer in writers:
        writer.thread.start()
    kills = kill_repeatedly(broker, rng, duration_s, kill_every_s, on_progress)
    stop.set()
    report = CrashReport({"kills": kills})
    for writer in writers:
        writer.thread.join(JOIN_TIMEOUT_S)
        if writer.thread.is_alive():
            report.problems.append(f"{writer.name} did not end within {JOIN_TIMEOUT_S} s")
        report.problems += writer.problems
    on_progress("reading everything back")
    judge(servers, writers, report)
    return report


def kill_repeatedly(
    broker: Killable,
    rng: random.Random,
    duration_s: float,
    kill_every_s: tuple[float, float],
    on_progress: Callable[[str], None],
) -> int:
    """SIGKILL and restart until the time is over; returns how often."""
    end = time.monotonic() + duration_s
    kills = 0
    while True:
        wait_s = rng.uniform(*kill_every_s)
        if time.monotonic() + wait_s > end:
            time.sleep(max(0.0, end - time.monotonic()))
            return kills
        time.sleep(wait_s)
        broker.kill()
        kills += 1
        broker.start()
        on_progress(f"kill {kills}, {max(0, end - time.monotonic()):.0f} s to go")


def judge(servers: str, writers: list[Writer], report: CrashReport) -> None:
    """Read all topics at both isolation levels and fill the report."""
    plain = read_values(servers, IDEMPOTENT_TOPIC, "read_committed")
    committed = read_values(servers, TRANSACTIONAL_TOPIC, "read_committed")
    uncommitted = read_values(servers, TRANSACTIONAL_TOPIC, "read_uncommitted")
    for kind, seen in ((IdempotentWriter, plain), (TransactionalWriter, committed)):
        for writer in writers:
            if type(writer) is kind:
                mine = [record for record in seen if record.value.stream == writer.name]
                report.anomalies += check(writer.history, mine)
    report.anomalies += check_isolation(committed, uncommitted)
    copies = read_all(servers, COPY_TOPIC, "read_committed")
    copied = [tuple(int(part) for part in value.split(b":")) for _, _, value in copies]
    inputs = [(record.partition, record.offset) for record in plain]
    offsets = committed_offsets(servers)
    report.anomalies += check_copy(inputs, copied, offsets)  # type: ignore[arg-type]
    outcomes = [outcome for writer in writers for outcome in writer.history.outcomes.values()]
    report.counts |= {
        "idempotent records acknowledged": sum(
            len(w.history.acked) for w in writers if type(w) is IdempotentWriter
        ),
        "idempotent records read": len(plain),
        "transactions committed": outcomes.count(Outcome.COMMITTED),
        "transactions aborted": outcomes.count(Outcome.ABORTED),
        "transactions in doubt": outcomes.count(Outcome.UNKNOWN),
        "fatal errors of transactional clients": sum(len(w.fatal_errors) for w in writers),
        "transactional records read committed": len(committed),
        "transactional records read uncommitted": len(uncommitted),
        "records copied": len(copied),
    }
