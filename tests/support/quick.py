"""`make quick`: a plugin of pytest that fails a run whose tests take too much processor time.

Processor time, not time on the wall, because the machine may be busy with something else. What
counts is the set-up, call and teardown of tests in all processes; not imports, which depend on
whether bytecode is kept from an earlier run.
"""

import time
from collections import Counter
from collections.abc import Generator

import pytest

QUICK_CPU_S = 24.0
"""What the tests of `make quick` may take together: with 2 processes and 6 s for their start and
their imports, under 20 s on 2 idle cores. They take about 17 s; a busy machine makes that 20 s.
"""
SLOWEST_COUNT = 15


def verdict(spent_s: Counter[str], budget_s: float) -> list[str]:
    """Lines that say which tests to make cheaper; none while `spent_s` is within the budget."""
    if spent_s.total() <= budget_s:
        return []
    by_function: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for nodeid, seconds in spent_s.items():
        name = nodeid.split("[", 1)[0]
        by_function[name] += seconds
        counts[name] += 1
    return [
        f"make quick takes {spent_s.total():.1f} s of processor time; {budget_s:.0f} s is allowed "
        "(QUICK_CPU_S). Make the slowest tests cheaper, or mark them slow:",
        *(
            f"{seconds:7.2f} s  {counts[name]:4d} x  {name}"
            for name, seconds in by_function.most_common(SLOWEST_COUNT)
        ),
    ]


class Budget:
    """In a process that runs tests it measures them; in the one that reports it adds up."""

    def __init__(self) -> None:
        self._spent_s: Counter[str] = Counter()
        self._since_s = time.process_time()

    def pytest_runtest_logstart(self) -> None:
        self._since_s = time.process_time()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self,
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now_s = time.process_time()
        # xdist hands the attributes of a report on to the process that reports.
        report.cpu_s = now_s - self._since_s  # type: ignore[attr-defined]
        self._since_s = now_s
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._spent_s[report.nodeid] += report.cpu_s

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        is_worker = hasattr(session.config, "workerinput")
        passed = session.exitstatus == pytest.ExitCode.OK
        if passed and not is_worker and verdict(self._spent_s, QUICK_CPU_S):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in verdict(self._spent_s, QUICK_CPU_S):
            terminalreporter.write_line(line, red=True)
        terminalreporter.write_line(f"{self._spent_s.total():.1f} s of processor time in tests")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Budget(), "quick-budget")
