"""Runs many seeds in several processes, groups the findings, and minimises the first of each."""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from oncelog.simulation.coverage import Coverage
from oncelog.simulation.draw import draw_plan
from oncelog.simulation.history import Fault
from oncelog.simulation.known import RunFacts, known_as, known_defects
from oncelog.simulation.minimise import minimise
from oncelog.simulation.plan import Plan
from oncelog.simulation.progress import Display
from oncelog.simulation.roles import ROLES
from oncelog.simulation.run import RunResult, execute

__all__ = [
    "Campaign",
    "RunFinding",
    "Summary",
    "judge_run",
    "keep_what_is_there",
    "run_campaign",
    "run_plan",
    "run_seed",
    "run_seeds",
    "smallest",
]


RUNS_PER_PROCESS: Final = 200
"""Runs after which a worker process is replaced by a new one."""


@dataclass(frozen=True, slots=True)
class RunFinding:
    """One finding of a run, as text that can cross between processes."""

    signature: str
    detail: str
    known_as: str = ""
    issue: int = 0


@dataclass(frozen=True, slots=True)
class Summary:
    """The part of a run's result that a campaign stores."""

    seed: int
    profile: str
    digest: str
    simulated_s: float
    real_s: float
    event_count: int
    allowed_count: int
    findings: tuple[RunFinding, ...]
    coverage: str
    reached: frozenset[str] = frozenset()
    """See `oncelog.simulation.reach`."""
    brokers: int = 1

    @property
    def failed(self) -> bool:
        """Return whether there is a finding that is no known defect."""
        return any(not finding.known_as for finding in self.findings)


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The seed and settings of one run, for a worker process."""

    seed: int
    profile: str | None
    duration_s: float | None
    brokers: int | None = None
    secure: bool = False


def judge_run(result: RunResult) -> tuple[RunFinding, ...]:
    """Return one finding per signature, marked if it is a known defect."""
    struck = frozenset(fault.kind for fault in result.history.of(Fault))
    facts = RunFacts(struck, result.plan.flush_every_message)
    found = [(a.kind, a.signature, a.detail) for a in result.anomalies if not a.allowed]
    for who, error in result.bugs:
        name = f"bug: {type(error).__name__}"
        found.append((name, name, f"{who}: {error}"))
    defects = known_defects()
    findings: dict[tuple[str, str], RunFinding] = {}
    for kind, signature, detail in found:
        defect = known_as(kind, detail, facts, defects)
        if defect is None:
            finding = RunFinding(signature, detail)
        else:
            finding = RunFinding(signature, detail, defect.name, defect.issue)
        findings.setdefault((signature, finding.known_as), finding)
    return tuple(findings.values())


def run_seed(request: RunRequest) -> Summary:
    """Simulate one seed."""
    return run_plan(
        draw_plan(
            request.seed,
            request.profile,
            request.duration_s,
            request.brokers,
            secure=request.secure,
        )
    )


def run_plan(plan: Plan) -> Summary:
    """Simulate one plan."""
    result = execute(plan, ROLES)
    return Summary(
        plan.seed,
        plan.profile,
        result.digest,
        result.simulated_s,
        result.real_s,
        len(result.history),
        sum(1 for anomaly in result.anomalies if anomaly.allowed),
        judge_run(result),
        result.coverage.to_json(),
        result.reached,
        plan.brokers,
    )


def run_seeds(
    seeds: Iterable[int],
    profile: str | None,
    duration_s: float | None,
    jobs: int,
    brokers: int | None = None,
    *,
    secure: bool = False,
) -> Iterator[Summary]:
    """Simulate many seeds in several processes; yield each summary when its run ends."""
    requests = (RunRequest(seed, profile, duration_s, brokers, secure) for seed in seeds)
    if jobs == 1:
        yield from map(run_seed, requests)
        return
    context = multiprocessing.get_context("fork")
    with context.Pool(jobs, keep_what_is_there, maxtasksperchild=RUNS_PER_PROCESS) as pool:
        yield from pool.imap_unordered(run_seed, requests, chunksize=1)


def keep_what_is_there() -> None:
    """Exclude imported modules from garbage collection after each run."""
    gc.collect()
    gc.freeze()


def smallest(plan: Plan, wanted: str, runs_max: int = 80) -> tuple[Plan, int]:
    """Return the smallest plan that still has a finding of that signature."""

    def shows(smaller: Plan) -> bool:
        return any(f.signature == wanted for f in judge_run(execute(smaller, ROLES)))

    return minimise(plan, shows, runs_max)


@dataclass
class Campaign:
    """The result of many runs."""

    run_count: int = 0
    failed_seeds: list[int] = field(default_factory=list)
    simulated_s: float = 0.0
    event_count: int = 0
    allowed_count: int = 0
    profiles: Counter[str] = field(default_factory=Counter)
    several_brokers_count: int = 0
    """How many of the runs had several brokers."""
    unknown: dict[str, tuple[int, RunFinding]] = field(default_factory=dict)
    """Signature -> (the first seed that shows it, the finding)."""
    known: Counter[tuple[str, int]] = field(default_factory=Counter)
    """(name, issue) -> runs."""
    coverage: Coverage = field(default_factory=Coverage)
    began_s: float = field(default_factory=time.monotonic)

    def add(self, summary: Summary) -> list[RunFinding]:
        """Add one run; return its findings that are new and no known defect."""
        new = []
        self.run_count += 1
        self.simulated_s += summary.simulated_s
        self.event_count += summary.event_count
        self.allowed_count += summary.allowed_count
        self.profiles[summary.profile] += 1
        self.several_brokers_count += summary.brokers > 1
        self.coverage.merge(Coverage.from_json(summary.coverage))
        if summary.failed:
            self.failed_seeds.append(summary.seed)
        for finding in summary.findings:
            if finding.known_as:
                self.known[finding.known_as, finding.issue] += 1
            elif finding.signature not in self.unknown:
                self.unknown[finding.signature] = summary.seed, finding
                new.append(finding)
        return new

    @property
    def runs_per_minute(self) -> float:
        """Return the runs per minute of real time."""
        return 60.0 * self.run_count / max(time.monotonic() - self.began_s, 1e-9)


def run_campaign(
    seeds: range,
    profile: str | None,
    duration_s: float | None,
    jobs: int,
    tell: Callable[[Summary, RunFinding], None],
    brokers: int | None = None,
    *,
    secure: bool = False,
) -> Campaign:
    """Run a campaign and show its progress; `tell` is called with each finding that is new."""
    campaign = Campaign()
    with Display(len(seeds)) as display:
        for summary in run_seeds(seeds, profile, duration_s, jobs, brokers, secure=secure):
            for finding in campaign.add(summary):
                tell(summary, finding)
            display.update(summary)
    return campaign
