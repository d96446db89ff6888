"""What a leader checks of a batch's records, when it looks at them, and what it names."""

import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.limits import BATCH_DECOMPRESSED_BYTES_MAX, LOOKED_INTO_BYTES_MAX
from oncelog.protocol.batch import (
    HEADER,
    HEADER_SIZE,
    check_crc,
    read_header,
    renew_crc,
)
from oncelog.protocol.record import Record, build_batch, iter_records, repack_batch
from oncelog.storage.config import LogConfig
from oncelog.storage.producer_state import Origin
from oncelog.storage.validation import Checked, check_batches

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
DEFAULT = LogConfig()
COMPACTED = LogConfig(cleanup_policy=frozenset({"compact"}))
NONE, INVALID_RECORD, INVALID_TIMESTAMP, CORRUPT, TOO_LARGE = (
    ErrorCode.none,
    ErrorCode.invalid_record,
    ErrorCode.invalid_timestamp,
    ErrorCode.corrupt_message,
    ErrorCode.message_too_large,
)
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def batch(*keys: bytes | None, codec: str = "none") -> bytearray:
    records = [Record(n, NOW_MS, key, b"value", ()) for n, key in enumerate(keys)]
    return build_batch(records, codec=codec)


def timed(*times: int, codec: str = "none") -> bytearray:
    return build_batch([Record(n, t, b"k", b"v") for n, t in enumerate(times)], codec=codec)


def with_header(data: bytearray, **fields: int) -> bytearray:
    """The batch with other values in its header, and its CRC right."""
    header = read_header(data)._replace(**fields)
    HEADER.pack_into(data, 0, *header._replace(length=len(data) - 12))
    renew_crc(data, 0, len(data))
    return data


def check(data: bytearray, config: LogConfig = DEFAULT) -> Checked:
    return check_batches(data, config, Origin.CLIENT, NOW_MS)


def written(checked: Checked) -> bytearray:
    """What is written in place of the client's batch, which is sound."""
    assert checked.error is NONE, checked.message
    data = checked.rewritten
    assert data is not None
    ((position, header),) = checked.headers
    assert (position, header) == (0, read_header(data))
    assert check_crc(data, 0, header)
    return bytearray(data)


@pytest.mark.parametrize("codec", CODECS)
def test_a_compacted_topic_names_each_record_without_a_key(codec: str) -> None:
    """KIP-467: a client that drops these loses none of the others."""
    keys = [None if number % 10 == 3 else b"k%d" % number for number in range(100)]
    checked = check(batch(*keys, codec=codec), COMPACTED)
    assert checked.error is INVALID_RECORD
    assert [index for index, _ in checked.record_errors] == list(range(3, 100, 10))
    assert "10 of 100 records" in (checked.message or "")
    assert "record 3:" in (checked.message or "")


@pytest.mark.parametrize("codec", CODECS)
def test_a_compacted_topic_takes_records_with_keys(codec: str) -> None:
    data = batch(b"a", b"", codec=codec)
    before = bytes(data)
    assert written(check(data, COMPACTED)) == before


@pytest.mark.parametrize("codec", CODECS)
def test_other_topics_do_not_look_at_records(codec: str) -> None:
    data = with_header(batch(None, b"b", codec=codec), record_count=1, last_offset_delta=0)
    checked = check(data)
    assert (checked.error, checked.rewritten) == (NONE, None)


@pytest.mark.parametrize(
    ("codec", "code"), [("none", INVALID_RECORD)] + [(codec, CORRUPT) for codec in CODECS[1:]]
)
def test_records_that_are_none_are_refused_where_they_are_looked_at(
    codec: str, code: ErrorCode
) -> None:
    damaged = batch(*[b"key"] * 50, codec=codec)
    damaged[HEADER_SIZE:] = b"\xff" * (len(damaged) - HEADER_SIZE)
    renew_crc(damaged, 0, len(damaged))
    assert check(damaged, COMPACTED).error is code
    assert check(damaged, LogConfig(compression_type="gzip")).error in (code, NONE)


@pytest.mark.parametrize("more", [-1, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_a_count_that_is_not_that_of_the_records_is_invalid(codec: str, more: int) -> None:
    lying = with_header(
        batch(b"a", b"b", b"c", codec=codec), record_count=3 + more, last_offset_delta=2 + more
    )
    assert check(lying, COMPACTED).error is INVALID_RECORD


@pytest.mark.parametrize("codec", CODECS)
def test_more_records_than_there_can_be_are_invalid_on_any_topic(codec: str) -> None:
    lying = with_header(
        batch(b"a", codec=codec), record_count=2**31 - 1, last_offset_delta=2**31 - 2
    )
    assert check(lying).error is INVALID_RECORD


def test_offset_deltas_that_are_not_consecutive_are_named() -> None:
    records = [Record(offset, NOW_MS, b"k", b"v") for offset in (0, 1, 3)]
    data = with_header(build_batch(records, keep_offsets=True), last_offset_delta=2)
    checked = check(data, COMPACTED)
    assert (checked.error, [n for n, _ in checked.record_errors]) == (INVALID_RECORD, [2])


@pytest.mark.parametrize("codec", CODECS)
def test_records_too_far_ahead_are_named(codec: str) -> None:
    late = NOW_MS + HOUR_MS + 1
    times = [late if number in (4, 7) else NOW_MS for number in range(10)]
    checked = check(timed(*times, codec=codec))
    assert (checked.error, [n for n, _ in checked.record_errors]) == (INVALID_TIMESTAMP, [4, 7])


def test_the_first_fault_of_a_record_is_named_and_a_bad_timestamp_names_the_error() -> None:
    late = NOW_MS + HOUR_MS + 1
    records = [Record(0, late, None, b"v"), Record(1, NOW_MS, b"k", b"v")]
    checked = check(build_batch(records), COMPACTED)
    assert (checked.error, len(checked.record_errors)) == (INVALID_RECORD, 1)
    checked = check(build_batch([*records, Record(2, late, b"k", b"v")]), COMPACTED)
    assert (checked.error, len(checked.record_errors)) == (INVALID_TIMESTAMP, 2)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("claimed", [-1, NOW_MS - 5, NOW_MS + 10 * HOUR_MS])
def test_a_header_that_cannot_be_right_is_put_right(codec: str, claimed: int) -> None:
    """Some clients leave the largest timestamp out; Kafka writes it."""
    data = with_header(timed(NOW_MS, NOW_MS + 7, NOW_MS + 3, codec=codec), max_timestamp=claimed)
    found = read_header(written(check(data)))
    assert (found.base_timestamp, found.max_timestamp) == (NOW_MS, NOW_MS + 7)


@pytest.mark.parametrize("before", [1000, LogConfig().message_timestamp_before_max_ms])
def test_records_without_timestamps_are_never_too_old(before: int) -> None:
    config = LogConfig(message_timestamp_before_max_ms=before)
    assert check(timed(-1, -1), config).error is NONE
    assert check(timed(-1, NOW_MS), config).error is NONE


def test_where_records_may_be_too_old_each_is_looked_at() -> None:
    config = LogConfig(message_timestamp_before_max_ms=1000)
    checked = check(timed(NOW_MS, NOW_MS - 1001, NOW_MS - 1000), config)
    assert (checked.error, [n for n, _ in checked.record_errors]) == (INVALID_TIMESTAMP, [1])
    assert check(timed(NOW_MS, NOW_MS - 1000), config).error is NONE


@pytest.mark.parametrize("time", [-2, -(2**63)])
def test_a_time_before_the_epoch_is_no_reason_to_fail(time: int) -> None:
    data = with_header(timed(NOW_MS), base_timestamp=time)
    assert check(data).error in (NONE, INVALID_TIMESTAMP)


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_a_producer_may_not_stamp_as_the_broker_does(kind: str) -> None:
    data = with_header(timed(NOW_MS), attributes=0x08)
    assert check(data, LogConfig(message_timestamp_type=kind)).error is INVALID_TIMESTAMP


def test_a_stamped_topic_takes_any_time() -> None:
    config = LogConfig(message_timestamp_type="LogAppendTime", compression_type="lz4")
    assert written(check(timed(NOW_MS + 10 * HOUR_MS, 5), config))


def settings(wanted: str, **options: Any) -> LogConfig:
    return LogConfig(compression_type=wanted, **options)


def test_a_batch_that_grows_under_another_codec_is_measured_again() -> None:
    data = batch(*[b"the same key"] * 500, codec="zstd")
    size = len(repack(data))
    assert len(data) < 1000 < size
    assert check(data, settings("uncompressed", max_message_bytes=size)).error is NONE
    assert check(data, settings("uncompressed", max_message_bytes=size - 1)).error is TOO_LARGE
    assert check(data, settings("uncompressed", segment_bytes=size)).error is NONE
    refused = check(data, settings("uncompressed", segment_bytes=size - 1))
    assert refused.error is ErrorCode.record_list_too_large


def test_a_batch_that_shrinks_under_another_codec_may_fit_into_a_segment() -> None:
    data = batch(*[b"the same key"] * 500)
    small = settings("zstd", segment_bytes=1000)
    assert len(data) > 1000 > len(written(check(data, small)))
    too_large = check(data, replace(small, max_message_bytes=1000))
    assert too_large.error is TOO_LARGE


def repack(data: bytearray) -> bytearray:
    header = read_header(data)
    records = [Record(r.offset, r.timestamp, r.key, r.value) for r in iter_records(data, 0, header)]
    return build_batch(records)


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_a_level_changes_what_is_written_but_not_the_records(codec: str) -> None:
    keys = [b"%d" % (number * 7919 % 1009) for number in range(3000)]
    data = batch(*keys)
    packed = {
        level: written(check(bytearray(data), settings(codec, compression_level=level)))
        for level in (1, 12 if codec == "lz4" else 9)
    }
    low, high = packed.values()
    assert len(high) < len(low)
    for each in (low, high):
        header = read_header(each)
        assert [record.key for record in iter_records(each, 0, header)] == keys


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_what_unpacks_to_too_much_is_refused_in_bounded_memory(codec: str) -> None:
    size = LOOKED_INTO_BYTES_MAX * 2
    bomb = repack_batch(batch(b"k"), 0, bytes(size), codec)
    tracemalloc.start()
    try:
        checked = check(bomb, COMPACTED)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert checked.error is TOO_LARGE
    assert peak < 2 * BATCH_DECOMPRESSED_BYTES_MAX
