"""Validates batches before a leader accepts them, and rewrites them where a config requires it.

Pure: its inputs are bytes, configs and a time. Of every batch the header, the sizes and the CRC are
checked. Kafka's `LogValidator` also parses each record. Here that takes many times as long as the
append itself (bench/records.py), so it is done only where records have to be parsed anyway, or
where the header cannot be right:

- the topic is compacted: every record needs a key;
- `compression.type` is not the batch's codec: the batch is rewritten;
- `message.timestamp.before.max.ms` is set: no header contains the smallest timestamp;
- the timestamps in the header contradict each other, or are too far ahead: the records' timestamps
  decide, and the header is corrected if all of them are valid.

Otherwise the header is trusted (D4), and readers of its fields allow for a wrong one:
`storage.lookup`, the time index, compaction, the client. docs/differences.md describes the
consequences.
"""

from collections.abc import Sequence
from typing import NamedTuple

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.limits import (
    BATCH_DECOMPRESSED_BYTES_MAX,
    INT64_MAX,
    LOOKED_INTO_BYTES_MAX,
    LOOKED_INTO_RECORDS_COUNT_MAX,
    RECORD_ERRORS_COUNT_MAX,
)
from oncelog.protocol.batch import (
    CODEC_MASK,
    CODEC_NAMES,
    CONTROL_MASK,
    HEADER_SIZE,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    check_crc,
    iter_headers,
    read_header,
    set_log_append_time,
    set_max_timestamp,
)
from oncelog.protocol.record import NO_TIMESTAMP, RECORD_SIZE_MIN, repack_batch, unpack_records
from oncelog.protocol.record_walk import EVERY_TIME, Times, Walked, walk_records
from oncelog.storage.config import LogConfig
from oncelog.storage.producer_state import Origin

__all__ = ["Checked", "RecordErrors", "apply_log_append_time", "check_batches"]

LOG_APPEND_TIME = "LogAppendTime"
COMPACT = "compact"
_PRODUCER_CODEC = "producer"
_ATTRIBUTES_MASK = CODEC_MASK | TIMESTAMP_TYPE_MASK | TRANSACTIONAL_MASK
"""The bits that a producer may set; the others are Kafka's own, or not assigned."""
_CODEC_IDS = {
    "uncompressed" if name == "none" else name: number for number, name in enumerate(CODEC_NAMES)
}
"""Codec numbers by their names in `compression.type`."""
_SAMPLE_COUNT = 3

MutableBuffer = bytearray | memoryview
_new = tuple.__new__
"""It takes half the time of a named tuple's own constructor."""
RecordErrors = Sequence[tuple[int, str]]
"""Indexes of records within their batch, each with what is wrong with it (KIP-467)."""


class Checked(NamedTuple):
    """Batches with their places in the buffer, or the reason to refuse them."""

    headers: list[tuple[int, BatchHeader]]
    error: ErrorCode = ErrorCode.none
    message: str | None = None
    record_errors: RecordErrors = ()
    rewritten: MutableBuffer | None = None
    """The rewritten batches."""


def check_batches(
    batches: MutableBuffer, config: LogConfig, origin: Origin, now_ms: int
) -> Checked:
    """Check the batches of one append, and rewrite a client's where a config requires it."""
    size = len(batches)
    is_replicated, is_client = origin is Origin.REPLICATION, origin is Origin.CLIENT
    if not size:
        return _refuse("no batches at all")
    try:
        first = read_header(batches, 0)
        headers = [(0, first)] if first.length == size else list(iter_headers(batches))
    except ProtocolError as error:
        return Checked([], error.code, error.message)
    # Kafka's LogValidator takes no second one since v2.
    if is_client and len(headers) != 1:
        return _refuse("a produce request carries exactly one batch per partition")
    next_offset = -1
    for position, header in headers:
        if is_replicated:
            if header.base_offset < next_offset:
                return Checked([], ErrorCode.corrupt_message, "replicated offsets do not rise")
            next_offset = header.next_offset
        elif (
            header.length > config.max_message_bytes
            or header.record_count != header.last_offset_delta + 1
            or header.record_count < 1
            or header.attributes & CODEC_MASK >= len(CODEC_NAMES)
            or (header.attributes & ~_ATTRIBUTES_MASK and not header.attributes & CONTROL_MASK)
        ):
            return _bad_header(header, config)
        # The header's count alone says how far offsets and sequences reach (INV-2), so a leader
        # never believes one that differs from them. A compacted batch comes by replication only.
        # A coordinator's batch was built here, with its CRC, from values in this process.
        if origin is not Origin.COORDINATOR and not check_crc(batches, position, header):
            return Checked([], ErrorCode.corrupt_message, "the CRC does not match the batch")
        if is_client:
            looked_into = _check_client(batches, header, config, now_ms)
            if looked_into is not None:
                return looked_into
    if not is_replicated and size > config.segment_bytes:
        return _more_than_a_segment(size, config)
    return _new(Checked, (headers, ErrorCode.none, None, (), None))


def _bad_header(header: BatchHeader, config: LogConfig) -> Checked:
    """Return the error of a batch header that no leader accepts."""
    if header.length > config.max_message_bytes:
        return _too_large(header.length, config)
    if header.record_count != header.last_offset_delta + 1 or header.record_count < 1:
        return _refuse(
            f"{header.record_count} records with last offset delta {header.last_offset_delta}"
        )
    if header.codec_id >= len(CODEC_NAMES):
        message = f"unknown compression codec {header.codec_id}"
        return Checked([], ErrorCode.unsupported_compression_type, message)
    return _refuse(f"attributes {header.attributes:#x} are not a producer's")


def _check_client(
    batches: MutableBuffer, header: BatchHeader, config: LogConfig, now_ms: int
) -> Checked | None:
    """Check the one batch of a client; None if it may be written as it is."""
    attributes = header.attributes
    # The leader assigns offsets; Kafka refuses others here, as the CRC does not cover them.
    if header.base_offset != 0:
        return _refuse(f"base offset {header.base_offset} in a produce request; it must be 0")
    if attributes & CONTROL_MASK:
        return _refuse("clients may not write control records")
    if header.producer_id >= 0:
        if header.base_sequence < 0 or header.producer_epoch < 0:
            return _refuse(
                f"sequence {header.base_sequence} and epoch {header.producer_epoch} "
                f"with producer id {header.producer_id}"
            )
    elif attributes & TRANSACTIONAL_MASK:
        return _refuse("a transactional batch without a producer id")
    if attributes & TIMESTAMP_TYPE_MASK:
        message = "a producer may not set the timestamp type LogAppendTime"
        return Checked([], ErrorCode.invalid_timestamp, message)
    codec_id = attributes & CODEC_MASK
    payload_size = BATCH_DECOMPRESSED_BYTES_MAX if codec_id else header.length - HEADER_SIZE
    if header.record_count * RECORD_SIZE_MIN > payload_size:
        return _refuse(f"{header.record_count} records in {payload_size} bytes")
    wanted = config.compression_type
    # Kafka looks into every batch. Here only where a topic's config needs more than the header: a
    # key per record (compaction), another codec, or a bound on the age of each record (KIP-937).
    if (
        COMPACT in config.cleanup_policy
        or (wanted != _PRODUCER_CODEC and codec_id != _CODEC_IDS[wanted])
        or (
            config.message_timestamp_type != LOG_APPEND_TIME
            and (
                header.max_timestamp - now_ms > config.message_timestamp_after_max_ms
                or not NO_TIMESTAMP <= header.base_timestamp <= header.max_timestamp
                or config.message_timestamp_before_max_ms != INT64_MAX
            )
        )
    ):
        return _look_into(batches, header, config, now_ms)
    return None


def _look_into(
    batches: MutableBuffer, header: BatchHeader, config: LogConfig, now_ms: int
) -> Checked:
    """Check every record, name the invalid ones, and rewrite the batch if a config requires it."""
    if header.record_count > LOOKED_INTO_RECORDS_COUNT_MAX:
        message = f"{header.record_count} records to look into"
        return Checked([], ErrorCode.message_too_large, message)
    is_stamped = config.message_timestamp_type == LOG_APPEND_TIME
    try:
        data = unpack_records(batches, 0, header, LOOKED_INTO_BYTES_MAX)
        walked = walk_records(data, header, EVERY_TIME if is_stamped else _times(config, now_ms))
    except ProtocolError as error:
        return Checked([], error.code, error.message)
    refusal = _faults(walked, header, config)
    if refusal is not None:
        return refusal
    rewritten, wanted = batches, config.compression_type
    if wanted != _PRODUCER_CODEC and header.codec_id != _CODEC_IDS[wanted]:
        codec = CODEC_NAMES[_CODEC_IDS[wanted]]
        rewritten = repack_batch(batches, 0, data, codec, config.compression_level)
    if not is_stamped and header.max_timestamp != walked.max_timestamp_ms:
        set_max_timestamp(rewritten, walked.max_timestamp_ms)
    # Kafka checks sizes again here: they differ under another codec.
    size = len(rewritten)
    if size > config.max_message_bytes:
        return _too_large(size, config)
    if size > config.segment_bytes:
        return _more_than_a_segment(size, config)
    return Checked([(0, read_header(rewritten))], rewritten=rewritten)


def _times(config: LogConfig, now_ms: int) -> Times:
    return Times(
        max(now_ms - config.message_timestamp_before_max_ms, EVERY_TIME.earliest_ms),
        min(now_ms + config.message_timestamp_after_max_ms, EVERY_TIME.latest_ms),
    )


def _faults(walked: Walked, header: BatchHeader, config: LogConfig) -> Checked | None:
    """Return the refusal with the first error of each record; None if all are valid.

    One record with a bad timestamp makes it INVALID_TIMESTAMP, as in Kafka.
    """
    faults: dict[int, str] = {}
    if COMPACT in config.cleanup_policy:
        faults.update(
            dict.fromkeys(walked.keyless, "a compacted topic takes no record without a key")
        )
    for index in walked.misplaced:
        faults.setdefault(index, "its offset delta is not its place in the batch")
    error = ErrorCode.invalid_record
    if config.message_timestamp_type != LOG_APPEND_TIME:
        for index in walked.untimely:
            if index not in faults:
                faults[index] = "its timestamp is too far from the broker's time"
                error = ErrorCode.invalid_timestamp
    if not faults:
        return None
    named = sorted(faults.items())[:RECORD_ERRORS_COUNT_MAX]
    some = "; ".join(f"record {index}: {fault}" for index, fault in named[:_SAMPLE_COUNT])
    message = f"{len(faults)} of {header.record_count} records are refused: {some}"
    return Checked([], error, message, named)


def apply_log_append_time(
    batches: MutableBuffer, headers: list[tuple[int, BatchHeader]], now_ms: int
) -> list[tuple[int, BatchHeader]]:
    """Stamp every batch with the broker's time, in place."""
    for position, header in headers:
        set_log_append_time(batches, position, header, now_ms)
    return [(position, read_header(batches, position)) for position, _ in headers]


def _too_large(size: int, config: LogConfig) -> Checked:
    message = f"{size} bytes are more than max.message.bytes={config.max_message_bytes}"
    return Checked([], ErrorCode.message_too_large, message)


def _more_than_a_segment(size: int, config: LogConfig) -> Checked:
    message = f"{size} bytes in one append are more than segment.bytes={config.segment_bytes}"
    return Checked([], ErrorCode.record_list_too_large, message)


def _refuse(message: str) -> Checked:
    return Checked([], ErrorCode.invalid_record, message)
