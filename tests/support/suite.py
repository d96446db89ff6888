"""`make test`: all tests but the soak, in two parts, and one line that sums them up.

The first part runs in several processes. The second runs alone, because its tests (marked `alone`)
judge time or memory, or load a broker that is killed again and again: they would fail, or prove
less, beside others. The second runs whatever the first found.

A test that hangs is ended by pytest-timeout, if it can be interrupted; else its process ends. A
part that hangs between tests is ended as well. Both tell in which lines.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.dealing import ALONE

JOBS_COUNT = 2
WAITING_COUNT = 1
"""More processes than cores: tests of clients and of Spark wait for half of their time."""
TEST_TIMEOUT_S = 1200
"""As long as the longest mark of pytest-timeout. Then the whole process has to go."""
PART_TIMEOUT_S = 2400
"""A part takes minutes."""
DUMP_TIMEOUT_S = 10
INTERRUPTED, NO_TESTS = 2, 5
"""Exit codes of pytest; that nothing was selected is no failure of one part."""
COUNTS = ("tests", "failures", "errors", "skipped")


def environment() -> dict[str, str]:
    """Ours, but bytecode is kept: every process would make it again."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


def children(pid: int) -> list[int]:
    """The direct children of a process; none where the system does not tell."""
    files = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for file in files for child in file.read_text().split()]


def is_running(pid: int) -> bool:
    """Whether it has not ended; one that has stays listed until its parent asks for its end."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def run_for(command: list[str], timeout_s: float) -> int:
    """Run it, and abort it and its children after that time: pytest then shows where each was."""
    process = subprocess.Popen(command, env=environment())
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        print(f"no end after {timeout_s:.0f} s; this is where it stood:", flush=True)
        workers = children(process.pid)
        for pid in workers:
            os.kill(pid, signal.SIGABRT)
        until = time.monotonic() + DUMP_TIMEOUT_S
        while any(map(is_running, workers)) and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(signal.SIGABRT)
        return process.wait()


def run_part(options: list[str], report: Path) -> tuple[int, dict[str, int]]:
    """Run pytest; returns its exit code and how many tests it ran, failed and skipped."""
    hanging = [f"faulthandler_timeout={TEST_TIMEOUT_S}", "faulthandler_exit_on_timeout=true"]
    limits = [word for setting in hanging for word in ("-o", setting)]
    command = [sys.executable, "-m", "pytest", "-q", f"--junit-xml={report}", *limits, *options]
    code = run_for(command, PART_TIMEOUT_S)
    suite = ElementTree.parse(report).getroot().find("testsuite") if report.exists() else None
    if suite is None:
        return code or 1, dict.fromkeys(COUNTS, 0)
    return code, {key: int(suite.get(key, "0")) for key in COUNTS}


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 when both parts passed. Options that are not ours are pytest's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS_COUNT, help="cores for the first part")
    options, for_pytest = parser.parse_known_args(arguments)
    processes_count = options.jobs + WAITING_COUNT
    in_parallel = ["-n", str(processes_count), "--dist", "loadscope", "--no-loadscope-reorder"]
    parts = {
        "in parallel": [*in_parallel, "-m", "not soak and not alone"],
        "alone": ["-m", ALONE],
    }
    totals = dict.fromkeys(COUNTS, 0)
    codes, times = [], []
    with TemporaryDirectory() as folder:
        for name, selection in parts.items():
            begun = time.monotonic()
            code, counts = run_part([*selection, *for_pytest], Path(folder) / "report.xml")
            codes.append(code)
            times.append(f"{name} {time.monotonic() - begun:.0f} s")
            totals = {key: totals[key] + counts[key] for key in COUNTS}
            if code == INTERRUPTED:
                break
    failed = totals["failures"] + totals["errors"]
    passed = totals["tests"] - failed - totals["skipped"]
    outcome = f"{passed} passed, {failed} failed, {totals['skipped']} skipped"
    print(f"in all: {outcome} ({', '.join(times)})")
    if all(code == NO_TESTS for code in codes):
        return NO_TESTS
    return max(code for code in codes if code != NO_TESTS)


if __name__ == "__main__":
    sys.exit(main())
