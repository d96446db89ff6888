"""Many cases of the crash table in one process: one session, one broker, a verdict for each.

A kill of the driver costs the start of a JVM, which is most of what such a case takes; everything
else is done in the session that lasts.
"""

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from bench.peer import KafkaPeer
from tests.spark.crash_table import Case, Keeper, Restartable, kept, run_case
from tests.spark.support import lasting_session
from tests.support.broker import BrokerProcess

PEERS = ("oncelog", "kafka")
FINDINGS_SHOWN_MAX = 20


@dataclass
class Verdicts:
    """What a campaign found, case by case."""

    peer: str
    exact: Counter[str] = field(default_factory=Counter)
    wrong: dict[str, list[str]] = field(default_factory=dict)
    seconds: list[tuple[bool, float]] = field(default_factory=list)

    @property
    def is_exact(self) -> bool:
        return not self.wrong

    def as_json(self) -> dict[str, object]:
        return {
            "peer": self.peer,
            "cases": len(self.seconds),
            "exact cases per row and victim": dict(sorted(self.exact.items())),
            "not exact": {name: found[:FINDINGS_SHOWN_MAX] for name, found in self.wrong.items()},
            "mean seconds of a case that kills the driver": self._mean(True),
            "mean seconds of another case": self._mean(False),
        }

    def _mean(self, kills_the_driver: bool) -> float | None:
        mine = [seconds for kills, seconds in self.seconds if kills is kills_the_driver]
        return round(sum(mine) / len(mine), 1) if mine else None


@contextmanager
def broker_of(peer: str, folder: Path) -> Iterator[Restartable]:
    """A fresh broker. Raises `PeerUnavailable` where Apache Kafka cannot be had."""
    if peer == "kafka":
        with KafkaPeer(folder / "kafka") as kafka:
            yield kafka
    else:
        with BrokerProcess(folder / "data") as broker:
            yield broker


def run_campaign(cases: Iterable[Case], peer: str, console: Console) -> Verdicts:
    """Run the cases one after the other."""
    folder = Path(tempfile.mkdtemp(prefix="oncelog-spark-"))
    spark = lasting_session()
    try:
        with broker_of(peer, folder) as broker, kept(broker, folder) as keeper:
            verdicts = _run_all(list(cases), spark, keeper, peer, folder, console)
    finally:
        spark.stop()
    if verdicts.is_exact:
        shutil.rmtree(folder)
    else:
        console.print(f"kept for a look: {folder}")
    return verdicts


def _run_all(
    cases: list[Case],
    spark: SparkSession,
    keeper: Keeper,
    peer: str,
    folder: Path,
    console: Console,
) -> Verdicts:
    verdicts = Verdicts(peer)
    for number, case in enumerate(cases):
        begun = time.monotonic()
        case_folder = folder / f"case-{number}"
        found = run_case(case, spark, keeper, case_folder)
        seconds = time.monotonic() - begun
        verdicts.seconds.append((case.kills_the_driver, seconds))
        name = f"{number} {case} ({peer})"
        if found:
            verdicts.wrong[name] = found
            console.print(f"[red]not exact[/red] {name}: {found[:FINDINGS_SHOWN_MAX]}")
        else:
            verdicts.exact[f"{case.row}, {case.victim}"] += 1
            console.print(f"exact {name}, {seconds:.1f} s")
            shutil.rmtree(case_folder)
    return verdicts
