"""Many cases of the crash table in one process: one session, one broker, a verdict for each.

A kill of the driver costs the start of a JVM, which is most of what such a case takes; everything
else is done in the session that lasts.
"""

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from tests.spark.cluster import Cluster
from tests.spark.crash_table import Case, Keeper, Restartable, kept, run_case
from tests.spark.support import lasting_session
from tests.support import evidence
from tests.support.broker import BrokerProcess
from tests.support.evidence import Entry
from tests.support.peer import KafkaPeer

PEERS = ("oncelog", "kafka")
FINDINGS_SHOWN_MAX = 20
ERROR_LENGTH_MAX = 2000
PATHS = ("src", "tests/spark")
"""What a verdict is about: an interrupted campaign goes on where these are as they were."""
EXACT, NOT_EXACT = "exact cases per row and victim", "not exact"
AGAIN = "not exact at first, and at which commit they were run again"
ENDED = "exact once an administrator had ended what Apache Kafka left hanging"
KILLING_THE_DRIVER, OTHERS = "cases that kill the driver", "other cases"


@dataclass
class Spent:
    """How many cases there were, and how long they took."""

    cases: int = 0
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        self.cases += 1
        self.seconds = round(self.seconds + seconds, 1)


@dataclass
class Verdicts:
    """What a campaign found, case by case and in their order."""

    peer: str
    on_cluster: bool = False
    """Whether Spark is a standalone cluster of two workers, and not one JVM."""
    exact: Counter[str] = field(default_factory=Counter)
    wrong: dict[str, list[str]] = field(default_factory=dict)
    killing_the_driver: Spent = field(default_factory=Spent)
    others: Spent = field(default_factory=Spent)
    ended: dict[str, list[str]] = field(default_factory=dict)
    """Partitions that had to be ended by hand (`tests.spark.hanging`), by case; these count as
    exact too."""
    again: dict[str, dict[str, object]] = field(default_factory=dict)
    """Of cases that were run again: the commit of that, and what was found and ended at first."""

    @classmethod
    def of_json(cls, peer: str, entry: Entry, *, on_cluster: bool = False) -> "Verdicts":
        """What an earlier call found, as `as_json` has it; nothing if there is no entry."""
        if not entry:
            return cls(peer, on_cluster)
        driver, others = (Spent(**entry[name]) for name in (KILLING_THE_DRIVER, OTHERS))
        wrong, ended = entry[NOT_EXACT], entry[ENDED]
        exact: Counter[str] = Counter(entry[EXACT])
        again = entry.get(AGAIN, {})
        return cls(peer, on_cluster, exact, wrong, driver, others, ended, again)

    @property
    def place(self) -> str:
        """The broker, and where Spark runs if that is not one JVM."""
        return f"{self.peer}, cluster" if self.on_cluster else self.peer

    @property
    def count(self) -> int:
        return self.killing_the_driver.cases + self.others.cases

    @property
    def is_exact(self) -> bool:
        return not self.wrong

    def verdict(self, cases_count: int) -> str:
        """The verdict of a campaign that has so many cases."""
        if self.wrong:
            return "not exact"
        return "exact" if self.count == cases_count else "not all run"

    @property
    def counts(self) -> str:
        """How many cases there were, and how many an administrator had to help."""
        ended = f", {len(self.ended)} of them after an abort by hand" if self.ended else ""
        return f"{self.count} cases of {len(self.exact)} rows and victims{ended}"

    def forget(self, name: str) -> None:
        """Make room for the verdict of a case that was run again, and keep what it had before."""
        before: dict[str, object] = {"commit": evidence.commit(), "found": self.wrong.pop(name)}
        if name in self.ended:
            before["ended"] = self.ended.pop(name)
        self.again[name] = before

    def as_json(self) -> Entry:
        return {
            "peer": self.peer,
            "cases": self.count,
            EXACT: dict(sorted(self.exact.items())),
            NOT_EXACT: {name: found[:FINDINGS_SHOWN_MAX] for name, found in self.wrong.items()},
            KILLING_THE_DRIVER: asdict(self.killing_the_driver),
            OTHERS: asdict(self.others),
            ENDED: self.ended,
            **({AGAIN: self.again} if self.again else {}),
        }


def is_of_these_sources(entry: Entry) -> bool:
    """Whether an entry with a commit was made by the sources as they are."""
    then, now = (
        evidence.sources(commit, *PATHS) for commit in (entry["commit"], evidence.commit())
    )
    return then == now


@contextmanager
def broker_of(peer: str, folder: Path) -> Iterator[Restartable]:
    """A fresh broker. Raises `PeerUnavailable` where Apache Kafka cannot be had."""
    if peer == "kafka":
        with KafkaPeer(folder / "kafka") as kafka:
            yield kafka
    else:
        with BrokerProcess(folder / "data") as broker:
            yield broker


def run_campaign(
    cases: Sequence[Case],
    verdicts: Verdicts,
    console: Console,
    keep: Callable[[Verdicts], object],
    *,
    again: bool = False,
) -> None:
    """Run the cases that have no verdict yet, one after the other; `keep` is called after each.

    Or, `again`, those that were not exact.
    """
    numbers: Sequence[int] = range(verdicts.count, len(cases))
    if again:
        numbers = [int(name.split()[0]) for name in verdicts.wrong]
    folder = Path(tempfile.mkdtemp(prefix="oncelog-spark-"))
    with ExitStack() as stack:
        broker = stack.enter_context(broker_of(verdicts.peer, folder))
        keeper = stack.enter_context(kept(broker, folder))
        if verdicts.on_cluster:
            # For the session that lasts and for a driver that is killed.
            cluster = Cluster(folder / "cluster", workers=2, cores=2, memory_mb=1280)
            spark = lasting_session(stack.enter_context(cluster).master)
        else:
            spark = lasting_session()
        stack.callback(spark.stop)
        for number in numbers:
            _run(number, cases[number], spark, keeper, verdicts, folder, console)
            keep(verdicts)
    if verdicts.is_exact:
        shutil.rmtree(folder)
    else:
        console.print(f"kept for a look: {folder}")


def _run(
    number: int,
    case: Case,
    spark: SparkSession,
    keeper: Keeper,
    verdicts: Verdicts,
    folder: Path,
    console: Console,
) -> None:
    begun = time.monotonic()
    case_folder = folder / f"case-{number}"
    try:
        found = run_case(case, spark, keeper, case_folder)
    except Exception as error:  # noqa: BLE001 - whatever a case meets, the others are run
        found = [f"{type(error).__name__}: {error}"[:ERROR_LENGTH_MAX]]
    seconds = time.monotonic() - begun
    name = f"{number} {case} ({verdicts.place})"
    if name in verdicts.wrong:
        verdicts.forget(name)
    else:
        (verdicts.killing_the_driver if case.kills_the_driver else verdicts.others).add(seconds)
    ended = keeper.take()
    if ended:
        verdicts.ended[name] = ended
        console.print(f"[yellow]ended by hand[/yellow] {name}: {ended}")
    if found:
        verdicts.wrong[name] = found
        console.print(f"[red]not exact[/red] {name}: {found[:FINDINGS_SHOWN_MAX]}")
    else:
        verdicts.exact[f"{case.row}, {case.victim}"] += 1
        console.print(f"exact {name}, {seconds:.1f} s")
        shutil.rmtree(case_folder)
