"""``oncelog simulate``: the whole system under deterministic simulation.

``--seed`` does one run and prints its outcome. ``--runs`` does many in several processes; each new
kind of finding is minimised and printed with the command that replays it. With ``--search`` most of
them are changed plans of earlier runs that reached something new. Exit code 1 means that a defect
was found that is not known.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from oncelog.cli.output import console, warn
from oncelog.cli.tool import Failure, ToolCommand
from oncelog.simulation.campaign import (
    Campaign,
    RunFinding,
    Summary,
    judge_run,
    run_campaign,
    smallest,
)
from oncelog.simulation.draw import draw_plan
from oncelog.simulation.faults import PROFILES
from oncelog.simulation.plan import Plan, from_json, to_json
from oncelog.simulation.roles import ROLES
from oncelog.simulation.run import RunResult, execute
from oncelog.simulation.search import Corpus, Search, run_search
from oncelog.simulation.timeline import write_timeline

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["command"]


@click.command("simulate", cls=ToolCommand)
@click.option(
    "--seed", type=click.IntRange(min=0), metavar="N", help="Carry out the run of this seed."
)
@click.option("--plan", "plan_file", metavar="FILE", help="Carry out the run in this file.")
@click.option("--runs", type=click.IntRange(min=1), metavar="N", help="Carry out so many runs.")
@click.option("--first-seed", default=1, show_default=True, help="Seed of the first of --runs.")
@click.option("--search", is_flag=True, help="Change plans that reached something new.")
@click.option(
    "--corpus",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Keep the plans of --search there, and begin with those that are there.",
)
@click.option("--profile", type=click.Choice(sorted(PROFILES)), help="Schedule of faults.")
@click.option(
    "--brokers", type=click.IntRange(1, 5), metavar="N", help="One to five; drawn if not given."
)
@click.option("--secure", is_flag=True, help="Have users whose rights change; else drawn.")
@click.option("--duration", type=float, metavar="SECONDS", help="Virtual time with faults.")
@click.option("--without", default="", metavar="IDS", help="Leave out parts, such as c1,f3,r0.")
@click.option("--jobs", default=2, show_default=True, help="Processes for --runs.")
@click.option("--page", metavar="FILE", help="Write the timeline of the run as an HTML page.")
@click.option("--save", metavar="FILE", help="Write the plan of the run, for --plan.")
@click.option("--trace", metavar="FILE", help="Write every event that goes into the hash.")
@click.option("--minimise/--no-minimise", default=True, help="Make findings smaller.")
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Write the smallest plan of each finding there.",
)
@click.option("--evidence", metavar="FILE", help="Write what --runs add up to, as JSON.")
def command(
    seed: int | None,
    plan_file: str | None,
    runs: int | None,
    first_seed: int,
    search: bool,
    corpus: str | None,
    profile: str | None,
    brokers: int | None,
    secure: bool,
    duration: float | None,
    without: str,
    jobs: int,
    page: str | None,
    save: str | None,
    trace: str | None,
    minimise: bool,
    keep: str | None,
    evidence: str | None,
) -> None:
    """Search for defects under virtual time, where one seed decides everything."""
    if keep:
        Path(keep).mkdir(parents=True, exist_ok=True)
    if corpus and not search:
        raise click.UsageError("--corpus goes with --search")
    if search:
        if runs is None:
            raise click.UsageError("--search goes with --runs")
        wanted = Search(first_seed, profile, duration, _read_corpus(corpus))
        sys.exit(_search(wanted, runs, jobs, minimise, keep or ".", evidence))
    if runs is not None:
        seeds = range(first_seed, first_seed + runs)
        campaign = run_campaign(seeds, profile, duration, jobs, _warn, brokers, secure=secure)
        _print_campaign(campaign)
        if evidence:
            Path(evidence).write_text(json.dumps(_facts(campaign), indent=2) + "\n")
        for signature, (found_at, finding) in campaign.unknown.items():
            found = draw_plan(found_at, profile, duration, brokers, secure=secure)
            plan = _report(signature, finding, found, minimise)
            if keep:
                Path(keep, _file_name(signature)).write_text(to_json(plan) + "\n")
        sys.exit(1 if campaign.unknown else 0)
    if plan_file is not None:
        plan = _read_plan(plan_file)
    elif seed is not None:
        plan = draw_plan(seed, profile, duration, brokers, secure=secure)
    else:
        raise click.UsageError("give --seed, --plan or --runs")
    plan = plan.without([part for part in without.split(",") if part])
    if save:
        Path(save).write_text(to_json(plan) + "\n")
    result = execute(plan, ROLES, keep_trace=trace is not None)
    if trace:
        Path(trace).write_text("\n".join(result.trace) + "\n")
    if page:
        Path(page).write_text(_page(result))
    findings = judge_run(result)
    _print_run(result, findings)
    sys.exit(1 if any(not finding.known_as for finding in findings) else 0)


def replay_command(plan: Plan, left_out: Sequence[str] = ()) -> str:
    """The command that carries out that run again."""
    words = ["oncelog simulate", f"--seed {plan.seed}", f"--profile {plan.profile}"]
    words += [f"--duration {plan.duration_s:g}", f"--brokers {plan.brokers}"]
    if plan.security:
        words.append("--secure")
    if left_out:
        words.append(f"--without {','.join(left_out)}")
    return " ".join(words)


def _read_plan(path: str) -> Plan:
    try:
        return from_json(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError) as error:
        raise Failure(f"{path} is not a plan: {error}") from None


def _read_corpus(folder: str | None) -> Corpus:
    try:
        return Corpus(Path(folder) if folder else None)
    except OSError as error:
        raise Failure(f"cannot use {folder}: {error.strerror}") from None
    except ValueError as error:
        raise Failure(str(error)) from None


def _warn(summary: Summary, finding: RunFinding) -> None:
    warn(f"--seed {summary.seed} --profile {summary.profile}: {finding.detail}")


def _file_name(wanted: str) -> str:
    words = "".join(letter if letter.isalnum() else " " for letter in wanted.lower()).split()
    return f"{'_'.join(words)}.json"


def _search(
    search: Search, runs: int, jobs: int, minimise: bool, keep: str, evidence: str | None
) -> int:
    """Carry out a search and report it; returns the exit code.

    A finding is written before it is made smaller: no seed alone gives a changed plan again.
    """

    def write(plan: Plan, finding: RunFinding) -> Path:
        path = Path(keep, _file_name(finding.signature))
        path.write_text(to_json(plan) + "\n")
        return path

    def tell(plan: Plan, finding: RunFinding) -> None:
        warn(f"--plan {write(plan, finding)}: {finding.detail}")

    run_search(search, runs, jobs, tell)
    _print_campaign(search.campaign)
    _print_search(search)
    if evidence:
        facts = _facts(search.campaign) | {"search": search.facts()}
        Path(evidence).write_text(json.dumps(facts, indent=2) + "\n")
    for signature, (_, finding) in search.campaign.unknown.items():
        plan = _smaller(signature, finding, search.plans[signature], minimise)
        console().print(f"oncelog simulate --plan {write(plan, finding)}", style="bold")
    return 1 if search.campaign.unknown else 0


def _print_search(search: Search) -> None:
    console().print(
        f"{len(search.corpus.reached)} names reached"
        f" ({', '.join(map(str, search.tenths().values()))} after each tenth of the runs),"
        f" {len(search.corpus.plans)} plans kept; {search.mutated_count} runs were changed plans,"
        f" with {search.names_by_mutated} of the names and {search.findings_by_mutated} of"
        f" {len(search.campaign.unknown)} unknown findings"
    )


def _report(wanted: str, finding: RunFinding, plan: Plan, minimise: bool) -> Plan:
    """Print one finding, made smaller, with the command that replays it; returns what it runs."""
    small = _smaller(wanted, finding, plan, minimise)
    left_out = [part for part in plan.parts if part not in small.parts]
    console().print(replay_command(small, left_out), style="bold")
    return small


def _smaller(wanted: str, finding: RunFinding, plan: Plan, minimise: bool) -> Plan:
    """Print one finding; return its plan, made smaller."""
    print_ = console().print
    print_()
    print_(f"{wanted}: {finding.detail}", style="red")
    if not minimise:
        return plan
    small, run_count = smallest(plan, wanted)
    print_(f"{len(small.parts)} of {len(plan.parts)} parts show it, found in {run_count} runs")
    return small


def _print_campaign(campaign: Campaign) -> None:
    print_ = console().print
    print_(
        f"{campaign.run_count} runs, {campaign.several_brokers_count} of several brokers,"
        f" {campaign.event_count} events, {campaign.simulated_s:.0f} s of virtual time,"
        f" {campaign.runs_per_minute:.0f} runs per minute;"
        f" {campaign.allowed_count} losses that the settings allow"
    )
    for (name, issue), run_count in sorted(campaign.known.items()):
        print_(f"known, issue {issue}: {name}: {run_count} runs", style="yellow")
    verdict = f"{len(campaign.unknown)} unknown findings, {len(campaign.failed_seeds)} failed runs"
    print_(verdict, style="red" if campaign.unknown else "green")


def _facts(campaign: Campaign) -> dict[str, object]:
    return {
        "runs": campaign.run_count,
        "runs_of_several_brokers": campaign.several_brokers_count,
        "runs_per_minute": round(campaign.runs_per_minute, 1),
        "simulated_s": round(campaign.simulated_s, 1),
        "events": campaign.event_count,
        "profiles": dict(sorted(campaign.profiles.items())),
        "not_promised": campaign.allowed_count,
        "known": {f"issue {issue}: {name}": n for (name, issue), n in campaign.known.items()},
        "unknown": {name: [seed, f.detail] for name, (seed, f) in campaign.unknown.items()},
        "failed_seeds": campaign.failed_seeds,
        "coverage": json.loads(campaign.coverage.to_json()),
        "unreached": campaign.coverage.unreached(),
    }


def _page(result: RunResult) -> str:
    plan = result.plan
    title = f"seed {plan.seed}, {plan.profile}{_brokers(plan)}"
    return write_timeline(
        result.history, result.final, result.anomalies, title, replay_command(plan)
    )


def _brokers(plan: Plan) -> str:
    return f", {plan.brokers} brokers" if plan.brokers > 1 else ""


def _print_run(result: RunResult, findings: Sequence[RunFinding]) -> None:
    print_ = console().print
    plan = result.plan
    ratio = result.simulated_s / max(result.real_s, 1e-9)
    print_(
        f"seed {plan.seed}, {plan.profile}{_brokers(plan)}: {len(plan.clients)} clients,"
        f" {len(plan.faults)} faults,"
        f" {len(result.history)} events in {result.simulated_s:.1f} s of virtual time"
        f" ({ratio:.0f} to 1)"
    )
    print_(f"hash {result.digest}")
    for finding in findings:
        if finding.known_as:
            warn(f"known (issue {finding.issue}, {finding.known_as}): {finding.detail}")
        else:
            print_(f"{finding.signature}: {finding.detail}", style="red")
    if not findings:
        print_("nothing was found", style="green")
