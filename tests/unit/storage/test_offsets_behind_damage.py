"""No CRC covers a batch's base offset: which one a start believes behind damage, and which not."""

from collections.abc import Callable
from pathlib import Path

import pytest

from oncelog.storage import CorruptBatch
from tests.unit.storage.context import LogContext

MakeLog = Callable[..., LogContext]

BATCHES_COUNT = 6
OFFSET_SIZE = 8
LAST_OFFSET_DELTA_AT = 23
COMPACT = frozenset({"compact"})
DELETE = frozenset({"delete"})


def written(ctx: LogContext, count: int = BATCHES_COUNT) -> tuple[Path, list[bytearray]]:
    """The file of the active segment, and its batches of one record each."""
    for number in range(count):
        ctx.append_well(value=b"%d" % number)
    data = ctx.all_bytes()
    size = len(data) // count
    (path,) = ctx.folder.glob("*.log")
    return path, [bytearray(data[at : at + size]) for at in range(0, len(data), size)]


def refused(ctx: LogContext) -> list[int]:
    """The offsets that the log answers with an error."""
    end = ctx.log.log_end_offset
    found = []
    for offset in range(end):
        try:
            ctx.log.read(offset, 1, upper_bound=end)
        except CorruptBatch:
            found.append(offset)
    return found


@pytest.mark.parametrize("policy", [DELETE, COMPACT])
@pytest.mark.parametrize("recovery_point", [4, BATCHES_COUNT])
@pytest.mark.parametrize("offset", [3, 0x1A00])
def test_a_jump_that_the_next_batch_contradicts_is_damage(
    make_log: MakeLog, recovery_point: int, policy: frozenset[str], offset: int
) -> None:
    """INV-9: a batch whose first bytes are another's has a sound CRC, and any offset."""
    ctx = make_log(cleanup_policy=policy)
    path, batches = written(ctx)
    batches[1][:OFFSET_SIZE] = offset.to_bytes(OFFSET_SIZE, "big")
    torn = batches[1][:40]
    path.write_bytes(b"".join([batches[0], torn, *batches[1:]]))
    for _ in range(3):
        ctx.open(recovery_point=recovery_point)
        assert ctx.log.log_end_offset == BATCHES_COUNT
        assert refused(ctx) == [1]
        assert bytes(ctx.log.read(2, 1, upper_bound=3)) == batches[2]


def test_a_due_offset_that_an_older_batch_contradicts_is_damage(make_log: MakeLog) -> None:
    """INV-9: a piece of the file stands in it twice, and its first batch got the offset due."""
    ctx = make_log()
    path, batches = written(ctx)
    spliced = batches[4][:OFFSET_SIZE] + batches[1][OFFSET_SIZE:]
    torn = batches[4][:40]
    path.write_bytes(b"".join([*batches[:4], torn, spliced, *batches[2:]]))
    for _ in range(3):
        ctx.open(recovery_point=BATCHES_COUNT)
        assert ctx.log.log_end_offset == BATCHES_COUNT
        assert bytes(ctx.log.read(4, 1, upper_bound=5)) == batches[4]
        assert bytes(ctx.log.read(5, 1, upper_bound=6)) == batches[5]


@pytest.mark.parametrize("offset", [1, 2])
@pytest.mark.parametrize("behind", [1, 2])
def test_an_offset_that_is_not_next_to_the_next_batch_is_damage(
    make_log: MakeLog, offset: int, behind: int
) -> None:
    """INV-9: a piece of the file is gone, from within a header to within the next offset."""
    ctx = make_log()
    path, batches = written(ctx)
    at = BATCHES_COUNT - behind - 1
    torn = batches[1][:49] + offset.to_bytes(OFFSET_SIZE, "big") + batches[at][OFFSET_SIZE:]
    path.write_bytes(b"".join([batches[0], torn, *batches[at + 1 :]]))
    for _ in range(3):
        ctx.open(recovery_point=BATCHES_COUNT)
        assert ctx.log.log_end_offset == BATCHES_COUNT
        assert refused(ctx) == list(range(1, at + 1))
        assert bytes(ctx.log.read(at + 1, 1, upper_bound=at + 2)) == batches[at + 1]


def test_gaps_of_a_log_that_was_compacted_once_are_believed_behind_damage(
    make_log: MakeLog,
) -> None:
    """Its policy says `delete` now: there are other gaps, so this one is no damage."""
    ctx = make_log()
    path, batches = written(ctx, 7)
    path.write_bytes(b"".join([batches[0][:70], batches[1], batches[3], *batches[5:]]))
    for _ in range(3):
        ctx.open(recovery_point=7)
        assert refused(ctx) == [0]
        assert bytes(ctx.log.read(1, 1, upper_bound=2)) == batches[1]


@pytest.mark.parametrize("policy", [DELETE, COMPACT])
@pytest.mark.parametrize("offset", [0x1A00, 2**40])
def test_a_long_jump_of_the_last_batch_is_damage(
    make_log: MakeLog, offset: int, policy: frozenset[str]
) -> None:
    """Compaction too leaves the segment alone that is being written."""
    ctx = make_log(cleanup_policy=policy)
    path, batches = written(ctx)
    batches[4][30] ^= 1
    batches[5][:OFFSET_SIZE] = offset.to_bytes(OFFSET_SIZE, "big")
    path.write_bytes(b"".join(batches))
    for _ in range(3):
        ctx.open(recovery_point=BATCHES_COUNT)
        assert ctx.log.log_end_offset == BATCHES_COUNT
        assert refused(ctx) == [4, 5]


@pytest.mark.parametrize("recovery_point", [2, 4, BATCHES_COUNT])
@pytest.mark.parametrize("damaged", [[1], [1, 2, 3, 4]])
def test_the_last_batch_is_found_behind_damage(
    make_log: MakeLog, recovery_point: int, damaged: list[int]
) -> None:
    """Also beyond the recovery point: it may have reached the disk before the loss of power."""
    ctx = make_log()
    path, batches = written(ctx)
    for number in damaged:
        batches[number][30] ^= 1
    path.write_bytes(b"".join(batches))
    for _ in range(3):
        ctx.open(recovery_point=recovery_point)
        assert ctx.log.log_end_offset == BATCHES_COUNT
        assert refused(ctx) == damaged
        assert bytes(ctx.log.read(5, 1, upper_bound=6)) == batches[5]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("byte", [OFFSET_SIZE, OFFSET_SIZE + 1, OFFSET_SIZE + 2])
def test_a_damaged_length_is_no_end_of_the_file(
    make_log: MakeLog, byte: int, *, clean: bool
) -> None:
    """Below the recovery point: a batch that was cut there has no sound one behind it."""
    ctx = make_log()
    path, batches = written(ctx)
    if clean:
        ctx.log.close()
    batches[2][byte] ^= 1
    path.write_bytes(b"".join(batches))
    for suffix in (".index", ".timeindex"):
        path.with_suffix(suffix).unlink(missing_ok=True)
    for _ in range(3):
        ctx.open(clean=clean, recovery_point=4)
        assert ctx.log.log_end_offset == BATCHES_COUNT
        assert refused(ctx) == [2]
        clean = False


@pytest.mark.parametrize("recovery_point", [0, BATCHES_COUNT])
def test_whole_batches_that_are_missing_are_told_once_for_each_file(
    make_log: MakeLog, recovery_point: int
) -> None:
    """Compaction leaves such gaps too, so nothing is cut and nothing is refused."""
    ctx = make_log()
    path, batches = written(ctx)
    path.write_bytes(b"".join([batches[0], batches[2], batches[4], batches[5]]))
    for _ in range(2):
        ctx.open(recovery_point=recovery_point)
        assert ctx.log.log_end_offset == BATCHES_COUNT
        assert refused(ctx) == []
        (said,) = ctx.log.recovery.reasons
        assert f"no batch of {path} has the offsets 1 to 1: they are lost, unless" in said


def test_gaps_of_a_compacted_log_are_not_told(make_log: MakeLog) -> None:
    ctx = make_log(cleanup_policy=COMPACT)
    path, batches = written(ctx)
    path.write_bytes(b"".join([batches[0], *batches[3:]]))
    ctx.open(recovery_point=BATCHES_COUNT)
    assert ctx.log.recovery.reasons == []


def test_a_batch_that_ends_before_it_begins_is_refused_when_it_is_read(make_log: MakeLog) -> None:
    """Nothing is scanned after a clean stop; the batch was passed over without a word."""
    ctx = make_log()
    path, batches = written(ctx)
    ctx.log.close()
    batches[2][LAST_OFFSET_DELTA_AT] ^= 0x80
    path.write_bytes(b"".join(batches))
    ctx.open(clean=True, recovery_point=BATCHES_COUNT)
    with pytest.raises(CorruptBatch, match="from offset 2 on"):
        ctx.log.read(2, 1, upper_bound=BATCHES_COUNT)


def test_damage_behind_a_truncation_is_forgotten(make_log: MakeLog) -> None:
    ctx = make_log()
    path, batches = written(ctx)
    batches[4][-1] ^= 1
    path.write_bytes(b"".join(batches))
    ctx.open(recovery_point=BATCHES_COUNT)
    assert refused(ctx) == [4]
    ctx.log.truncate_to(2)
    for _ in range(4):
        ctx.append_well(value=b"other")
    assert ctx.values()[2:] == [b"other"] * 4
    for offset in range(BATCHES_COUNT):
        warm = ctx.log.read(offset, 1 << 20, upper_bound=BATCHES_COUNT)
        cold = ctx.log.read_cold(offset, 1 << 20, upper_bound=BATCHES_COUNT)
        assert bytes(cold) == bytes(warm)
