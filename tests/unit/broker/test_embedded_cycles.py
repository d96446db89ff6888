"""What embedded brokers leave behind that are started and stopped many times: nothing."""

import pytest

from tests.support.cycles import Cycles, measure_cycles

CYCLES_COUNT = 12
CYCLES_COUNT_FULL = 500
CYCLES_FULL_TIMEOUT_S = 600


def flat(cycles: Cycles) -> None:
    assert cycles.threads_growth == 0
    assert cycles.descriptors_growth == 0
    assert cycles.temporary_folders_count == 0


@pytest.mark.slow
def test_starts_and_stops_leave_no_thread_descriptor_or_folder() -> None:
    flat(measure_cycles(CYCLES_COUNT))


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.timeout(CYCLES_FULL_TIMEOUT_S)
def test_five_hundred_starts_and_stops_leave_nothing_and_memory_flat() -> None:
    cycles = measure_cycles(CYCLES_COUNT_FULL)
    flat(cycles)
    assert cycles.is_memory_flat, cycles
