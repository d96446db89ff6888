"""`python -m tests.fuzz --frames 1000000 --seed 1`: fuzz, with its row in docs/evidence.md.

Most frames go to the broker in this process; a share goes over sockets to a real `oncelog serve`.
Exit code 0 when nothing was found. The same seed makes the same choices.
"""

import argparse
import random
import sys
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.fuzz import campaign, sockets
from tests.support import evidence

SOCKET_FRAMES_SHARE = 0.005
SOCKET_FRAMES_MIN = 1_000
SHOWN_FINDINGS_COUNT = 10


def fuzz(frames: int, seed: int, console: Console) -> bool:
    """Run both parts, write the evidence, and say whether nothing was found."""
    begun = time.monotonic()
    over_sockets = max(SOCKET_FRAMES_MIN, round(frames * SOCKET_FRAMES_SHARE))
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[found]} findings"),
    )
    with Progress(*columns, console=console) as progress:
        inside = progress.add_task("in process", total=frames, found=0)
        outside = progress.add_task("over sockets", total=over_sockets, found=0)
        report = campaign.run(
            frames,
            seed,
            lambda done, now: progress.update(inside, completed=done, found=len(now.findings)),
        )
        served = sockets.run(
            over_sockets,
            seed,
            lambda done, now: progress.update(outside, completed=done, found=len(now.findings)),
        )
    findings = [*report.findings, *served.findings]
    for finding in findings[:SHOWN_FINDINGS_COUNT]:
        console.print(str(finding), style="red", markup=False, highlight=False)
    verdict = "no findings" if not findings else f"{len(findings)} findings"
    done = report.frames + served.frames
    how = f"python -m tests.fuzz --frames {frames} --seed {seed}"
    evidence.note("fuzz", verdict, f"{done:,} frames", how, seed=seed)
    console.print(f"fuzz: {done} frames in {time.monotonic() - begun:.0f} s, {verdict}")
    for part in (report, served):
        console.print(described(part))
    return not findings


def described(report: campaign.Report) -> dict[str, object]:
    """A report for the terminal."""
    return {
        "frames": report.frames,
        "by kind": dict(report.kinds.most_common()),
        "by outcome": dict(report.outcomes.most_common()),
        "answers read, by API": dict(report.answered.most_common()),
        "checks with a healthy client": report.health_checks,
        "slowest frame": f"{report.slowest_ms:.0f} ms ({report.slowest_kind})",
        "memory growth": f"{report.memory_growth_bytes / 2**20:.0f} MiB",
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    arguments = parser.parse_args()
    return 0 if fuzz(arguments.frames, arguments.seed, Console()) else 1


if __name__ == "__main__":
    sys.exit(main())
