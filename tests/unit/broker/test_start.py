"""What a start imports, and what it leaves for later."""

import subprocess
import sys

from oncelog.broker.coordination.coordinators import import_machines
from oncelog.core.limits import MACHINE_IMPORT_DELAY_MS

LATER = (
    "oncelog.group.shard",
    "oncelog.transaction.shard",
    "oncelog.broker.apis.join_group",
    "oncelog.protocol.messages.leave_group",
    "kio",
    "ctypes",
)


def test_a_start_imports_no_machine_and_no_rare_message() -> None:
    code = f"import sys, oncelog.broker.broker; print([n for n in {LATER} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = done.stdout.strip()
    assert imported == "[]"


class Naps:
    """A clock whose sleeps are noted and take no time."""

    def __init__(self) -> None:
        self.slept_ms: list[float] = []

    def now_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> float:
        return 0.0

    async def sleep(self, delay_ms: float) -> None:
        self.slept_ms.append(delay_ms)


async def test_the_machines_are_imported_after_a_pause_in_pieces() -> None:
    clock = Naps()
    await import_machines(clock)
    assert clock.slept_ms[0] == MACHINE_IMPORT_DELAY_MS
    assert len(clock.slept_ms) > 2
    assert {"oncelog.group.shard", "oncelog.transaction.shard"} <= set(sys.modules)
