"""`python -m bench.system_calls`: how many system calls a broker makes for one request.

A broker in a process of its own answers the requests of `bench.calls`, one after the other, while
`strace` counts. Unlike a time, the figures are the same on every machine; what a timer does in
between adds a little, so they are told per request of many.
"""

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.calls import COUNTED, WARM_UP, Requests
from bench.counting import Calls, Client
from bench.gauges import calls_by_name
from bench.systems import FromSources

REPEATS = 300
REQUESTS = ("Produce", "Fetch", "EndTxn", "EndTxn (TV1)", "OffsetCommit")
"""For EndTxn the whole transaction counts: its Produce, and AddPartitionsToTxn of TV1."""

MASS: dict[str, Callable[[Requests], Awaitable[Calls]]] = {"CreateTopics": Requests.create_topics}
"""Requests that are worked off in threads, whose waking is chance; files and syncs count."""

MASS_REPEATS = 10
SYNCS = ("fsync", "fdatasync", "syncfs", "sync_file_range")
FILES = ("openat", "mkdir", "rename", "unlink")


def count(repeats: int = REPEATS) -> dict[str, dict[str, float]] | None:
    """System calls per request, by name; None where `strace` is missing or may not look."""
    if shutil.which("strace") is None:
        return None
    with tempfile.TemporaryDirectory(prefix="oncelog-calls-") as folder, ExitStack() as stack:
        broker = FromSources(Path(folder))
        stack.push(broker.__exit__)
        broker.start()
        client = Client(broker.bootstrap_servers)
        stack.callback(client.close)
        requests = Requests(client)
        asyncio.run(requests.prepare())
        found = {}
        for name in (*REQUESTS, *MASS):
            times = repeats if name in REQUESTS else min(repeats, MASS_REPEATS)
            _ask(requests, name, WARM_UP)
            calls = calls_by_name(broker.pid, partial(_ask, requests, name, times))
            if not calls:
                return None
            found[name] = {call: count / times for call, count in calls.items()}
        return found


def compared(counted: dict[str, dict[str, float]]) -> dict[str, float]:
    """What two builds are compared by: calls in all and syncs; of `MASS` files and syncs."""
    found = {name: counted[name]["total"] for name in REQUESTS}
    for name in MASS:
        found[f"{name}: files"] = sum(counted[name].get(call, 0) for call in FILES)
    for name, calls in counted.items():
        found[f"{name}: syncs"] = sum(calls.get(call, 0) for call in SYNCS)
    return found


def _ask(requests: Requests, name: str, times: int) -> None:
    asked = (COUNTED | MASS)[name]

    async def ask() -> None:
        for _ in range(times):
            await asked(requests)

    asyncio.run(ask())


def main() -> int:
    """Print the table, or with ``--json`` the calls in all."""
    counted = count()
    if counted is None:
        print("strace is missing, or may not look into a process", file=sys.stderr)
        return 1
    if "--json" in sys.argv[1:]:
        print(json.dumps(compared(counted)))
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
