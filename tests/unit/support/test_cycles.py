"""When the memory of embedded brokers that start and stop counts as flat."""

from tests.support.cycles import Cycles

SAMPLES_COUNT = 40
STEP_KIB = 3500
"""What an allocator takes at once."""


def cycles(*, kib_each: int = 0, blocks_each: int = 0, step_kib: int = 0) -> Cycles:
    """500 of them, each of which leaves so much; in the middle memory rises by a step."""
    done = [500 * (number + 1) // SAMPLES_COUNT for number in range(SAMPLES_COUNT)]
    memory = tuple(41_000 + kib_each * count + step_kib * (count > 250) for count in done)
    return Cycles(500, 0, 0, 0, memory, tuple(150_000 + blocks_each * count for count in done))


def test_a_step_of_the_allocator_is_flat() -> None:
    assert cycles().is_flat
    assert cycles(step_kib=STEP_KIB).is_flat


def test_one_object_that_each_cycle_leaves_is_not_flat() -> None:
    assert not cycles(blocks_each=1).is_flat


def test_memory_that_libraries_keep_of_each_cycle_is_not_flat() -> None:
    assert not cycles(kib_each=17).is_flat
