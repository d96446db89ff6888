"""What compiling brings: ``python -m bench.ways``, after `make compiled`.

Interpreted and compiled in turn, so that other work on the machine meets both: the broker's CPU
time for a Produce of one record and for a transaction of one record by the newer protocol (TV2),
asked one after the other by a client that writes prepared bytes; CPU time of simulated runs, whose
hashes must agree; and the CPU time of a start.
"""

import argparse
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from oncelog.core.integers import integers
from oncelog.protocol.api import ApiKey
from oncelog.protocol.codec import encode_request
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.protocol.messages.end_txn import EndTxnRequest
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog.protocol.produce import encode_produce_request
from oncelog.protocol.record import Record, build_batch

__all__ = ["WAYS", "environment", "main"]

WAYS = ("interpreted", "compiled")
ROUNDS = 5
WARM_UP = 5
TURNS = 100
TURN = 25
SEEDS = (101, 102, 103)
TOPIC = "ways"
SIMULATE = """
import sys, time
from oncelog.simulation.draw import draw_plan
from oncelog.simulation.roles import ROLES
from oncelog.simulation.run import execute
execute(draw_plan(0), ROLES)
for seed in sys.argv[1:]:
    began = time.process_time()
    result = execute(draw_plan(int(seed), None, 30.0), ROLES)
    print(time.process_time() - began, result.digest)
"""
_PRODUCER = integers(">hqh")


def environment(way: str) -> dict[str, str]:
    """In which a process runs that way."""
    return os.environ | {"ONCELOG_COMPILED": "1" if way == "compiled" else "0"}


class Broker:
    """A broker in a process of its own, and one connection to it."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self._pid = process.pid
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self._socket.makefile("rb")

    def ask(self, frame: bytes) -> bytes:
        """The reply to a request, both without their size."""
        self._socket.sendall(len(frame).to_bytes(4, "big") + frame)
        return self._reader.read(int.from_bytes(self._reader.read(4), "big"))

    def cpu_s(self) -> float:
        """CPU seconds that its threads have used (Linux, to the nanosecond)."""
        tasks = Path(f"/proc/{self._pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def close(self) -> None:
        """End the connection."""
        self._reader.close()
        self._socket.close()


@contextmanager
def broker(way: str) -> Iterator[Broker]:
    """A fresh broker with one topic, run that way."""
    with tempfile.TemporaryDirectory(prefix="oncelog-ways-") as folder:
        command = [sys.executable, "-m", "oncelog", "serve", "--data-dir", folder]
        with subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0"],
            env=environment(way),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            if f", {way})" not in line:
                process.terminate()
                raise RuntimeError(f"it does not run {way}: {line.strip()}; run make compiled")
            found = Broker(process, int(line.split("127.0.0.1:")[1].split()[0]))
            topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
            request = CreateTopicsRequest(topics=(topic,), timeout_ms=10_000)
            found.ask(encode_request(ApiKey.CREATE_TOPICS, 7, 1, "ways", request))
            try:
                yield found
            finally:
                found.close()
                process.terminate()


def _produce(producer: tuple[int, int] | None, sequence: int) -> bytes:
    transactional_id = None if producer is None else TOPIC
    producer_id, epoch = producer or (-1, -1)
    batch = build_batch(
        [Record(0, 1_700_000_000_000, None, bytes(100))],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=producer is not None,
    )
    topic = (TOPIC, None, [(0, bytes(batch))])
    pieces = encode_produce_request(
        12, 1, "ways", transactional_id=transactional_id, acks=-1, timeout_ms=30_000, topics=[topic]
    )
    return b"".join(pieces)


class Produces:
    """A Produce of one record of 100 bytes, again and again."""

    def __init__(self, asked: Broker) -> None:
        self._asked = asked
        self._frame = _produce(None, -1)

    def once(self) -> None:
        """One request."""
        self._asked.ask(self._frame)


class Transactions:
    """A transaction: a Produce that adds its partition (TV2), and EndTxn."""

    def __init__(self, asked: Broker) -> None:
        self._asked = asked
        find = FindCoordinatorRequest(key_type=1, coordinator_keys=(TOPIC,))
        asked.ask(encode_request(ApiKey.FIND_COORDINATOR, 4, 1, "ways", find))
        start = InitProducerIdRequest(transactional_id=TOPIC, transaction_timeout_ms=60_000)
        init = encode_request(ApiKey.INIT_PRODUCER_ID, 4, 1, "ways", start)
        self._producer = self._identity(asked.ask(init))

    def once(self) -> None:
        """One transaction."""
        self._asked.ask(_produce(self._producer, 0))
        producer_id, epoch = self._producer
        end = EndTxnRequest(
            transactional_id=TOPIC, producer_id=producer_id, producer_epoch=epoch, committed=True
        )
        reply = self._asked.ask(encode_request(ApiKey.END_TXN, 5, 1, "ways", end))
        self._producer = self._identity(reply)

    @staticmethod
    def _identity(reply: bytes) -> tuple[int, int]:
        error, producer_id, epoch = _PRODUCER.unpack_from(reply, 9)
        if error:
            raise RuntimeError(f"the coordinator answered {error}")
        return producer_id, epoch


def in_turn(load: type[Produces | Transactions]) -> dict[str, float]:
    """Microseconds of CPU for one: both brokers run, and are asked a few times each in turn.

    The tenth percentile of all turns, because other work only ever adds to a turn.
    """
    spent: dict[str, list[float]] = {way: [] for way in WAYS}
    with ExitStack() as exits:
        brokers = {way: exits.enter_context(broker(way)) for way in WAYS}
        loads = {way: load(asked) for way, asked in brokers.items()}
        for turn in range(WARM_UP + TURNS):
            for way, asked in brokers.items():
                before = asked.cpu_s()
                for _ in range(TURN):
                    loads[way].once()
                if turn >= WARM_UP:
                    spent[way].append((asked.cpu_s() - before) / TURN * 1e6)
    return {way: statistics.quantiles(turns, n=10)[0] for way, turns in spent.items()}


def _child_cpu_s(way: str, *arguments: str) -> tuple[float, str]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment(way),
        capture_output=True,
        text=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, done.stdout


def simulated(way: str) -> tuple[float, list[str]]:
    """(CPU milliseconds of a simulated run, the hashes)."""
    _, out = _child_cpu_s(way, "-c", SIMULATE, *map(str, SEEDS))
    lines = [line.split() for line in out.splitlines()]
    return 1000 * statistics.mean(float(line[0]) for line in lines), [line[1] for line in lines]


def main() -> int:
    """Print medians, and the range behind them. Exit code 1 where hashes differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    hashes: set[tuple[str, ...]] = set()
    for _ in range(rounds):
        produce, transaction = in_turn(Produces), in_turn(Transactions)
        for way in WAYS:
            found["Produce of one record, us"][way].append(produce[way])
            found["transaction of one record (TV2), us"][way].append(transaction[way])
            cost_ms, seen = simulated(way)
            found["simulated run, ms"][way].append(cost_ms)
            hashes.add(tuple(seen))
            spent, _ = _child_cpu_s(way, "-c", "import oncelog.broker.broker")
            found["import of the broker, ms"][way].append(1000 * spent)
    table = Table("CPU time", *WAYS, "ratio")
    for name, by_way in found.items():
        cells = [
            f"{statistics.median(by_way[way]):.1f} ({min(by_way[way]):.1f} to "
            f"{max(by_way[way]):.1f})"
            for way in WAYS
        ]
        interpreted, compiled = (statistics.median(by_way[way]) for way in WAYS)
        table.add_row(name, *cells, f"{compiled / interpreted:.2f}")
    console = Console(width=110)
    console.print(table)
    console.print(f"hashes of the simulated runs: {'equal' if len(hashes) == 1 else 'DIFFERENT'}")
    return 0 if len(hashes) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
