"""What is read from the system: CPU time, counts of system calls, pages."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import gauges
from bench.gauges import CpuTime, parse_perf, parse_strace

TAKES_MEMORY = """
import sys
print(flush=True)
sys.stdin.readline()
bytearray(64_000_000)
print(flush=True)
sys.stdin.readline()
"""
PERF = "3436,,raw_syscalls:sys_enter,30518902,100.00,,\n"
STRACE = """% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 83.78    0.026060          16      1560        12 recvfrom
 16.22    0.005044           3      1560           sendto
------ ----------- ----------- --------- --------- ----------------
100.00    0.031104           9      3120{errors} total
"""


def test_user_and_system_time_add_up_to_the_exact_total() -> None:
    used = CpuTime(10.123, 6.0, 3.0).since(CpuTime(9.0, 5.0, 2.5))
    assert used.total_s == pytest.approx(1.123)
    assert used.user_s + used.system_s == pytest.approx(1.123)
    assert used.user_s == pytest.approx(2 * used.system_s)


def test_work_shorter_than_a_tick_has_a_total_and_no_split() -> None:
    used = CpuTime(9.004, 5.0, 2.5).since(CpuTime(9.0, 5.0, 2.5))
    assert (used.user_s, used.system_s) == (0.0, 0.0)
    assert used.total_s == pytest.approx(0.004)


def test_the_cpu_clock_of_a_process_runs_while_it_works() -> None:
    before = gauges.cpu_time(os.getpid())
    sum(range(200_000))
    assert gauges.cpu_time(os.getpid()).total_s > before.total_s


def test_resident_memory_is_in_megabytes() -> None:
    assert 5 < gauges.resident_mb(os.getpid()) < 100_000


def test_the_peak_of_memory_is_of_the_time_since_it_was_forgotten() -> None:
    """Of a process of its own: the one that runs tests gives memory back whenever it likes."""
    command = [sys.executable, "-c", TAKES_MEMORY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        gauges.forget_peak(process.pid)
        before = gauges.peak_mb(process.pid)
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        assert gauges.peak_mb(process.pid) > before + 50
        gauges.forget_peak(process.pid)
        assert gauges.peak_mb(process.pid) < before + 20


def test_perf_tells_its_count() -> None:
    assert parse_perf(PERF) == 3436


@pytest.mark.parametrize(
    "told", ["", "<not counted>,,raw_syscalls:sys_enter,0,100.00,,\n", "Error: no permission\n"]
)
def test_a_perf_that_cannot_count_is_no_count_of_zero(told: str) -> None:
    assert parse_perf(told) is None


@pytest.mark.parametrize("errors", ["", "        12"], ids=["no errors", "errors"])
def test_strace_tells_the_calls_by_name_and_their_total(errors: str) -> None:
    calls = parse_strace(STRACE.format(errors=errors))
    assert calls == {"recvfrom": 1560, "sendto": 1560, "total": 3120}


def test_a_strace_that_saw_nothing_tells_nothing() -> None:
    assert parse_strace("") == {}


def test_touching_memory_leaves_no_file(tmp_path: Path) -> None:
    gauges.touch(tmp_path, 2)
    assert list(tmp_path.iterdir()) == []


def test_writers_are_held_up_between_the_kernels_two_thresholds() -> None:
    assert gauges.dirty_background_mb() <= gauges.dirty_limit_mb()
