"""`python -m bench.system_calls`: how many system calls a broker makes for one request.

A broker in a process of its own answers the requests of `bench.calls`, one after the other, while
`strace` counts. Unlike a time, the figures are the same on every machine; what a timer does in
between adds a little, so they are told per request of many.
"""

import asyncio
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.calls import COUNTED, WARM_UP, Client, Requests
from bench.gauges import ATTACH_S, DETACH_TIMEOUT_S
from bench.peer.child import BrokerChild

REPEATS = 300
REQUESTS = ("Produce", "Fetch", "EndTxn", "EndTxn (TV1)")
"""For EndTxn the whole transaction counts: its Produce, and AddPartitionsToTxn of TV1."""
READY_TIMEOUT_S = 30.0


class _Broker(BrokerChild):
    """`oncelog serve` of the sources that this interpreter sees."""

    def start(self) -> float:
        command = [sys.executable, "-m", "oncelog", "serve", "--listen", self.bootstrap_servers]
        command += ["--data-dir", str(self.folder / "data")]
        return self.launch(command, self.folder / "broker.log", READY_TIMEOUT_S)


def count(repeats: int = REPEATS) -> dict[str, dict[str, float]] | None:
    """System calls per request, by name; None where `strace` is missing or may not look."""
    if shutil.which("strace") is None:
        return None
    with tempfile.TemporaryDirectory(prefix="oncelog-calls-") as folder, ExitStack() as stack:
        broker = _Broker(Path(folder))
        stack.push(broker.__exit__)
        broker.start()
        client = Client(broker.bootstrap_servers)
        stack.callback(client.close)
        requests = Requests(client)
        asyncio.run(requests.prepare())
        found = {}
        for name in REQUESTS:
            asyncio.run(_ask(requests, name, WARM_UP))
            calls = _traced(broker.pid, partial(_ask, requests, name, repeats))
            if not calls:
                return None
            found[name] = {call: count / repeats for call, count in calls.items()}
        return found


def _traced(pid: int, work: Callable[[], Coroutine[Any, Any, None]]) -> dict[str, int]:
    """System calls of a process by name, while `work` runs."""
    with tempfile.NamedTemporaryFile("r", prefix="oncelog-calls-") as told:
        command = ["strace", "-f", "-c", "-qq", "-o", told.name, "-p", str(pid)]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as tool:
            time.sleep(ATTACH_S)
            asyncio.run(work())
            tool.send_signal(signal.SIGINT)
            tool.wait(DETACH_TIMEOUT_S)
        return parsed(told.read().splitlines())


async def _ask(requests: Requests, name: str, times: int) -> None:
    for _ in range(times):
        await COUNTED[name](requests)


def parsed(lines: Sequence[str]) -> dict[str, int]:
    """Calls by name in the table of ``strace -c``, where the count is the fourth column."""
    rows = [line.split() for line in lines]
    return {row[-1]: int(row[3]) for row in rows if len(row) > 4 and row[3].isdecimal()}


def main() -> int:
    """Print the table, or with ``--json`` the calls in all."""
    counted = count()
    if counted is None:
        print("strace is missing, or may not look into a process", file=sys.stderr)
        return 1
    if "--json" in sys.argv[1:]:
        print(json.dumps({name: calls["total"] for name, calls in counted.items()}))
        return 0
    table = Table(title="System calls per request")
    for heading in ("request", "in all", "which"):
        table.add_column(heading)
    for name, calls in counted.items():
        which = ", ".join(f"{call} {n:.2f}" for call, n in calls.items() if call != "total")
        table.add_row(name, f"{calls['total']:.2f}", which)
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
