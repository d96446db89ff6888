"""Reads CPU time, memory and system calls of a process, and dirty pages.

The CPU time of a process comes from its CPU clock, which has nanoseconds and includes threads that
are gone. Linux splits it into user and system time by sampling at each timer tick (4 ms at 250 Hz)
and tells it in units of 10 ms, so the split is good over seconds of work and no better.
"""

import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
ATTACH_S = 0.3
DETACH_TIMEOUT_S = 30
BLOCK = bytes(2**20)
FULL_SHARE = 0.97
FILL_S_MAX = 20
FILL_BLOCKS = 64
QUIET_PAGES = 4096
"""Fewer pages than these (16 MB) on their way to the disk disturb nobody."""


@dataclass(frozen=True, slots=True)
class CpuTime:
    """CPU seconds that a process has used."""

    total_s: float
    user_s: float
    system_s: float

    def since(self, earlier: "CpuTime") -> "CpuTime":
        """Return the CPU time in between, the split scaled to the exact total."""
        total = self.total_s - earlier.total_s
        user, system = self.user_s - earlier.user_s, self.system_s - earlier.system_s
        ticked = user + system
        scale = total / ticked if ticked > 0 else 0.0
        return CpuTime(total, user * scale, system * scale)


def cpu_time(pid: int) -> CpuTime:
    """CPU time of all threads of a process, dead ones included (Linux)."""
    # How the kernel numbers the CPU clock of another process: ~pid << 3 | CPUCLOCK_SCHED.
    total = time.clock_gettime(~pid << 3 | 2)
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return CpuTime(total, int(fields[11]) * TICK_S, int(fields[12]) * TICK_S)


def raise_file_limit() -> None:
    """Let the brokers that this process starts open as many files as the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def resident_mb(pid: int) -> float:
    """Resident memory of a process in MB (10^6 bytes)."""
    resident_pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return resident_pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def pss_mb(pid: int) -> float:
    """Memory of a process in MB, pages that it shares by their share (`proc_pid_smaps(5)`)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    (found,) = [line for line in lines if line.startswith("Pss:")]
    return int(found.split()[1]) * 1024 / 1e6


def forget_peak(pid: int) -> None:
    """Let the peak of a process's resident memory begin anew (Linux, proc_pid_clear_refs(5))."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_mb(pid: int) -> float:
    """The most resident memory that a process has had since `forget_peak`, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (peak,) = [line for line in lines if line.startswith("VmHWM:")]
    return int(peak.split()[1]) * 1024 / 1e6


# --- system calls


def system_call_tool() -> str | None:
    """What counts system calls here; None if nothing can."""
    if shutil.which("perf") and count_with_perf(os.getpid(), lambda: time.sleep(0.01)) is not None:
        return "perf stat"
    return "strace -c" if shutil.which("strace") else None


def count_system_calls(pid: int, work: Callable[[], object], tool: str) -> int | None:
    """System calls of all threads of a process while `work` runs; None if the tool told nothing."""
    counter = count_with_perf if tool == "perf stat" else count_with_strace
    return counter(pid, work)


def count_with_perf(pid: int, work: Callable[[], object]) -> int | None:
    """By the kernel's tracepoint: costs the process a few per cent."""
    command = ["perf", "stat", "-x,", "-e", "raw_syscalls:sys_enter", "-p", str(pid)]
    return parse_perf(_while_attached(command, work))


def count_with_strace(pid: int, work: Callable[[], object]) -> int | None:
    """By stopping at every call: slows the process down several times, so counts only."""
    return calls_by_name(pid, work).get("total")


def calls_by_name(pid: int, work: Callable[[], object]) -> dict[str, int]:
    """System calls of a process while `work` runs, and their `total`; empty if none were told."""
    with tempfile.NamedTemporaryFile("r", prefix="oncelog-bench-") as told:
        _while_attached(["strace", "-f", "-c", "-qq", "-o", told.name, "-p", str(pid)], work)
        return parse_strace(told.read())


def _while_attached(command: list[str], work: Callable[[], object]) -> str:
    tool = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(ATTACH_S)
        work()
    finally:
        tool.send_signal(signal.SIGINT)
        _, told = tool.communicate(timeout=DETACH_TIMEOUT_S)
    return told


def parse_perf(told: str) -> int | None:
    """The count in the output of ``perf stat -x,``."""
    for line in told.splitlines():
        count, _, rest = line.partition(",")
        if "sys_enter" in rest and count.isdigit():
            return int(count)
    return None


def parse_strace(told: str) -> dict[str, int]:
    """Calls by name in the table of ``strace -c``: the count is the fourth column."""
    rows = [line.split() for line in told.splitlines()]
    return {row[-1]: int(row[3]) for row in rows if len(row) > 4 and row[3].isdecimal()}


# --- pages


def vmstat() -> dict[str, int]:
    """The kernel's counters of pages."""
    lines = Path("/proc/vmstat").read_text().splitlines()
    return {key: int(value) for key, value in (line.split() for line in lines)}


def page_mb(pages: int) -> float:
    """Pages in MB."""
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def dirty_background_mb() -> float:
    """From how much on the kernel writes dirty pages to the disk by itself."""
    return page_mb(vmstat()["nr_dirty_background_threshold"])


def dirty_limit_mb() -> float:
    """How much may be dirty before the kernel holds writers up, so that the disk keeps pace.

    Halfway between the two thresholds (`dirty_freerun_ceiling` in mm/page-writeback.c).
    """
    pages = vmstat()
    return page_mb((pages["nr_dirty_background_threshold"] + pages["nr_dirty_threshold"]) // 2)


def touch(folder: Path, megabytes: float) -> None:
    """Write a file of this size and remove it: its pages are what the next writer is given.

    On a virtual machine, memory that is not in use belongs to the host, which gives it back page by
    page on first touch. That costs about 2 s of CPU per GB.
    """
    path = folder / "touched"
    with path.open("wb", buffering=0) as file:
        for _ in range(int(megabytes)):
            file.write(BLOCK)
    path.unlink()


def fill_dirty(path: Path) -> None:
    """Write zeros to a file, from its beginning, until the kernel is about to hold up writers."""
    limit_mb = dirty_limit_mb() * FULL_SHARE
    deadline = time.monotonic() + FILL_S_MAX
    with path.open("r+b" if path.exists() else "wb", buffering=0) as file:
        while time.monotonic() < deadline:
            for _ in range(FILL_BLOCKS):
                file.write(BLOCK)
            pages = vmstat()
            if page_mb(pages["nr_dirty"] + pages["nr_writeback"]) >= limit_mb:
                return


def wait_clean(timeout_s: float = 60) -> None:
    """Wait until next to nothing is on its way to the disk."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        pages = vmstat()
        if pages["nr_dirty"] + pages["nr_writeback"] < QUIET_PAGES:
            return
        os.sync()
        time.sleep(0.05)
