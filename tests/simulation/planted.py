"""Plants the bugs of tests/simulation/planted/ one at a time, and has the simulation find each.

Run as ``python -m tests.simulation.planted [NAME ...] [--evidence]``; part of `make test-full`.

A planted bug is a TOML file: `file` (from the repository's root), `before` and `after` (`before` is
in the file exactly once), any number of further `[[edit]]` tables with the same three keys, `why`
(one sentence: what a user would suffer), `caught_by` (names of checkers, any of which may find it)
and `profile` (the schedule of faults that finds it soonest; "" lets each seed draw its own). With
`strict` only the checkers that it names count; `brokers` asks for runs of so many brokers, `secure`
for runs with users whose rights change.

Nothing in the checkout is changed: each bug gets a copy of the sources. From each of a few start
seeds on, seeds are run one after another until one has a finding that the code does not have
without the bug: the same seed is then run on the sources as they are, and what is found there too
does not count. Nor does a finding by a checker that the bug does not name, if any seed that was run
on the sources as they are has shown such a one.

With --evidence, the row of docs/evidence.md is written as the bugs are searched. A bug that an
earlier call of this checkout has found on the same sources is not searched again.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.support import campaigns, evidence, patches
from tests.support.patches import (
    EDIT_KEYS,
    BadPatch,
    Edit,
    check_keys,
    edit_of,
    patched,
    read,
    why_of,
)

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "simulation" / "planted"
WORKER = ROOT / "tests" / "simulation" / "planted_worker.py"

NAME = "planted-bugs"
SEEDS_APART = 1_000_000
STARTS_COUNT = 5
RUNS_MAX = 2_000
MEDIAN_RUNS_MAX = 200
SECONDS_MAX = 180.0
"""Of one bug, over all its starts: the search for all bugs has an hour on two cores."""

KEYS = EDIT_KEYS | {"why", "caught_by", "profile"}

Findings = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Bug:
    """One planted bug. See the module."""

    name: str
    edits: tuple[Edit, ...]
    why: str
    caught_by: tuple[str, ...]
    profile: str
    strict: bool = False
    brokers: int | None = None
    secure: bool = False


@dataclass(slots=True)
class Search:
    """What came of the search for one bug. `runs` holds, per start, the runs until it was found.

    None: not found within the runs or the seconds that the search has. `tried` counts runs per
    start, `fired` the starts that each checker found it from, `other` the runs with findings that
    the code has without it.
    """

    bug: Bug
    runs: dict[int, int | None]
    tried: Counter[int] = field(default_factory=Counter)
    fired: Counter[str] = field(default_factory=Counter)
    other: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    problem: str = ""

    @property
    def median(self) -> float | None:
        """Runs until found, the median over all starts; None where that is one without a find."""
        counts = sorted(float("inf") if count is None else count for count in self.runs.values())
        middle = statistics.median(counts)
        return None if middle == float("inf") else middle

    @property
    def is_found(self) -> bool:
        """Whether every start found it, half of them soon."""
        median = self.median
        is_soon = median is not None and median <= MEDIAN_RUNS_MAX
        return is_soon and all(count is not None for count in self.runs.values())


# --- the bugs as data --------------------------------------------------------------------


def names() -> list[str]:
    """All planted bugs, by name."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str, root: Path = ROOT) -> Bug:
    """Read one bug. Raises `BadPatch` if it is not well formed or does not fit the code."""
    content = read(name, "tests/simulation/planted", root)
    tables = content.pop("edit", [])
    strict = bool(content.pop("strict", False))
    brokers = content.pop("brokers", None)
    secure = bool(content.pop("secure", False))
    check_keys(name, content, KEYS)
    for table in tables:
        check_keys(name, table, EDIT_KEYS)
    caught_by = content["caught_by"]
    if not isinstance(caught_by, list) or not caught_by:
        raise BadPatch(f"{name}: `caught_by` is a list of checkers")
    edits = tuple(edit_of(name, table) for table in (content, *tables))
    why = why_of(name, content)
    patched(name, edits, root)
    return Bug(name, edits, why, tuple(caught_by), content["profile"], strict, brokers, secure)


def plant(bug: Bug, tree: Path) -> None:
    """Copy the sources to `tree`, with the bug in them."""
    shutil.copytree(ROOT / "src", tree / "src")
    patches.plant(bug.name, bug.edits, tree)


# --- the search --------------------------------------------------------------------------


class Unplanted:
    """What seeds find in the code as it is; asked once for each seed and profile."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, str]] = set()
        """What any of them found."""
        self._known: dict[tuple[int, str, int | None, bool], Findings] = {}
        self._lock = threading.Lock()

    def findings(self, seed: int, bug: Bug) -> Findings:
        """Run the seed on the checkout's own sources, unless that was done before."""
        key = seed, bug.profile, bug.brokers, bug.secure
        with self._lock:
            known = self._known.get(key)
        if known is None:
            task = _task(bug, [seed], runs_max=1, seconds_max=SECONDS_MAX)
            done = subprocess.run(
                [sys.executable, WORKER, json.dumps(task)],
                env=environment(ROOT),
                capture_output=True,
                text=True,
                check=True,
            )
            known = [(kind, what) for kind, what in json.loads(done.stdout)["findings"]]
            with self._lock:
                self._known[key] = known
                self.seen.update(known)
        return known


def _task(
    bug: Bug, starts: Sequence[int], *, runs_max: int, seconds_max: float
) -> dict[str, object]:
    return {
        "profile": bug.profile,
        "brokers": bug.brokers,
        "secure": bug.secure,
        "starts": list(starts),
        "runs_max": runs_max,
        "seconds_max": seconds_max,
    }


def environment(tree: Path) -> dict[str, str]:
    """In which a search imports the sources of `tree`."""
    return patches.environment(tree) | {"PYTHONWARNINGS": "ignore"}


def search(
    bug: Bug,
    unplanted: Unplanted,
    starts: Sequence[int],
    runs_max: int,
    seconds_max: float,
    given_up: threading.Event | None = None,
    *,
    silent_seconds_max: float = SECONDS_MAX,
) -> Search:
    """Plant one bug and look for it from each start, until it is `given_up`.

    A run that takes longer than `silent_seconds_max` ends the search with a problem.
    """
    found = Search(bug, dict.fromkeys(starts))
    began = time.monotonic()
    task = _task(bug, starts, runs_max=runs_max, seconds_max=seconds_max)
    with tempfile.TemporaryDirectory(prefix="oncelog-planted-") as folder:
        tree = Path(folder)
        plant(bug, tree)
        with subprocess.Popen(
            patches.limited([sys.executable, str(WORKER), json.dumps(task)]),
            env=environment(tree),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Ctrl-C ends this process, which gives up its searches.
            start_new_session=True,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            silence = _SilenceTimer(process, silent_seconds_max)
            for line in process.stdout:
                silence.heard()
                if given_up is not None and given_up.is_set():
                    process.kill()
                    break
                run = json.loads(line)
                counts = take(found, run, unplanted)
                if run["findings"]:
                    process.stdin.write("yes\n" if counts else "no\n")
                    process.stdin.flush()
            silence.cancel()
            complaints = process.stderr.read()
        if silence.has_expired:
            found.problem = "a run does not end"
        elif process.returncode:
            found.problem = (complaints.strip().splitlines() or ["it was ended"])[-1]
    found.seconds = time.monotonic() - began
    return found


class _SilenceTimer:
    """Kills a process that has printed nothing for too long: one of its runs does not end."""

    def __init__(self, process: "subprocess.Popen[str]", seconds: float) -> None:
        self._process = process
        self._seconds = seconds
        self.has_expired = False
        self._timer = self._armed()

    def _armed(self) -> threading.Timer:
        timer = threading.Timer(self._seconds, self._expire)
        timer.daemon = True
        timer.start()
        return timer

    def _expire(self) -> None:
        self.has_expired = True
        self._process.kill()

    def heard(self) -> None:
        self._timer.cancel()
        self._timer = self._armed()

    def cancel(self) -> None:
        self._timer.cancel()


def take(found: Search, run: Mapping[str, Any], unplanted: Unplanted) -> bool:
    """Take in one run. Whether it found the bug: something that the code has only with it."""
    start, seed = run["start"], run["seed"]
    found.tried[start] += 1
    fired = [(kind, what) for kind, what in run["findings"]]
    if not fired:
        return False
    anyway = unplanted.findings(seed, found.bug)
    expected = found.bug.caught_by
    new = [
        entry
        for entry in fired
        if entry not in anyway
        and (entry[0] in expected or not (found.bug.strict or entry in unplanted.seen))
    ]
    if not new:
        found.other.update({f"{kind}: {what}" for kind, what in fired})
        return False
    found.runs[start] = found.tried[start]
    found.fired.update({kind for kind, _ in new})
    return True


# --- many bugs ---------------------------------------------------------------------------


def search_each(
    bugs: Sequence[Bug], starts: Sequence[int], runs_max: int, seconds_max: float, jobs: int
) -> Generator[Search, None, None]:
    """Search for each bug, a few at a time; what came of each, as they are done.

    When the caller goes away the searches that have been begun are given up.
    """
    unplanted, given_up = Unplanted(), threading.Event()
    pool = ThreadPoolExecutor(jobs)
    try:
        pending = [
            pool.submit(search, bug, unplanted, starts, runs_max, seconds_max, given_up)
            for bug in bugs
        ]
        for finished in as_completed(pending):
            yield finished.result()
    finally:
        given_up.set()
        pool.shutdown(cancel_futures=True)


class Tally:
    """What came of all calls on the same sources."""

    def __init__(
        self, starts: Sequence[int], runs_max: int, bug_sources: Mapping[str, str]
    ) -> None:
        self._starts = list(starts)
        self._runs_max = runs_max
        self._sources = bug_sources
        """Of every bug: what stands for the code and for the bug itself."""
        self._known: dict[str, evidence.Entry] = {}
        self.searches: list[Search] = []
        """Those of this call."""

    def take_known(self) -> None:
        """Take over what is kept of these sources."""
        document = evidence.kept(NAME)
        if document.get("start seeds") != self._starts:
            return
        for name, known in document.get("bugs", {}).items():
            sources = known.get("sources", "")
            # What a work tree held with changes nobody knows.
            if sources == self._sources.get(name) and not sources.endswith("+changes"):
                self._known[name] = known

    def is_known(self, bug: Bug) -> bool:
        """Whether it was found already, and need not be searched again."""
        return bug.name in self._known and bug.name not in self.missed

    @property
    def missed(self) -> list[str]:
        """The bugs that were searched and not found, or not soon."""
        return [name for name, known in sorted(self._known.items()) if not known["found"]]

    @property
    def to_do(self) -> list[str]:
        """The bugs that no call has searched on these sources."""
        return sorted(self._sources.keys() - self._known.keys())

    @property
    def count(self) -> int:
        return len(self.searches)

    @property
    def failed_count(self) -> int:
        return sum(not found.is_found for found in self.searches)

    def add(self, part: Search) -> None:
        self.searches.append(part)
        self._known[part.bug.name] = {
            "found": part.is_found,
            "median": part.median,
            "sources": self._sources[part.bug.name],
        }

    @property
    def verdict(self) -> str:
        """Which bugs were missed, and how many are still to be searched."""
        if self.missed:
            return f"missed: {', '.join(self.missed)}"
        return f"{len(self.to_do)} to do" if self.to_do else "all found"

    def keep(self) -> None:
        """Keep which bugs were found, and write the row of the evidence."""
        evidence.keep(NAME, {"start seeds": self._starts, "bugs": self._known})
        medians = [known["median"] for known in self._known.values() if known["found"]]
        count = f"{len(self._known)} bugs"
        if medians:
            count += f", half of them within {statistics.median(medians):g} runs"
        how = f"python -m tests.simulation.planted --runs-max {self._runs_max}"
        evidence.note(NAME, self.verdict, count, how, seed=", ".join(map(str, self._starts)))


def sources_of(at_commit: str, name: str) -> str:
    """Stands for all sources, the search and one bug at a commit."""
    searched = ("src", "tests/simulation/planted.py", "tests/simulation/planted_worker.py")
    own = f"tests/simulation/planted/{name}.toml"
    return evidence.sources(at_commit, *searched, own).replace("\n", " ")


def tell(found: Search, console: Console) -> None:
    """Print one search."""
    console.print(line(found), markup=False, highlight=False, soft_wrap=True)


def line(found: Search) -> str:
    """One search in one line, for a log."""
    fired = ", ".join(kind for kind, _ in found.fired.most_common(4)) or "nothing"
    text = f"{found.bug.name}: {counts(found)}; {fired}; {found.seconds:.0f} s"
    if found.problem:
        text += f"; {found.problem}"
    if not found.fired and found.other:
        seen = ", ".join(f"{what} ({count})" for what, count in found.other.most_common(4))
        text += f"; but {seen}"
    return text


def counts(found: Search) -> str:
    """Runs until found, per start; in brackets what was run without finding it."""
    return " ".join(
        str(count) if count is not None else f"({found.tried[start]})"
        for start, count in found.runs.items()
    )


def show(searches: Sequence[Search], console: Console) -> None:
    """One line per bug."""
    table = Table(title="planted bugs and the runs until the simulation found them")
    for column in ("bug", "fires", "profile", "runs until found"):
        table.add_column(column, overflow="fold")
    table.add_column("median", justify="right")
    table.add_column("seconds", justify="right")
    for found in searches:
        median = found.median
        fired = ", ".join(kind for kind, _ in found.fired.most_common(3))
        table.add_row(
            found.bug.name if found.is_found else f"[bold red]{found.bug.name}[/]",
            found.problem or fired or "[bold red]nothing[/]",
            found.bug.profile or "any",
            counts(found),
            "-" if median is None else f"{median:g}",
            f"{found.seconds:.0f}",
        )
    console.print(table)


def main() -> int:
    """Exit code 0 only if every bug was found from every start, and half of them soon."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="all if none is given")
    parser.add_argument("--seeds", type=int, default=STARTS_COUNT, help="how many start seeds")
    parser.add_argument("--runs-max", type=int, default=RUNS_MAX)
    parser.add_argument("--seconds-max", type=float, default=SECONDS_MAX, help="per bug")
    parser.add_argument("--profile", help="instead of the one that each bug names")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--evidence", action="store_true", help="write docs/evidence.md")
    arguments = parser.parse_args()
    console = Console()
    all_names = sorted({*names(), *arguments.names})
    try:
        bugs = [load(name) for name in arguments.names or names()]
    except BadPatch as error:
        console.print(f"[red]{error}[/red]")
        return 1
    if arguments.profile is not None:
        bugs = [replace(b, profile=arguments.profile) for b in bugs]
    starts = [SEEDS_APART * (index + 1) for index in range(arguments.seeds)]
    at_commit = evidence.commit()
    tally = Tally(
        starts, arguments.runs_max, {name: sources_of(at_commit, name) for name in all_names}
    )
    if arguments.evidence:
        tally.take_known()
        bugs = [bug for bug in bugs if not tally.is_known(bug)]
    code = campaigns.carry_out(
        search_each(bugs, starts, arguments.runs_max, arguments.seconds_max, arguments.jobs),
        tally,
        campaigns.Shown(console, "planted bugs", len(bugs)),
        tell,
        tally.keep if arguments.evidence else None,
    )
    show(sorted(tally.searches, key=lambda found: found.bug.name), console)
    return code


if __name__ == "__main__":
    sys.exit(main())
