"""The codecs of record batches: gzip, snappy, lz4 and zstd, with bounded decompression.

The formats written are those of Kafka's clients: gzip with its header, snappy in the Xerial framing
of snappy-java, lz4 as a frame of independent blocks of 64 KiB without checksums (the Java reader
does not support dependent blocks), zstd as a frame. Readers accept what Kafka's readers do, behind
the first frame too: further members of gzip, and bytes that are no member are ignored; further
streams of snappy-java, and raw snappy; further and skippable frames of zstd; of lz4 one frame, and
what follows is ignored. Only a last frame of zstd that is cut is refused here, and not by Java's.

A batch does not contain its decompressed size, so a few bytes could claim any amount of memory.
Therefore every function that decompresses has a limit on its output.
"""

import zlib
from collections.abc import Callable
from struct import error as StructError  # noqa: N812 - it is an exception class
from typing import Final

import cramjam

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.integers import integers
from oncelog.core.limits import BATCH_DECOMPRESSED_BYTES_MAX
from oncelog.protocol.batch import CODEC_NAMES
from oncelog.protocol.lz4_frame import plain_frame

Buffer = bytes | bytearray | memoryview

_UINT32: Final = integers("<I")
_INT32: Final = integers(">i")

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_XERIAL_MAGIC_START: Final = _XERIAL_MAGIC[:4]

_LZ4_HEADER: Final = bytes.fromhex("04224d18604082")
"""Magic, version 1 with independent blocks, blocks of 64 KiB, and the checksum of those two."""
_LZ4_END: Final = bytes(4)
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_UNCOMPRESSED: Final = 0x80000000

_GZIP_LEVEL: Final = -1
_LZ4_LEVEL: Final = 9
_ZSTD_LEVEL: Final = 3
"""Kafka's defaults (`CompressionType`)."""

_GZIP_WINDOW: Final = 31
_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_GZIP_IGNORED_BYTES_MAX: Final = 18
"""Java looks for no member in so few bytes behind another."""
_FIRST_GUESS_FACTOR: Final = 4
_FIRST_GUESS_BYTES_MIN: Final = 16 * 1024


def codec_id(name: str) -> int:
    """The number of a codec in a batch's attributes. Raises `ValueError` for an unknown name."""
    try:
        return CODEC_NAMES.index(name)
    except ValueError:
        known = ", ".join(CODEC_NAMES)
        raise ValueError(f"unknown compression codec {name!r}; known are {known}") from None


def compress(name: str, data: Buffer, level: int | None = None) -> bytes:
    """Compress the records of a batch, at Kafka's default level or another (KIP-390).

    gzip 1 to 9, or -1 for zlib's default; lz4 1 to 17; zstd up to 22, also negative; the others
    have no levels. Raises `ValueError` for an unknown codec.
    """
    return _COMPRESSORS[codec_id(name)](data, level)


def decompress(
    name: str,
    data: Buffer,
    limit: int = BATCH_DECOMPRESSED_BYTES_MAX,
    *,
    check_lz4_header: bool = True,
) -> bytes:
    """Decompress the records of a batch into at most `limit` bytes.

    Without `check_lz4_header` the checksum of an lz4 frame's header may be wrong (format v0).

    Raises `ProtocolError`: corrupt_message for bytes that are no such stream, message_too_large for
    one that holds more.
    """
    try:
        if not check_lz4_header and name == "lz4":
            return _unpack_frame(plain_frame(bytes(data), check_header=False), limit)
        return _DECOMPRESSORS[codec_id(name)](data, limit)
    except (cramjam.DecompressionError, zlib.error, StructError, IndexError) as error:
        raise ProtocolError(ErrorCode.corrupt_message, f"{name}: {error}") from error


def _too_large(limit: int) -> ProtocolError:
    return ProtocolError(ErrorCode.message_too_large, f"batch holds more than {limit} bytes")


def _copy(data: Buffer, _level: int | None) -> bytes:
    return bytes(data)


def _bounded_copy(data: Buffer, limit: int) -> bytes:
    if len(data) > limit:
        raise _too_large(limit)
    return bytes(data)


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    packer = zlib.compressobj(_GZIP_LEVEL if level is None else level, wbits=_GZIP_WINDOW)
    return packer.compress(data) + packer.flush()


def _decompress_gzip(data: Buffer, limit: int) -> bytes:
    unpacker = zlib.decompressobj(wbits=_GZIP_WINDOW)
    out = unpacker.decompress(data, limit + 1)
    if len(out) <= limit and unpacker.eof and not unpacker.unused_data:
        return out  # Nearly every batch is one member.
    members = [out]
    size = len(out)
    while size <= limit and unpacker.eof and _is_gzip(rest := unpacker.unused_data):
        unpacker = zlib.decompressobj(wbits=_GZIP_WINDOW)
        members.append(unpacker.decompress(rest, limit - size + 1))
        size += len(members[-1])
    if size > limit:
        raise _too_large(limit)
    if not unpacker.eof:
        raise zlib.error("stream is cut")
    return b"".join(members)


def _is_gzip(rest: bytes) -> bool:
    """Whether a member follows. Java ignores bytes that begin as none does."""
    return rest.startswith(_GZIP_MAGIC) and len(rest) > _GZIP_IGNORED_BYTES_MAX


def _compress_snappy(data: Buffer, _level: int | None) -> bytes:
    out = [_XERIAL_HEADER]
    with memoryview(data) as view:
        for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
            block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
            out.append(_INT32.pack(len(block)))
            out.append(block)
    return b"".join(out)


def _decompress_snappy(data: Buffer, limit: int) -> bytes:
    with memoryview(data) as view:
        begins = bytes(view[: len(_XERIAL_HEADER)])
        if len(begins) < len(_XERIAL_HEADER) or not begins.startswith(_XERIAL_MAGIC):
            return _decompress_raw_snappy(view, limit)
        out = []
        total = 0
        position = len(_XERIAL_HEADER)
        while position + 4 <= len(view):  # snappy-java ignores up to three bytes at the end.
            if bytes(view[position : position + 4]) == _XERIAL_MAGIC_START:
                if bytes(view[position:][: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
                    break
                position += len(_XERIAL_HEADER)  # Another stream begins.
                if position > len(view):
                    raise ProtocolError(ErrorCode.corrupt_message, "snappy: a header is cut")
                continue
            size = _INT32.unpack_from(view, position)[0]
            position += 4
            if not 0 < size <= len(view) - position:
                raise ProtocolError(ErrorCode.corrupt_message, f"snappy block of {size} bytes")
            block = _decompress_raw_snappy(view[position : position + size], limit - total)
            out.append(block)
            total += len(block)
            position += size
    return b"".join(out)


def _decompress_raw_snappy(view: memoryview, limit: int) -> bytes:
    # The stream begins with its size, which is checked before anything is allocated.
    raw = bytes(view)
    if cramjam.snappy.decompress_raw_len(raw) > limit:
        raise _too_large(limit)
    return bytes(cramjam.snappy.decompress_raw(raw))


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    # As in Kafka, the default level, 9, means the fast compressor; other levels mean the HC one.
    is_fast = level is None or level == _LZ4_LEVEL
    out = [_LZ4_HEADER]
    with memoryview(data) as view:
        for start in range(0, len(view), _LZ4_BLOCK_BYTES):
            block = bytes(view[start : start + _LZ4_BLOCK_BYTES])
            out.append(_fast_lz4_block(block) if is_fast else _thorough_lz4_block(block, level))
    out.append(_LZ4_END)
    return b"".join(out)


def _fast_lz4_block(block: bytes) -> bytes:
    packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
    if len(packed) < len(block):
        return _UINT32.pack(len(packed)) + packed
    return _UINT32.pack(len(block) | _LZ4_UNCOMPRESSED) + block


def _thorough_lz4_block(block: bytes, level: int | None) -> bytes:
    """Return the block of a frame with that block alone: the library has levels for frames only."""
    packer = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    packer.compress(block)
    frame = bytes(packer.finish())
    start = len(_LZ4_HEADER)
    size = _UINT32.unpack_from(frame, start)[0] & ~_LZ4_UNCOMPRESSED
    return frame[start : start + _UINT32.size + size]  # A checksum of the block follows.


def _decompress_lz4(data: Buffer, limit: int) -> bytes:
    return _unpack_frame(plain_frame(bytes(data)), limit)


def _unpack_frame(frame: bytes, limit: int) -> bytes:
    return _grow(cramjam.lz4.decompress_into, frame, limit)


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    return bytes(cramjam.zstd.compress(bytes(data), level=_ZSTD_LEVEL if level is None else level))


def _decompress_zstd(data: Buffer, limit: int) -> bytes:
    return _grow(cramjam.zstd.decompress_into, data, limit)


def _grow(decompress_into: Callable[[bytes, bytearray], int], data: Buffer, limit: int) -> bytes:
    """Decompress into a buffer that doubles until the output fits or the limit is passed.

    Neither format must contain its size, and the sender chooses what it contains.
    """
    raw = bytes(data)
    size = min(max(len(raw) * _FIRST_GUESS_FACTOR, _FIRST_GUESS_BYTES_MIN), limit)
    while True:
        out = bytearray(size)
        try:
            written = decompress_into(raw, out)
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise
            if size >= limit:
                raise _too_large(limit) from error
            size = min(size * 2, limit)
        else:
            with memoryview(out) as view:
                return bytes(view[:written])


_OUTPUT_FULL: Final = "failed to write whole buffer"
"""The error of Rust's slice writer when the slice is full."""

_COMPRESSORS: Final[tuple[Callable[[Buffer, int | None], bytes], ...]] = (
    _copy,
    _compress_gzip,
    _compress_snappy,
    _compress_lz4,
    _compress_zstd,
)
_DECOMPRESSORS: Final[tuple[Callable[[Buffer, int], bytes], ...]] = (
    _bounded_copy,
    _decompress_gzip,
    _decompress_snappy,
    _decompress_lz4,
    _decompress_zstd,
)
