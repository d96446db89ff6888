"""`python -m bench.profile LOAD ...`: where the broker's CPU time goes, by stage.

The broker of this checkout runs under cProfile with the thread's CPU time as its clock, so waiting
counts for nothing. The profiler itself costs as much again where functions are small: the shares
say where the time goes, not how long it takes; `CPU us` is measured in a second run without it.
"""

import argparse
import cProfile
import os
import pstats
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from rich.console import Console
from rich.table import Table

from bench import work
from bench.loads import BIG, SMALL
from bench.systems import NO_CLIENT_SETTINGS
from tests.support.peer.child import free_port, wait_ready
from tests.support.peer.kafka import ROOT

SETTLE_S = 1.5

STAGES = (
    ("connection", ("/connection.py", "/server.py")),
    ("request header, dispatch", ("/dispatch.py", "protocol/headers.py", "protocol/api.py")),
    ("codec of Produce and Fetch", ("protocol/produce.py", "protocol/fetch", "protocol/wire.py")),
    ("other messages", ("protocol/", "kio/", "dataclasses.py", "<reader of ", "<writer of ")),
    ("handlers", ("broker/apis", "/verification.py")),
    ("partition, high watermark, waiting", ("broker/", "replication/")),
    ("producer state", ("storage/producer_state.py", "storage/replay.py")),
    ("log, segment, indexes", ("storage/",)),
    ("coordinator's shard", ("coordinator/",)),
    ("transaction and group machines", ("transaction/", "group/")),
)
BATCH_FILES = ("protocol/batch.py", "storage/validation.py", "storage/placement.py")
COORDINATOR_FILES = ("broker/coordination",)
RECORD_FILES = ("protocol/record.py", "protocol/records/")
CALLS = {"pwrite": "file: write", "pread": "file: read", "crc32c": "CRC-32C"}


def stage_of(file: str, function: str) -> str:
    """The stage that a Python function belongs to."""
    place = file.rpartition("oncelog/")[2] if "/oncelog/" in file else file
    if place.endswith("/connection.py") and function == "_flush":
        return "socket: write"
    for stage, files in (
        ("batch header and checks", BATCH_FILES),
        ("coordinator's shard", COORDINATOR_FILES),
        ("coordinator's records", RECORD_FILES),
        *STAGES,
    ):
        if any(part in place for part in files):
            return stage
    return "everything else"


def shares(stats: pstats.Stats) -> Counter[str]:
    """CPU seconds by stage; a built-in function counts for its caller."""
    found: Counter[str] = Counter()
    for (file, _, function), (_, _, own_s, _, callers) in stats.stats.items():  # type: ignore[attr-defined]
        if file != "~":
            found[stage_of(file, function)] += own_s
            continue
        named = next((stage for name, stage in CALLS.items() if name in function), None)
        if named is not None or not callers:
            found[named or "everything else"] += own_s
            continue
        for (caller_file, _, caller), (_, _, called_s, _) in callers.items():
            found[stage_of(caller_file, caller)] += called_s
    return found


class Broker:
    """A broker of this checkout in a process of its own; `profile` is where its profile goes."""

    name = "oncelog"
    client_settings = NO_CLIENT_SETTINGS

    def __init__(self, folder: Path, profile: Path | None) -> None:
        self.folder = folder
        self.port = free_port()
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
        arguments = ["serve", "--data-dir", str(folder), "--listen", self.bootstrap_servers]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        if profile is not None:
            environment["ONCELOG_BENCH_PROFILE"] = str(profile)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.profile", "--as-broker", *arguments],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.pid = self.process.pid
        wait_ready(self.port, self.process, 60)
        time.sleep(SETTLE_S)

    def cpu_seconds(self) -> float:
        """CPU time of all threads, to the nanosecond."""
        times = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(file.read_text().split()[0]) for file in times) / 1e9

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        time.sleep(0.3)

    def start(self) -> float:
        return 0.0

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)


def serve() -> None:
    """The child: `oncelog serve`, profiled between SIGUSR1 and SIGUSR2 if a file is named."""
    from oncelog.broker.broker import Broker as Served
    from oncelog.cli.main import main as oncelog

    target = os.environ.get("ONCELOG_BENCH_PROFILE")
    if target is not None:
        profile = cProfile.Profile(time.thread_time)
        start = Served.start

        def dump() -> None:
            profile.disable()
            profile.dump_stats(target)

        async def profiled(self: Served) -> None:
            import asyncio

            await start(self)
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGUSR1, profile.enable)
            loop.add_signal_handler(signal.SIGUSR2, dump)

        Served.start = profiled  # type: ignore[method-assign]
    sys.argv = ["oncelog", *sys.argv[2:]]
    oncelog()


Prepared = tuple[Callable[[], object], int]
"""One unit of work, and how many requests or megabytes it stands for."""


def small_batches(broker: Broker) -> Prepared:
    client = work.producer(broker, **dict(SMALL))
    topic = work.fresh_topic(broker)
    return lambda: work.fill(client, topic, bytes(1000), 50_000), 3125


def large_batches(broker: Broker) -> Prepared:
    client = work.producer(broker, **dict(BIG))
    topic = work.fresh_topic(broker)
    return lambda: work.fill(client, topic, bytes(1000), 100_000), 100


def one_record(broker: Broker) -> Prepared:
    client = work.producer(broker, **{"linger.ms": 0})
    topic = work.fresh_topic(broker)

    def one() -> None:
        for _ in range(1000):
            client.produce(topic, bytes(100), partition=0)
            client.flush(work.TIMEOUT_S)

    return one, 1000


def transactions(broker: Broker) -> Prepared:
    topic = work.fresh_topic(broker)
    client = work.producer(broker, **{"transactional.id": topic, "linger.ms": 0})
    client.init_transactions(work.TIMEOUT_S)

    def one() -> None:
        for _ in range(300):
            client.begin_transaction()
            client.produce(topic, bytes(100), partition=0)
            client.commit_transaction(work.TIMEOUT_S)

    return one, 300


def consume(broker: Broker) -> Prepared:
    topic = work.fresh_topic(broker)
    work.fill(work.producer(broker, **dict(BIG)), topic, bytes(1000), 100_000)
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "bench", "log_level": 0}

    def one() -> None:
        client = Consumer({**settings, **work.NEVER_POSTPONED, "enable.auto.commit": False})
        client.assign([TopicPartition(topic, n, 0) for n in range(work.PARTITIONS)])
        seen = 0
        while seen < 100_000:
            seen += len(client.consume(10_000, 1.0))
        client.close()

    return one, 100


LOADS: dict[str, tuple[str, Callable[[Broker], Prepared]]] = {
    "small": ("16 KB request", small_batches),
    "large": ("MB in 1 MB requests", large_batches),
    "latency": ("request of one record", one_record),
    "transactions": ("transaction of one record", transactions),
    "consume": ("MB fetched", consume),
}


def measure(key: str, profile: Path | None, units: int = 4) -> float:
    """Run one load; returns the broker's CPU microseconds per piece of work."""
    folder = Path(tempfile.mkdtemp(prefix="oncelog-profile-"))
    broker = Broker(folder / "data", profile)
    try:
        unit, count = LOADS[key][1](broker)
        unit()
        if profile is not None:
            broker.signal(signal.SIGUSR1)
        before = broker.cpu_seconds()
        for _ in range(units):
            unit()
        used = broker.cpu_seconds() - before
        if profile is not None:
            broker.signal(signal.SIGUSR2)
        return used / (units * count) * 1e6
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loads", nargs="*", help=", ".join(LOADS) + "; all without any")
    arguments = parser.parse_args()
    unknown = set(arguments.loads) - set(LOADS)
    if unknown:
        parser.error(f"no such load: {', '.join(sorted(unknown))}")
    console = Console()
    for key in arguments.loads or LOADS:
        with tempfile.NamedTemporaryFile(suffix=".prof") as file:
            measure(key, Path(file.name))
            found = shares(pstats.Stats(file.name))
        used_us = measure(key, None)
        total = sum(found.values())
        table = Table(title=f"{LOADS[key][0]}: {used_us:,.0f} CPU us without the profiler")
        table.add_column("stage")
        table.add_column("share", justify="right")
        for stage, seconds in found.most_common():
            table.add_row(stage, f"{seconds / total:.1%}")
        console.print(table)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--as-broker"]:
        serve()
    else:
        sys.exit(main())
