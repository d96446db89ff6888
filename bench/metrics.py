"""`python -m bench.metrics`: what it costs a broker to count for Prometheus.

Two brokers of these sources, each in a process of its own, one with an address for metrics and one
without, answer the requests of `bench.calls` in turns, one request at a time. The CPU time of the
processes is compared, in rounds that alternate which one goes first: the minimum of many short
rounds is least affected by other load. `bench.calls --metrics` counts the calls instead, which no
clock changes.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.calls import COUNTED, WARM_UP, Requests
from bench.counting import Client
from bench.gauges import cpu_time
from bench.stats import ratio
from tests.support.peer.child import BrokerChild, free_port

ROUNDS = 100
REQUESTS_PER_ROUND = 50
REQUESTS = ("Produce", "EndTxn", "EndTxn (TV1)")
"""For EndTxn the whole transaction counts, of one record."""
READY_TIMEOUT_S = 30.0


class _Broker(BrokerChild):
    """`oncelog serve` of the sources that this interpreter sees."""

    def start(self, *settings: str) -> None:
        command = [sys.executable, "-m", "oncelog", "serve", "--listen", self.bootstrap_servers]
        command += ["--data-dir", str(self.folder / "data")]
        command += [part for setting in settings for part in ("--set", setting)]
        self.launch(command, self.folder / "broker.log", READY_TIMEOUT_S)


class _Asked:
    """A broker and who asks it."""

    def __init__(self, folder: Path, stack: ExitStack, *settings: str) -> None:
        folder.mkdir()
        self._broker = _Broker(folder)
        stack.push(self._broker.__exit__)
        self._broker.start(*settings)
        client = Client(self._broker.bootstrap_servers)
        stack.callback(client.close)
        self._requests = Requests(client)
        asyncio.run(self._requests.prepare())

    def cpu_us(self, name: str, times: int) -> float:
        """CPU time of the broker for one request, over so many."""
        before = cpu_time(self._broker.pid)
        asyncio.run(self._ask(name, times))
        spent = cpu_time(self._broker.pid).since(before)
        return 1e6 * spent.total_s / times

    async def _ask(self, name: str, times: int) -> None:
        for _ in range(times):
            await COUNTED[name](self._requests)


def measure(rounds: int, times: int) -> dict[str, tuple[list[float], list[float]]]:
    """CPU microseconds per request, with and without metrics, a figure for each round."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    with tempfile.TemporaryDirectory(prefix="oncelog-metrics-") as folder, ExitStack() as stack:
        address = f"oncelog.metrics.address=127.0.0.1:{free_port()}"
        brokers = (
            _Asked(Path(folder) / "on", stack, address),
            _Asked(Path(folder) / "off", stack),
        )
        for name in REQUESTS:
            figures: tuple[list[float], list[float]] = ([], [])
            for broker in brokers:
                broker.cpu_us(name, max(WARM_UP, times))
            for number in range(rounds):
                for which in (0, 1) if number % 2 else (1, 0):
                    figures[which].append(brokers[which].cpu_us(name, times))
            found[name] = figures
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--requests", type=int, default=REQUESTS_PER_ROUND)
    given = parser.parse_args(arguments)
    table = Table(title=f"CPU us of the broker per request, least of {given.rounds} rounds")
    for heading in ("request", "with metrics", "without", "ratio", "of the medians (95 %)"):
        table.add_column(heading, justify="left" if heading == "request" else "right")
    for name, (with_us, without_us) in measure(given.rounds, given.requests).items():
        compared = ratio(with_us, without_us)
        table.add_row(
            name,
            f"{min(with_us):.1f}",
            f"{min(without_us):.1f}",
            f"{min(with_us) / min(without_us):.3f}",
            f"{compared.value:.3f} ({compared.low:.3f} to {compared.high:.3f})",
        )
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
