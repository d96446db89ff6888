"""A client that knows every byte of its logs, and compares every answer with them."""

from __future__ import annotations

from pathlib import Path

from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.record import Record, build_batch
from oncelog.simulation.peers import exact_log
from oncelog.simulation.peers.exact_log import ExactLogs
from oncelog.simulation.peers.exact_logs import KnownLog, LogMark, same_batches
from tests.unit.simulation.peers.world import play, stuck, world


def batch(*times: int) -> bytes:
    return bytes(build_batch([Record(0, time, None, b"v", []) for time in times]))


def known(*batches: tuple[int, ...]) -> KnownLog:
    log = KnownLog()
    for times in batches:
        log.append(batch(*times), times)
    return log


def test_every_answer_about_logs_is_as_their_bytes_say(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            context = w.context("c1.0", strict=True, pace_ms=5)
            await w.run([exact_log.run(context)], 5, lambda: w.network.cut_some(0.05))
            assert stuck(w.history.events) == []
            assert w.states() == ["settled"]
            meters = w.broker.dispatcher.meters
            versions = {version for (api, version), m in meters.items() if api == ApiKey.FETCH}
            assert versions == set(range(4, 19))

    play(story())


def test_a_log_that_another_client_writes_is_told(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            reader = ExactLogs(w.context("c1.0", strict=True, pace_ms=5))
            while not reader.total_batches:
                await reader.act()
            assert await reader.has_looked_at_everything()
            assert stuck(w.history.events) == []
            partition = w.broker.partitions.get(*TopicPartition(reader.topic, 0))
            assert partition is not None
            partition.append(memoryview(bytearray(batch(1))), now_ms=1)
            assert await reader.has_looked_at_everything()
            assert stuck(w.history.events)
            reader.close()

    play(story())


def test_a_read_has_whole_batches_within_its_limits() -> None:
    log = known((1, 2), (3,), (4,))
    size = len(log.batches[0].data)
    for offset, limit, end, first, bases in [
        (0, 10_000, 4, True, [0, 2, 3]),
        (1, size, 4, True, [0]),
        (0, 1, 4, True, [0]),
        (0, 1, 4, False, []),
        (2, 10_000, 3, True, [2]),
        (0, 10_000, 1, True, []),
    ]:
        found = log.read(offset, limit, end, whole_first=first)
        assert [each.base_offset for each in found] == bases, (offset, limit, end, first)


def test_lookups_by_time_pass_over_what_was_cut_off() -> None:
    log = known((5, 9), (3,), (7,))
    assert log.at_time(6, 4) == (9, 1)
    assert log.newest(4, 4) == (9, 1)
    log.start = 2
    assert log.at_time(6, 4) == (7, 3)
    assert log.at_time(8, 4) == (-1, -1)
    assert log.newest(4, 4) == (7, 3)
    assert log.newest(3, 4) == (-1, -1)


def test_the_high_watermark_is_behind_a_batch_and_never_falls() -> None:
    log = known((1, 2), (3,))
    assert [o for o in range(5) if log.is_high_watermark(o, LogMark(0, 3))] == [0, 2, 3]
    assert log.watermarks(LogMark(2, 3)) == [2, 3]
    assert not log.is_high_watermark(2, LogMark(3, 3))


def test_only_offset_and_leader_epoch_are_the_broker_s() -> None:
    log = known((1,), (2,))
    stored = bytearray(b"".join(each.data for each in log.batches))
    size = len(log.batches[0].data)
    stored[size : size + 8] = (1).to_bytes(8, "big")
    for start in (0, size):
        stored[start + 12 : start + 16] = (3).to_bytes(4, "big")
    assert same_batches(bytes(stored), log.batches, range(4))
    assert not same_batches(bytes(stored), log.batches, range(3))
    assert not same_batches(bytes(stored[:-1]), log.batches, range(4))
    stored[-1] ^= 1
    assert not same_batches(bytes(stored), log.batches, range(4))
