"""What a batch must satisfy before a leader takes it, and the rewrites that some settings ask for.

Pure: bytes, settings and a time go in. Checked as Kafka's `LogValidator` does, short of the records
themselves: Kafka also walks the records to check their offsets and timestamps one by one; we trust
the CRC and the header (D4), and walk only for compacted topics, whose records need keys.
"""

from typing import NamedTuple

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.limits import LOOKED_INTO_BYTES_MAX, LOOKED_INTO_RECORDS_COUNT_MAX
from oncelog.protocol.batch import (
    CODEC_MASK,
    CODEC_NAMES,
    CONTROL_MASK,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    check_crc,
    iter_headers,
    read_header,
    set_log_append_time,
)
from oncelog.protocol.record import iter_records, recompress_batch
from oncelog.storage.config import LogConfig
from oncelog.storage.producer_state import Origin

__all__ = ["Checked", "apply_log_append_time", "check_batches", "recompress"]

LOG_APPEND_TIME = "LogAppendTime"
PRODUCER_CODEC = "producer"
COMPACT = "compact"
_ATTRIBUTES_MASK = CODEC_MASK | TIMESTAMP_TYPE_MASK | TRANSACTIONAL_MASK
"""What a producer may set; other bits are Kafka's own, or not assigned."""
_KAFKA_CODEC_NAMES = {"uncompressed": "none"}

MutableBuffer = bytearray | memoryview


class Checked(NamedTuple):
    """Batches with their places in the buffer, or the reason to refuse them."""

    headers: list[tuple[int, BatchHeader]]
    error: ErrorCode = ErrorCode.none
    message: str | None = None


def check_batches(
    batches: MutableBuffer, config: LogConfig, origin: Origin, now_ms: int
) -> Checked:
    """Judge what one append carries."""
    size = len(batches)
    is_replicated, is_client = origin is Origin.REPLICATION, origin is Origin.CLIENT
    if not size:
        return _refuse("no batches at all")
    try:
        first = read_header(batches, 0)
        headers = [(0, first)] if first.length == size else list(iter_headers(batches))
    except ProtocolError as error:
        return Checked([], error.code, error.message)
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
        if not check_crc(batches, position, header):
            return Checked([], ErrorCode.corrupt_message, "the CRC does not match the batch")
        if is_client:
            refusal = _check_client(batches, position, header, config, now_ms)
            if refusal is not None:
                return refusal
    if not is_replicated and size > config.segment_bytes:
        message = f"{size} bytes in one append are more than segment.bytes={config.segment_bytes}"
        return Checked([], ErrorCode.record_list_too_large, message)
    return Checked(headers)


def _bad_header(header: BatchHeader, config: LogConfig) -> Checked:
    """Why no leader takes a batch of this header."""
    if header.length > config.max_message_bytes:
        message = (
            f"{header.length} bytes are more than max.message.bytes={config.max_message_bytes}"
        )
        return Checked([], ErrorCode.message_too_large, message)
    if header.record_count != header.last_offset_delta + 1 or header.record_count < 1:
        return _refuse(
            f"{header.record_count} records with last offset delta {header.last_offset_delta}"
        )
    if header.codec_id >= len(CODEC_NAMES):
        message = f"unknown compression codec {header.codec_id}"
        return Checked([], ErrorCode.unsupported_compression_type, message)
    return _refuse(f"attributes {header.attributes:#x} are not a producer's")


def _check_client(
    batches: MutableBuffer, position: int, header: BatchHeader, config: LogConfig, now_ms: int
) -> Checked | None:
    attributes = header.attributes
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
    if config.message_timestamp_type != LOG_APPEND_TIME:
        message = None
        if attributes & TIMESTAMP_TYPE_MASK:
            message = "a producer may not set the timestamp type LogAppendTime"
        elif header.max_timestamp - now_ms > config.message_timestamp_after_max_ms:
            message = f"timestamp {header.max_timestamp} is too far ahead of {now_ms}"
        elif now_ms - header.base_timestamp > config.message_timestamp_before_max_ms:
            message = f"timestamp {header.base_timestamp} is too far behind {now_ms}"
        if message is not None:
            return Checked([], ErrorCode.invalid_timestamp, message)
    if COMPACT in config.cleanup_policy:
        return _check_keys(batches, position, header)
    return None


def _check_keys(batches: MutableBuffer, position: int, header: BatchHeader) -> Checked | None:
    """Walk the records, which only compacted topics ask for: each must have a key."""
    if header.record_count > LOOKED_INTO_RECORDS_COUNT_MAX:
        message = f"{header.record_count} records to look into"
        return Checked([], ErrorCode.message_too_large, message)
    records = iter_records(batches, position, header, limit_bytes=LOOKED_INTO_BYTES_MAX)
    try:
        for number, record in enumerate(records):
            if record.key is None:
                return _refuse(f"record {number} of a batch for a compacted topic has no key")
    except ProtocolError as error:
        return Checked([], error.code, error.message)
    return None


def apply_log_append_time(
    batches: MutableBuffer, headers: list[tuple[int, BatchHeader]], now_ms: int
) -> list[tuple[int, BatchHeader]]:
    """Stamp every batch with the broker's time, in place."""
    for position, header in headers:
        set_log_append_time(batches, position, header, now_ms)
    return [(position, read_header(batches, position)) for position, _ in headers]


def recompress(
    batches: MutableBuffer, headers: list[tuple[int, BatchHeader]], compression_type: str
) -> tuple[MutableBuffer, list[tuple[int, BatchHeader]]]:
    """Rewrite client batches whose codec is not the topic's.

    Raises ProtocolError for damaged records, and for more of them than one request may cost.
    """
    codec = _KAFKA_CODEC_NAMES.get(compression_type, compression_type)
    if all(header.codec == codec for _, header in headers):
        return batches, headers
    rewritten = bytearray()
    for position, header in headers:
        if header.record_count > LOOKED_INTO_RECORDS_COUNT_MAX:
            raise ProtocolError(
                ErrorCode.message_too_large,
                f"{header.record_count} records to rewrite",
            )
        rewritten += recompress_batch(
            batches, position, header, codec, limit_bytes=LOOKED_INTO_BYTES_MAX
        )
    return rewritten, list(iter_headers(rewritten))


def _refuse(message: str) -> Checked:
    return Checked([], ErrorCode.invalid_record, message)
