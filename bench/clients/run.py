"""Runs the rows about clients: warms each broker up, then has the clients take turns at it."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from bench.clients.jobs import PARTITIONS, Job
from bench.clients.rows import CLIENTS, ClientRow
from bench.loads import BIG, WINDOW_S, window_mb
from bench.results import Results, figure_at
from bench.run import (
    FAILURES,
    Kind,
    drive_until_warm,
    folder,
    in_turns,
    one_window,
    settle,
    started,
)
from bench.stats import Figures
from bench.systems import System
from bench.work import TIMEOUT_S, delete_topic, fill, fresh_topic, producer
from tests.support.peer.kafka import ROOT


class ClientRun:
    """One run. `on_row` is called after each row."""

    def __init__(
        self,
        kinds: Sequence[Kind],
        rounds: int,
        results: Results,
        tell: Callable[[str], None],
        on_row: Callable[[], None],
        warm_s_max: float,
    ) -> None:
        self.failed: list[str] = []
        self._kinds = kinds
        self._rounds = rounds
        self._results = results
        self._tell = tell
        self._on_row = on_row
        self._warm_s_max = warm_s_max

    def all(self, rows: Mapping[str, ClientRow]) -> None:
        """Measure these."""
        with folder() as home, ExitStack() as stack:
            systems = started(self._kinds, home, stack)
            settle(home)
            for key, row in rows.items():
                try:
                    self._row(key, row, systems)
                except FAILURES as failure:
                    self._results.forget(key)
                    self.failed.append(key)
                    self._tell(f"[red]{key} failed[/red]: {str(failure)[-500:]}")
                self._on_row()

    def _row(self, key: str, row: ClientRow, systems: Sequence[System]) -> None:
        self._results.forget(key)
        for system in systems:
            self._warm_up(key, row, system)
        for number in range(self._rounds):
            for system in in_turns(systems, number):
                for client in in_turns(list(CLIENTS), number):
                    figures = measure(system, client, row)
                    told = ", ".join(f"{value:,.2f} {name}" for name, value in figures.items())
                    self._tell(f"  {key}: {client} on {system.name}: {told}")
                    at = {figure_at(name, system.name): value for name, value in figures.items()}
                    self._results.add(key, client, at)

    def _warm_up(self, key: str, row: ClientRow, system: System) -> None:
        work = row.warm_up(system)
        try:
            found = drive_until_warm(
                lambda: one_window(work).rate, time.monotonic, self._warm_s_max
            )
        finally:
            work.close()
        self._results.warm_ups[key][system.name] = found


def measure(system: System, client: str, row: ClientRow) -> Figures:
    """One client's turn, in a process and on a topic of its own. Raises `RuntimeError`."""
    topic = fresh_topic(system, PARTITIONS)
    count = int(window_mb(row.mb) * 1000)
    try:
        if row.job in (Job.CONSUME, Job.GROUP):
            fill(producer(system, **dict(BIG)), topic, bytes(1000), count)
        amount = count or WINDOW_S
        return in_a_process(client, row.job, system.bootstrap_servers, topic, amount)
    finally:
        delete_topic(system, topic)


def in_a_process(client: str, job: Job, servers: str, topic: str, amount: float) -> Figures:
    """What its process prints. Raises `RuntimeError`."""
    command = [sys.executable, "-m", "bench.clients.child", client, job, servers, topic]
    try:
        done = subprocess.run(
            [*command, str(amount)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{client}: {job} was not done after {TIMEOUT_S} s") from None
    if done.returncode != 0:
        raise RuntimeError(f"{client}: {done.stderr.strip()}")
    figures: Figures = json.loads(done.stdout)
    return figures
