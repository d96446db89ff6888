"""Runs the rows about Spark: warms every peer up at every broker, then measures them in turns."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from bench.results import Results, figure_at
from bench.run import FAILURES, Kind, drive_until_warm, folder, in_turns, settle, started
from bench.spark import session
from bench.spark.rows import SparkRow
from bench.spark.streams import StreamsClient, ready
from bench.spark.windows import Bench, measure
from bench.systems import System
from tests.support.peer.kafka import STREAMS_POM, release

WARM_S_MAX = 20.0
"""The virtual machine is warm from the rows before, and from the other broker."""
ROUNDS_MAX = 5
FAILED = (*FAILURES, PySparkException, Py4JError)


class SparkRun:
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
        self._rounds = min(rounds, ROUNDS_MAX)
        self._results = results
        self._tell = tell
        self._on_row = on_row
        self._warm_s_max = min(warm_s_max, WARM_S_MAX)

    def all(self, rows: Mapping[str, SparkRow]) -> None:
        """Measure these. Raises `PeerUnavailable` without the connector's jars."""
        ready()
        self._results.facts["spark"] = f"PySpark {pyspark.__version__}"
        self._results.facts["streams"] = release(STREAMS_POM)
        with folder() as home, ExitStack() as stack:
            systems = started(self._kinds, home, stack)
            streams = StreamsClient()
            stack.callback(streams.close)
            spark = session.started()
            stack.callback(spark.stop)
            settle(home)
            bench = Bench(spark, streams)
            for key, row in rows.items():
                try:
                    self._row(key, row, bench, systems)
                except FAILED as failure:
                    self._results.forget(key)
                    self.failed.append(key)
                    self._tell(f"[red]{key} failed[/red]: {str(failure)[:500]}")
                finally:
                    bench.inputs.forget()
                self._on_row()

    def _row(self, key: str, row: SparkRow, bench: Bench, systems: Sequence[System]) -> None:
        self._results.forget(key)
        for system in systems:
            for peer in row.peers:
                self._warm_up(key, row, bench, system, peer)
        for number in range(self._rounds):
            for system in in_turns(systems, number):
                for peer in in_turns(row.peers, number):
                    figures = measure(bench, row.job, peer, system)
                    told = ", ".join(f"{value:,.1f} {name}" for name, value in figures.items())
                    self._tell(f"  {key}: {peer} on {system.name}: {told}")
                    at = {figure_at(name, system.name): value for name, value in figures.items()}
                    self._results.add(key, peer, at)

    def _warm_up(self, key: str, row: SparkRow, bench: Bench, system: System, peer: str) -> None:
        def rate() -> float:
            (name, value), *_ = measure(bench, row.job, peer, system).items()
            return value if name.endswith("/s") else 1 / value

        found = drive_until_warm(rate, time.monotonic, self._warm_s_max)
        self._results.warm_ups[key][f"{peer} on {system.name}"] = found
        steady = "steady" if found.steady else "not steady"
        self._tell(f"  {key}: {peer} on {system.name} warm after {found.seconds:.0f} s, {steady}")
