"""Index files that a start believed without a record of them are compared from then on."""

from collections.abc import Callable
from pathlib import Path

import pytest

from oncelog.storage import AbortedTxn
from oncelog.storage.files import REGISTER_NAME
from oncelog.storage.segment_register import parse_register
from tests.unit.storage.context import NOW_MS, LogContext, batch

MakeLog = Callable[..., LogContext]
Change = Callable[[bytes], bytes]

SEGMENTS_COUNT = 3
DAMAGES: dict[str, Change] = {
    "missing": lambda _: b"",
    "its first record is damaged": lambda data: bytes([data[0] ^ 1]) + data[1:],
    "all its records are damaged": lambda data: bytes(byte ^ 1 for byte in data),
}


def retimed(by_ms: int) -> Change:
    """Another time in the last entry of a time index."""

    def change(data: bytes) -> bytes:
        time_ms = int.from_bytes(data[-12:-4]) + by_ms
        return data[:-12] + time_ms.to_bytes(8) + data[-4:]

    return change


CHANGES: list[tuple[str, Change]] = [
    (".timeindex", retimed(2**52)),  # A flipped bit: retention would keep the segment for ever.
    (".timeindex", retimed(-20_000)),
    (".timeindex", lambda data: data[:12]),
    (".txnindex", lambda _: b""),
    (".txnindex", lambda data: data[:9] + bytes([data[9] ^ 1]) + data[10:]),  # Another producer.
    (".index", lambda data: data[:8]),
]
"""Those that Kafka believes: the entries rise, and their count is whole."""


def fill(ctx: LogContext) -> None:
    """Each segment holds an aborted transaction, and times that rise by half a minute."""
    for number in range(SEGMENTS_COUNT):
        ctx.append_well(producer=1, epoch=0, sequence=number, transactional=True)
        ctx.end(1, 0, commit=False)
        for ahead in range(4):
            time_ms = NOW_MS + (number * 4 + ahead) * 30_000
            ctx.append_well(batch(2, timestamp_ms=time_ms))
        if number < SEGMENTS_COUNT - 1:
            ctx.log.roll(ctx.log.log_end_offset)


def aborted(ctx: LogContext) -> list[AbortedTxn]:
    return ctx.log.aborted_transactions(0, ctx.log.log_end_offset)


def wrong_times(ctx: LogContext) -> list[tuple[int, int | None, int | None]]:
    """(time, offset by the log, offset by reading every record), where they differ."""
    times = [(record.timestamp, record.offset) for record in ctx.records()]
    wrong = []
    for wanted_ms in sorted({0, *(time_ms for time_ms, _ in times), NOW_MS + 10**9}):
        naive = next((offset for time_ms, offset in times if time_ms >= wanted_ms), None)
        found = ctx.log.offset_for_timestamp(wanted_ms)
        if naive != (found.offset if found else None):
            wrong.append((wanted_ms, found.offset if found else None, naive))
    return wrong


def of_first_segment(folder: Path, suffix: str) -> Path:
    return min(folder.glob(f"*{suffix}"))


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("number", range(len(CHANGES)))
def test_a_change_after_the_register_was_lost_is_seen(
    make_log: MakeLog, damage: str, number: int
) -> None:
    """INV-9, INV-3: the start in between recorded the files as it believed them."""
    ctx = make_log(index_interval_bytes=1, segment_ms=2**62)
    fill(ctx)
    data, expected = ctx.all_bytes(), aborted(ctx)
    assert len(expected) == SEGMENTS_COUNT
    ctx.log.close()
    register = ctx.folder / REGISTER_NAME
    register.write_bytes(DAMAGES[damage](register.read_bytes()))
    ctx.open(clean=True)
    ctx.log.close()
    suffix, change = CHANGES[number]
    path = of_first_segment(ctx.folder, suffix)
    before = path.read_bytes()
    assert change(before) != before
    path.write_bytes(change(before))
    ctx.open(clean=True)
    for again in (ctx.restart, ctx.kill, ctx.restart):
        assert path.read_bytes() == before
        assert (ctx.all_bytes(), aborted(ctx), wrong_times(ctx)) == (data, expected, [])
        again()


def test_a_segment_is_recorded_by_the_start_that_believes_it(make_log: MakeLog) -> None:
    ctx = make_log(index_interval_bytes=1, segment_ms=2**62)
    fill(ctx)
    ctx.log.close()
    register = ctx.folder / REGISTER_NAME
    recorded = set(parse_register(register.read_bytes()))
    register.unlink()
    ctx.open(clean=True).close()
    assert set(parse_register(register.read_bytes())) == recorded
    assert ctx.open(clean=True).recovery.scanned_bytes == 0
