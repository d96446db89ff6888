"""Arrow columns <-> Kafka record batches (format v2), without a Python object per record.

Decoding walks only the length of each record in Python; every other field is read for all records
at once, and keys and values are cut out of the batch's bytes by Arrow. Encoding builds the small
fields of all records at once and lets Arrow interleave them with keys and values. It must not know
Spark, and does no I/O.

Source: `DefaultRecord.java`, `DefaultRecordBatch.java` (varints are zig-zag).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.protocol.batch import (
    CODEC_NAMES,
    HEADER,
    HEADER_SIZE,
    BatchHeader,
    Buffer,
    WritableBuffer,
    iter_headers,
    renew_crc,
)
from oncelog.protocol.compression import compress, decompress
from oncelog.protocol.record import header_bytes
from oncelog.spark.record_bounds import record_bounds
from oncelog.spark.varints import VarintColumn, as_binary

__all__ = [
    "HEADERS_TYPE",
    "RECORD_OVERHEAD_SIZE_MAX",
    "DecodedRecords",
    "EncodedRecordBatch",
    "decode_batches",
    "encode_batches",
    "encode_runs",
]

HEADERS_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
"""As in Spark's Kafka source: ``array<struct<key:string,value:binary>>``."""

VARINT_SIZE_MAX: Final = 10
RECORD_OVERHEAD_SIZE_MAX: Final = 5 + 1 + 10 + 5 + 5 + 5 + 5
"""Largest size of: length, attributes, two deltas, key length, value length, header count."""

DECODE_SIZE_MAX: Final = 4 << 20
"""Bytes of records that are decoded together, unless one batch has more."""

ENCODE_SIZE_MAX: Final = 1 << 30
"""Bytes of keys and values interleaved at a time: Arrow's binary arrays end at 2 GiB."""

Uint8s = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DecodedRecords:
    """Columns of the records of some batches.

    `offsets` and `timestamps_ms` are int64; `timestamp_types` int32; the others Arrow arrays.
    """

    keys: Any
    values: Any
    offsets: Int64s
    timestamps_ms: Int64s
    timestamp_types: npt.NDArray[np.int32]
    headers: Any

    def __len__(self) -> int:
        return len(self.offsets)


@dataclass(frozen=True, slots=True)
class EncodedRecordBatch:
    """One record batch without a producer id, and how many records it holds.

    `data` can be written to. It may be a part of the memory that a few batches were encoded into.
    """

    data: WritableBuffer
    record_count: int


def decode_batches(buffer: Buffer, start_offset: int, end_offset: int) -> Iterator[DecodedRecords]:
    """Decode consecutive whole batches; yield their records with start <= offset < end.

    Small batches are decoded together. Control batches are left out. Raises `ProtocolError`
    (corrupt_message) for records that do not fit their batch. CRCs are not checked here.
    """
    group: list[tuple[BatchHeader, Buffer]] = []
    size = 0
    with memoryview(buffer) as view:
        for position, header in iter_headers(buffer):
            if header.is_control or header.record_count == 0 or header.last_offset < start_offset:
                continue
            if header.base_offset >= end_offset:
                break
            section: Buffer = view[position + HEADER_SIZE : position + header.length]
            if header.codec_id:
                section = decompress(header.codec, section)
            if group and size + len(section) > DECODE_SIZE_MAX:
                yield _within(_decode_records(group), start_offset, end_offset)
                group, size = [], 0
            group.append((header, section))
            size += len(section)
        if group:
            yield _within(_decode_records(group), start_offset, end_offset)


def _decode_records(batches: Sequence[tuple[BatchHeader, Buffer]]) -> DecodedRecords:
    # Fields are read a few bytes past the end of a short record: the last one has padding after it.
    data = b"".join([*(part for _, part in batches), bytes(VARINT_SIZE_MAX)])
    padded = np.frombuffer(data, np.uint8)
    section = memoryview(data)[:-VARINT_SIZE_MAX]
    counts = np.array([header.record_count for header, _ in batches])
    starts, ends = record_bounds(section, int(counts.sum()))
    firsts = np.cumsum(counts) - counts
    sizes = np.array([len(part) for _, part in batches])
    _, first_starts = _read_varints(padded, np.cumsum(sizes) - sizes)
    _require(bool((starts[firsts] == first_starts).all()), "a batch's records end elsewhere")

    def spread(field: Callable[[BatchHeader], int]) -> Int64s:
        return np.repeat(np.array([field(header) for header, _ in batches], np.int64), counts)

    deltas, at = _read_varints(padded, starts + 1)
    offset_deltas, at = _read_varints(padded, at)
    key_lengths, key_starts = _read_varints(padded, at)
    value_at = key_starts + np.maximum(key_lengths, 0)
    _require(bool((value_at <= ends).all()), "a key ends after its record")
    value_lengths, value_starts = _read_varints(padded, value_at)
    header_at = value_starts + np.maximum(value_lengths, 0)
    _require(bool((header_at <= ends).all()), "a value ends after its record")
    header_counts, header_starts = _read_varints(padded, header_at)
    _require(bool((header_starts <= ends).all()), "a header count stands after its record")
    types = spread(lambda header: header.timestamp_type)
    timestamps = deltas + spread(lambda header: header.base_timestamp)
    if types.any():
        timestamps = np.where(types, spread(lambda header: header.max_timestamp), timestamps)
    return DecodedRecords(
        _cut(section, key_starts, key_lengths),
        _cut(section, value_starts, value_lengths),
        offset_deltas + spread(lambda header: header.base_offset),
        timestamps,
        types.astype(np.int32),
        _decode_headers(section, header_counts, header_starts),
    )


def _read_varints(data: Uint8s, at: Int64s) -> tuple[Int64s, Int64s]:
    """Zig-zag varints at the given positions, and the positions after them."""
    byte = data[at]
    after = at + 1
    rows = np.flatnonzero(byte > 0x7F)
    value = byte.astype(np.uint64)
    value[rows] &= np.uint64(0x7F)
    shift = 7
    while len(rows):
        if shift > 63:
            raise _corrupt("a varint is longer than ten bytes")
        positions = after[rows]
        if int(positions.max()) >= len(data):
            raise _corrupt("a varint is cut")
        byte = data[positions]
        value[rows] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        after[rows] += 1
        rows = rows[(byte & 0x80) != 0]
        shift += 7
    signs = value & np.uint64(1)
    value >>= np.uint64(1)
    return value.view(np.int64) ^ -signs.view(np.int64), after


def _cut(section: memoryview, starts: Int64s, lengths: Int64s) -> Any:
    """The byte strings as one Arrow array.

    An array over the whole section, whose every second element is taken.
    """
    count = len(starts)
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = starts
    bounds[1::2] = starts + np.maximum(lengths, 0)
    everything = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(section)]
    )
    wanted = np.arange(0, 2 * count, 2, dtype=np.int64)
    return everything.take(pa.array(wanted, mask=lengths < 0))


def _decode_headers(section: memoryview, counts: Int64s, starts: Int64s) -> Any:
    """The headers column, null where a record has none. Records with headers are parsed singly."""
    if not counts.any():
        return pa.nulls(len(counts), HEADERS_TYPE)
    rows: list[list[dict[str, object]] | None] = [None] * len(counts)
    for row in np.flatnonzero(counts > 0).tolist():
        position = int(starts[row])
        entries: list[dict[str, object]] = []
        for _ in range(int(counts[row])):
            key, position = _one_string(section, position)
            value, position = _one_string(section, position)
            entries.append({"key": (key or b"").decode("utf-8", "replace"), "value": value})
        rows[row] = entries
    return pa.array(rows, HEADERS_TYPE)


def _one_string(section: memoryview, position: int) -> tuple[bytes | None, int]:
    shift = raw = 0
    while True:
        if position >= len(section) or shift > 28:
            raise _corrupt("a header is cut")
        byte = section[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    length = (raw >> 1) ^ -(raw & 1)
    if length < 0:
        return None, position
    if position + length > len(section):
        raise _corrupt("a header ends after its batch")
    return bytes(section[position : position + length]), position + length


def _within(records: DecodedRecords, start_offset: int, end_offset: int) -> DecodedRecords:
    offsets = records.offsets
    if offsets[0] >= start_offset and offsets[-1] < end_offset:
        return records
    first = int(np.searchsorted(offsets, start_offset))
    last = int(np.searchsorted(offsets, end_offset))
    cut = slice(first, last)
    return DecodedRecords(
        records.keys[cut],
        records.values[cut],
        offsets[cut],
        records.timestamps_ms[cut],
        records.timestamp_types[cut],
        records.headers[cut],
    )


def encode_batches(
    keys: Any,
    values: Any,
    headers: Any,
    timestamps_ms: Int64s,
    *,
    batch_size: int,
    codec: str = "none",
) -> Iterator[EncodedRecordBatch]:
    """Encode columns as record batches of at most `batch_size` bytes before compression.

    A larger record has a batch of its own. The rest is as in `encode_runs`.
    """
    runs = [(0, len(values), batch_size)]
    for _, batch in encode_runs(keys, values, headers, timestamps_ms, runs, codec=codec):
        yield batch


def encode_runs(
    keys: Any,
    values: Any,
    headers: Any,
    timestamps_ms: Int64s,
    runs: Sequence[tuple[int, int, int]],
    *,
    codec: str = "none",
) -> Iterator[tuple[int, EncodedRecordBatch]]:
    """Encode columns as record batches, none of which holds rows of two runs.

    A run is (first row, row after the last, bytes of a batch before compression); runs cover the
    rows in order. Yields (index of the run, batch), in the order of the rows.

    `keys`, `values`: binary arrays; `headers`: an array of `HEADERS_TYPE` or None. Producer id,
    epoch and sequence are -1: the producer stamps them.
    """
    count = len(values)
    if count == 0:
        return
    tails, tail_sizes = _encode_header_lists(headers, count)
    key_sizes, value_sizes = _lengths(keys), _lengths(values)
    sizes = np.maximum(key_sizes, 0) + np.maximum(value_sizes, 0) + tail_sizes
    sizes += RECORD_OVERHEAD_SIZE_MAX
    spans = [
        (index, first + start, first + end)
        for index, (first, last, batch_size) in enumerate(runs)
        for start, end in _spans(sizes[first:last], max(batch_size - HEADER_SIZE, 1))
    ]
    weights = np.add.reduceat(sizes, [first for _, first, _ in spans])
    for begin, end in _spans(weights, ENCODE_SIZE_MAX):
        part = spans[begin:end]
        rows = slice(part[0][1], part[-1][2])
        encoded = _encode_rows(
            (keys[rows], values[rows], tails[rows]),
            (key_sizes[rows], value_sizes[rows], tail_sizes[rows]),
            timestamps_ms[rows],
            [(first - rows.start, last - rows.start) for _, first, last in part],
            codec,
        )
        yield from zip((index for index, _, _ in part), encoded, strict=True)


def _encode_rows(
    columns: tuple[Any, Any, Any],
    column_sizes: tuple[Int64s, Int64s, Int64s],
    timestamps_ms: Int64s,
    spans: list[tuple[int, int]],
    codec: str,
) -> Iterator[EncodedRecordBatch]:
    keys, values, tails = columns
    key_sizes, value_sizes, tail_sizes = column_sizes
    firsts = np.array([first for first, _ in spans])
    counts = np.array([last - first for first, last in spans])
    batch_starts = np.repeat(firsts, counts)
    deltas = timestamps_ms - timestamps_ms[batch_starts]
    offset_deltas = np.arange(len(keys)) - batch_starts
    fields = [VarintColumn.of(field) for field in (deltas, offset_deltas, key_sizes, value_sizes)]
    body = np.maximum(key_sizes, 0) + np.maximum(value_sizes, 0) + tail_sizes + 1
    for field in fields:
        body += field.sizes
    *before_key, value_size = fields
    attributes = VarintColumn.of(np.zeros(len(keys), np.int64))
    # The header of each batch is written in front of its records later: no batch is copied.
    prefix = as_binary(
        [VarintColumn.of(body), attributes, *before_key], roomy=firsts.tolist(), room=HEADER_SIZE
    )
    middle = as_binary([value_size])
    records = pc.binary_join_element_wise(
        prefix, pc.fill_null(keys, b""), middle, pc.fill_null(values, b""), tails, b""
    )
    _, offsets_buffer, data_buffer = records.buffers()
    bounds = np.frombuffer(offsets_buffer, np.int32)[records.offset :]
    data = memoryview(data_buffer).cast("B")
    for first, last in spans:
        yield _frame(data[int(bounds[first]) : int(bounds[last])], timestamps_ms[first:last], codec)


def _frame(batch: WritableBuffer, timestamps_ms: Int64s, codec: str) -> EncodedRecordBatch:
    """Finish a batch that has room for its header."""
    if codec != "none":
        section = batch[HEADER_SIZE:]
        compressed = compress(codec, section)
        # Data that does not shrink is sent uncompressed, so that no batch exceeds the requested
        # size.
        if len(compressed) < len(section):
            batch = bytearray(HEADER_SIZE) + compressed
        else:
            codec = "none"
    count = len(timestamps_ms)
    length = len(batch) - 12
    HEADER.pack_into(
        batch, 0, 0, length, -1, 2, 0, CODEC_NAMES.index(codec), count - 1,
        int(timestamps_ms[0]), int(timestamps_ms.max()), -1, -1, -1, count,
    )  # fmt: skip
    renew_crc(batch, 0, len(batch))
    return EncodedRecordBatch(batch, count)


def _spans(sizes: Int64s, limit: int) -> Iterator[tuple[int, int]]:
    """Cut rows into runs whose sizes add up to at most `limit`; a run has at least one row."""
    ends = np.cumsum(sizes)
    first = 0
    while first < len(ends):
        before = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, before + limit, side="right")), first + 1)
        yield first, last
        first = last


def _lengths(column: Any) -> Int64s:
    """Length of each byte string, -1 for null, as records write it."""
    lengths = pc.fill_null(pc.binary_length(column), -1)
    return np.asarray(lengths).astype(np.int64)


def _encode_header_lists(headers: Any, count: int) -> tuple[Any, Int64s]:
    """The bytes after each value: header count and headers. One byte for records without any."""
    if headers is None or headers.null_count == count:
        data = pa.py_buffer(bytes(count))
        bounds = pa.py_buffer(np.arange(count + 1, dtype=np.int32))
        return pa.Array.from_buffers(pa.binary(), count, [None, bounds, data]), np.ones(
            count, np.int64
        )
    rows = [
        header_bytes([(entry["key"] or "", entry["value"]) for entry in entries or []])
        for entries in headers.to_pylist()
    ]
    sizes = np.fromiter((len(row) for row in rows), np.int64, count)
    return pa.array(rows, pa.binary()), sizes


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise _corrupt(message)


def _corrupt(message: str) -> ProtocolError:
    return ProtocolError(ErrorCode.corrupt_message, message)
