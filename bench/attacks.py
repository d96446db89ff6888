"""`python -m bench.attacks`: what other clients see of those who do not get in.

A broker of these sources, and Apache Kafka after it, with SASL over TLS, serves one producer, which
sends a record of 100 bytes and waits for its acknowledgement, again and again. Windows at rest and
windows under attack take turns; a process of its own attacks, with the least priority on this
machine, since it would come from another one. Both are warm: they have seen both kinds of window
before. The producer's p50 and p99 are medians over the rounds.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from confluent_kafka import KafkaError, Message, Producer
from rich.console import Console
from rich.table import Table

from bench.loads import VALUE, WINDOW_S
from bench.stats import Figures, percentiles
from bench.systems import Endpoint, FromSources
from bench.tls import Listener, TlsKafka
from bench.work import connected_to, flush, fresh_topic, timed_for
from oncelog.runtime.open_files import raise_limit

ROUNDS = 5
WARM_ROUNDS = 2
WORDS = ("attack", "system", "figure")
"""Columns that hold no numbers."""
HALF_OPEN_COUNT = 1_000
GUESSES_AT_ONCE = 50
TRUNCATED_AT_ONCE = 20
ATTACK_BEGINS_S = 2.0
"""Until the connections of an attack are there."""
LEAST_PRIORITY = 19
CLIENT_HELLO = b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(range(200))
"""The beginning of one: it is never whole."""
USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="right";'
TRUSTING = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
TRUSTING.check_hostname, TRUSTING.verify_mode = False, ssl.CERT_NONE


LOGIN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "right",
}


class Broker(FromSources):
    """Ours."""

    name = "Oncelog"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._tls = Listener(folder, super().bootstrap_servers)
        self.settings |= self._tls.settings | {
            "listeners": self._tls.names.replace("SSL://", "IN://"),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,IN:SASL_SSL",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.in.plain.sasl.jaas.config": USERS,
        }
        self.client_settings = {**self._tls.client_settings, **LOGIN}

    @property
    def bootstrap_servers(self) -> str:
        return self._tls.address


class ApacheKafka(TlsKafka):
    """Apache Kafka."""

    name = "Apache Kafka"
    protocol = LOGIN["security.protocol"]

    def prepare(self) -> None:
        """Write the configuration, with SASL at the listener with TLS."""
        self.settings |= {
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.ssl.plain.sasl.jaas.config": USERS,
        }
        super().prepare()
        self.client_settings = {**self.client_settings, **LOGIN}


async def half_open(host: str, port: int) -> None:
    """A connection that begins TLS and says no more, until the broker ends it."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(CLIENT_HELLO)
    await reader.read()
    writer.close()


async def guess(host: str, port: int) -> None:
    """A wrong password of PLAIN: SaslHandshake and SaslAuthenticate, both v0."""
    reader, writer = await asyncio.open_connection(host, port, ssl=TRUSTING)
    for frame in (
        b"\0\x11\0\x01\0\0\0\x01\xff\xff\0\x05PLAIN",
        b"\0\x24\0\0\0\0\0\x02\xff\xff\0\0\0\x0c\0alice\0wrong",
    ):
        writer.write(len(frame).to_bytes(4, "big") + frame)
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    await reader.read()
    writer.close()


async def truncated(host: str, port: int) -> None:
    """A record of TLS that ends in its middle, with the connection."""
    _, writer = await asyncio.open_connection(host, port)
    writer.write(CLIENT_HELLO[: 6 + os.getpid() % 90])
    await writer.drain()
    writer.close()


Row = tuple[str, ...]
Attack = Callable[[str, int], Awaitable[None]]
ATTACKS: dict[str, tuple[Attack, int]] = {
    "half-open handshakes": (half_open, HALF_OPEN_COUNT),
    "wrong passwords": (guess, GUESSES_AT_ONCE),
    "truncated records": (truncated, TRUNCATED_AT_ONCE),
}


async def attack(kind: str, address: str) -> int:
    """Do it until SIGTERM, so many at a time; returns how many connections it made."""
    made, count = ATTACKS[kind]
    host, _, port = address.rpartition(":")
    connections = 0
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)

    async def again_and_again() -> None:
        nonlocal connections
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                connections += 1
                await made(host, int(port))

    tasks = [asyncio.create_task(again_and_again()) for _ in range(count)]
    await over.wait()
    for task in tasks:
        task.cancel()
    return connections


@contextmanager
def under_attack(kind: str, broker: Endpoint, rates: list[float]) -> Iterator[None]:
    """An attack in a process of its own; its connections per second go to `rates`."""
    command = [sys.executable, "-m", "bench.attacks", "--attack", kind, broker.bootstrap_servers]
    begun = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, preexec_fn=lambda: os.nice(LEAST_PRIORITY) and None
    )
    try:
        time.sleep(ATTACK_BEGINS_S)
        yield
    finally:
        process.terminate()
        told, _ = process.communicate()
        rates.append(int(told) / (time.monotonic() - begun))


class Known:
    """The producer that got in before."""

    def __init__(self, broker: Endpoint) -> None:
        self._topic = fresh_topic(broker, 1)
        self._client = Producer({**connected_to(broker), "linger.ms": 0})

    def window(self) -> Figures:
        return percentiles(timed_for(self._one, WINDOW_S))

    def _one(self) -> None:
        self._client.produce(self._topic, VALUE, on_delivery=self._delivered)
        flush(self._client)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            raise RuntimeError(f"not delivered: {error}")


def measure(system: type[Broker | ApacheKafka], rounds: int, console: Console) -> list[Row]:
    """The rows of all attacks on one system."""
    rows = list[Row]()
    with tempfile.TemporaryDirectory(prefix="oncelog-attacks-") as folder, ExitStack() as stack:
        broker = system(Path(folder))
        stack.push(broker.__exit__)
        broker.start()
        known = Known(broker)
        for kind in ATTACKS:
            rates, rest, attacked = list[float](), list[Figures](), list[Figures]()
            for number in range(-WARM_ROUNDS, rounds):
                what = f"round {number + 1} of {rounds}" if number >= 0 else "warm-up"
                console.print(f"{system.name}, {kind}: {what}")
                rest.append(known.window())
                with under_attack(kind, broker, rates):
                    attacked.append(known.window())
            for figure in rest[0]:
                before, during = (
                    median(each[figure] for each in all_[WARM_ROUNDS:]) for all_ in (rest, attacked)
                )
                rate = f"{median(rates[WARM_ROUNDS:]):,.0f}"
                cells = (f"{before:.3f}", f"{during:.3f}", f"{during / before:.2f}")
                rows.append((kind, system.name, rate, figure, *cells))
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; with --attack be the one who attacks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--attack", nargs=2, metavar=("KIND", "ADDRESS"))
    given = parser.parse_args(arguments)
    raise_limit()
    if given.attack:
        print(asyncio.run(attack(*given.attack)))
        return 0
    console = Console()
    title = f"A producer beside those who do not get in, {given.rounds} rounds"
    table = Table(title=title)
    for heading in ("attack", "system", "connections/s", "figure", "rest", "attacked", "ratio"):
        table.add_column(heading, justify="left" if heading in WORDS else "right")
    rows = [row for each in (Broker, ApacheKafka) for row in measure(each, given.rounds, console)]
    for row in sorted(rows, key=lambda row: list(ATTACKS).index(row[0])):
        table.add_row(*row)
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
