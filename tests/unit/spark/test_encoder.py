"""Rows to record batches for their targets, before the shuffle."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from oncelog.protocol.batch import iter_headers
from oncelog.protocol.hashing import partition_for_key
from oncelog.protocol.record import Record, iter_records
from oncelog.spark.codecs import HEADERS_TYPE
from oncelog.spark.encoder import Blob, BlobOrder, Encoder, from_arrow, to_arrow
from oncelog.spark.errors import UnknownTargetError, UsageError, WriteStageError
from oncelog.spark.targets import Targets

TARGETS = Targets(("out",), (3,))
NO_ROWS: Any = pa.RecordBatch.from_pydict({"value": pa.array([], pa.binary())})


def rows(values: Sequence[bytes | None], **columns: Any) -> Any:
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary()), **columns})


def encode(
    *batches: Any, targets: Targets = TARGETS, batch_size: int = 400, codec: str = "none"
) -> list[Blob]:
    encoder = Encoder(targets, batch_id=0, batch_size=batch_size, compression_type=codec)
    return [blob for some in encoder.encode(0, batches) for blob in some]


def records_of(blobs: list[Blob]) -> dict[int, list[Record]]:
    found: dict[int, list[Record]] = defaultdict(list)
    for blob in blobs:
        ((start, header),) = iter_headers(blob.data)
        found[blob.target] += iter_records(blob.data, start, header)
    return found


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_rows_of_one_target_keep_their_order_over_all_batches(codec: str) -> None:
    keys = [b"k%d" % (number % 7) for number in range(500)]
    numbers = [b"%d" % number for number in range(500)]
    parts = [
        rows(numbers[at : at + 60], key=pa.array(keys[at : at + 60], pa.binary()))
        for at in range(0, 500, 60)
    ]
    blobs = encode(*parts, codec=codec)
    assert len(blobs) > 10
    found = records_of(blobs)
    for target, records in found.items():
        expected = [
            (key, value)
            for key, value in zip(keys, numbers, strict=True)
            if partition_for_key(key, 3) == target
        ]
        assert [(record.key, record.value) for record in records] == expected
    assert sum(len(records) for records in found.values()) == 500
    order = BlobOrder()
    for blob in blobs:
        order.check(blob)


def test_rows_without_a_key_fill_one_batch_after_the_other_and_batches_take_turns() -> None:
    blobs = encode(*(rows([b"x" * 50] * 20) for _ in range(6)))
    sizes = {target: len(records) for target, records in records_of(blobs).items()}
    assert set(sizes) == {0, 1, 2}
    assert sum(sizes.values()) == 120
    assert max(sizes.values()) <= 2 * min(sizes.values())


def test_rows_without_a_key_leave_no_batch_half_empty() -> None:
    values = [b"%03d" % number * 30 for number in range(400)]
    blobs = encode(rows(values), batch_size=4096)
    assert len(blobs) > 10
    assert all(len(blob.data) > 2700 for blob in blobs[:-1])
    records = [record.value for blob in blobs for record in records_of([blob])[blob.target]]
    assert records == values


def test_small_micro_batches_begin_at_different_partitions() -> None:
    first = {
        next(Encoder(TARGETS, batch_id, 400, "none").encode(0, [rows([b"x"])]))[0].target
        for batch_id in range(3)
    }
    assert first == {0, 1, 2}


def test_no_batch_is_larger_than_its_topic_allows_and_no_larger_record_is_taken() -> None:
    targets = Targets(("a", "b"), (1, 1), size_limits=(200, 1000))
    topic = pa.array(["a", "b"] * 20, pa.string())
    blobs = encode(rows([b"x" * 30] * 40, topic=topic), targets=targets, batch_size=600)
    assert max(len(blob.data) for blob in blobs if blob.target == 0) <= 200
    assert 200 < max(len(blob.data) for blob in blobs if blob.target == 1) <= 600
    with pytest.raises(UsageError, match=r"takes 3\d\d bytes and topic 'a' allows 200"):
        encode(rows([b"x" * 300], topic=pa.array(["a"])), targets=targets)


def test_what_does_not_shrink_is_sent_as_it_is() -> None:
    (blob,) = encode(rows([b"x"]), codec="gzip")
    ((_, header),) = iter_headers(blob.data)
    assert header.codec == "none"


def test_a_row_that_cannot_be_a_record_is_refused_in_one_sentence() -> None:
    with pytest.raises(UnknownTargetError, match="partition 3"):
        encode(rows([b"x"], partition=pa.array([3], pa.int32())))
    for headers, message in (([None], "null entry"), ([{"key": None, "value": b""}], "a key")):
        with pytest.raises(UsageError, match=message):
            encode(rows([b"x", b"y"], headers=pa.array([None, headers], HEADERS_TYPE)))
    with pytest.raises(UsageError, match="before 1970"):
        encode(rows([b"x"], timestamp_us=pa.array([-5_000], pa.int64())))


def test_times_headers_and_nulls_arrive() -> None:
    headers = pa.array([[{"key": "h", "value": None}], None], HEADERS_TYPE)
    times = pa.array([7_000, None], pa.int64())
    (blob,) = encode(NO_ROWS, rows([b"x", None], headers=headers, timestamp_us=times))
    first, second = records_of([blob])[blob.target]
    assert (first.timestamp, first.headers) == (7, (("h", None),))
    assert second.value is None
    assert second.timestamp > 1_600_000_000_000
    assert encode(NO_ROWS) == []


def test_blobs_survive_the_shuffle_and_each_target_has_one_task() -> None:
    blobs = [Blob(target, 4, 0, 1, bytearray(b"data%d" % target)) for target in range(7)]
    batch = to_arrow(blobs, (7, 9, 8))
    assert list(from_arrow(batch)) == blobs
    again = to_arrow([Blob(5, 9, 3, 1, bytearray())], (7, 9, 8))
    tasks = dict(zip(batch.column("target").to_pylist(), batch.column(0).to_pylist(), strict=True))
    assert again.column(0)[0].as_py() == tasks[5]
    assert set(tasks.values()) == {7, 8, 9}


@pytest.mark.parametrize("number", [0, 2])
def test_a_blob_that_is_lost_or_comes_twice_fails_the_stage(number: int) -> None:
    order = BlobOrder()
    order.check(Blob(1, 0, 0, 1, bytearray()))
    order.check(Blob(1, 8, 0, 1, bytearray()))
    with pytest.raises(WriteStageError, match=f"delivered batch {number} of source partition 0"):
        order.check(Blob(1, 0, number, 1, bytearray()))
