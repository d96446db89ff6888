"""No batch harms a log: it is refused with a code, or written and found by every lookup."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.core.limits import INT64_MAX
from oncelog.protocol.batch import check_crc, iter_headers
from oncelog.protocol.record import iter_records
from oncelog.runtime import SystemDisk
from oncelog.storage import LogConfig, PartitionLog
from tests.fuzz import batches

pytestmark = [pytest.mark.slow]

SEED = 20_262
BATCHES_COUNT = 1_500
LOOKED_INTO = {
    "compact": LogConfig(cleanup_policy=frozenset({"compact"})),
    "dated": LogConfig(message_timestamp_before_max_ms=60_000),
}
"""Topics where the leader looks at every record."""

CONFIGS = LOOKED_INTO | {
    "packed": LogConfig(compression_type="zstd", compression_level=1),
    "unpacked": LogConfig(compression_type="uncompressed"),
    "plain": LogConfig(),
    "undated": LogConfig(message_timestamp_after_max_ms=INT64_MAX),
    "stamped": LogConfig(message_timestamp_type="LogAppendTime"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_every_batch_is_refused_with_a_code_or_written_and_found(tmp_path: Path, name: str) -> None:
    r = random.Random(SEED)
    now_ms = time.time_ns() // 1_000_000
    log = PartitionLog.open(
        SystemDisk(), str(tmp_path / name), TopicPartition(name, 0), CONFIGS[name], now_ms
    )
    taken = 0
    for turn in range(BATCHES_COUNT):
        producer = r.choice(((-1, -1), (-1, -1), (-1, -1), (7, 0)))
        make = batches.bad if r.random() < 0.8 else batches.good
        result = log.append(bytearray(make(r, producer)), leader_epoch=0, now_ms=now_ms)
        if result.error is not ErrorCode.none:
            assert result.message, result
            assert result.base_offset == -1
            continue
        taken += 1
        for asked in (0, now_ms, now_ms + r.choice((-5, 5, 10**8)), INT64_MAX):
            found = log.offset_for_timestamp(asked)
            if found is not None:
                assert 0 <= found.offset < log.log_end_offset, (turn, asked, found)
                assert found.timestamp_ms <= INT64_MAX
        log.offset_for_timestamp(None)
    assert BATCHES_COUNT // 20 < taken < BATCHES_COUNT
    _read_all(log, has_sound_records=name in LOOKED_INTO)


def _read_all(log: PartitionLog, *, has_sound_records: bool) -> None:
    """Read every batch, and the records where the leader looked at them."""
    offset = 0
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20, upper_bound=log.log_end_offset)
        for position, header in iter_headers(data):
            assert check_crc(data, position, header)
            offset = header.next_offset
            if has_sound_records:
                offsets = [record.offset for record in iter_records(data, position, header)]
                assert offsets == list(range(header.base_offset, header.next_offset))
