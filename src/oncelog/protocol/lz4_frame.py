"""The frame around the LZ4 blocks of a batch, as Kafka's reader takes it.

Kafka's `Lz4BlockInputStream` reads one frame and ignores what follows its end mark. It supports
independent blocks only, and checks neither the content's size nor its checksum. Clients of the
time of message format v0 computed the header's checksum wrongly, so there it is ignored.
"""

from typing import Final

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.integers import integers

__all__ = ["plain_frame", "xxh32"]

_UINT32: Final = integers("<I")
_MAGIC: Final = 0x184D2204
_VERSION: Final = 0x40
_VERSION_MASK: Final = 0xC0
_INDEPENDENT: Final = 0x20
_BLOCK_CHECKSUMS: Final = 0x10
_CONTENT_SIZE: Final = 0x08
_RESERVED: Final = 0x03
_BLOCK_CODE_MIN: Final = 4
_BLOCK_CODE_MAX: Final = 7
_UNCOMPRESSED: Final = 0x80000000
_END_MARK: Final = bytes(4)
_START: Final = 6
"""Magic, flags and block sizes."""

_PRIME_1: Final = 2654435761
_PRIME_2: Final = 2246822519
_PRIME_3: Final = 3266489917
_PRIME_4: Final = 668265263
_PRIME_5: Final = 374761393
_MASK: Final = 0xFFFFFFFF


def plain_frame(data: bytes, *, check_header: bool = True) -> bytes:
    """Return the first frame of `data`, up to its end mark, without content size and checksum.

    Raises `ProtocolError` (corrupt_message) and `struct.error` where Kafka's reader would fail.
    """
    if len(data) < _START or _UINT32.unpack_from(data, 0)[0] != _MAGIC:
        raise _corrupt("no frame begins")
    flags, sizes = data[4], data[5]
    code = sizes >> 4 & 7
    if flags & _VERSION_MASK != _VERSION or flags & _RESERVED or sizes & 0x8F:
        raise _corrupt(f"a frame of flags {flags:#x} and {sizes:#x}")
    if not flags & _INDEPENDENT:
        raise _corrupt("blocks that depend on each other")
    if not _BLOCK_CODE_MIN <= code <= _BLOCK_CODE_MAX:
        raise _corrupt(f"blocks of size code {code}")
    first = _START + (8 if flags & _CONTENT_SIZE else 0) + 1
    if first > len(data):
        raise _corrupt("the header is cut")
    if check_header and data[first - 1] != _header_checksum(data[4 : first - 1]):
        raise _corrupt("the header has another checksum than it says")
    descriptor = bytes((_VERSION | _INDEPENDENT | flags & _BLOCK_CHECKSUMS, sizes))
    end = _end_of_blocks(data, first, 1 << (8 + 2 * code), bool(flags & _BLOCK_CHECKSUMS))
    checksum = bytes((_header_checksum(descriptor),))
    return b"".join((data[:4], descriptor, checksum, data[first : end - 4], _END_MARK))


def _end_of_blocks(data: bytes, position: int, size_max: int, has_checksums: bool) -> int:
    """Return where the end mark ends. A block that is cut is for the decompressor to refuse."""
    while position < len(data):
        size = _UINT32.unpack_from(data, position)[0] & ~_UNCOMPRESSED
        position += 4
        if not size:
            return position
        if size > size_max:
            raise _corrupt(f"a block of {size} bytes, of at most {size_max}")
        position += size + (4 if has_checksums else 0)
    raise _corrupt("the frame is cut")


def _header_checksum(descriptor: bytes) -> int:
    return xxh32(descriptor) >> 8 & 0xFF


def xxh32(data: bytes) -> int:
    """XXH32 with seed 0 of fewer than 16 bytes: a frame's descriptor has 2 or 10."""
    value = (_PRIME_5 + len(data)) & _MASK
    position = 0
    while position + 4 <= len(data):
        lane: int = _UINT32.unpack_from(data, position)[0]
        value = (value + lane * _PRIME_3) & _MASK
        value = ((value << 17 | value >> 15) * _PRIME_4) & _MASK
        position += 4
    for byte in data[position:]:
        value = (value + byte * _PRIME_5) & _MASK
        value = ((value << 11 | value >> 21) * _PRIME_1) & _MASK
    value = ((value ^ value >> 15) * _PRIME_2) & _MASK
    value = ((value ^ value >> 13) * _PRIME_3) & _MASK
    return value ^ value >> 16


def _corrupt(message: str) -> ProtocolError:
    return ProtocolError(ErrorCode.corrupt_message, f"lz4: {message}")
