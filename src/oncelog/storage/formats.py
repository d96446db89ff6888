"""Distinguishes records of another format from damage (D14).

A broker of Apache Kafka from before 0.11 wrote messages of the formats v0 and v1, and a later one
keeps them; a future one may write batches of another format. Such a log is sound, but not readable
here: `UnknownFormat` keeps its partition off line, and nothing of it changes.

- A message of v0 or v1 has a CRC over its format and all that follows. If it is right, the message
  is sound. If not, the place is damaged, unless a sound message follows where it ends.
- What a later format looks like is unknown, but offset, length and format have to be where they
  are, for brokers read them in place. A batch counts as one of those if others of later formats
  follow it up to the end of the file, or it is the last one and no batch of v2 whose byte of the
  format is damaged.
"""

from typing import Final

from oncelog.core.limits import LATER_FORMAT_BATCHES_COUNT_MAX, MESSAGE_CHECKED_SIZE_BYTES_MAX
from oncelog.protocol.batch import HEADER_SIZE, LENGTH_PREFIX_SIZE, MAGIC, check_crc
from oncelog.protocol.message_set import (
    MESSAGE_SIZE_MIN,
    magic_at,
    message_length,
    sound_magic,
)
from oncelog.runtime.disk import Disk, DiskFile, StorageFailure
from oncelog.storage.files import LOG_SUFFIX, base_offset_of
from oncelog.storage.header_walk import PREFIX, parse_header
from oncelog.storage.kept_file import Pread
from oncelog.storage.segment_register import SegmentRegister

__all__ = [
    "UnknownFormat",
    "format_problem",
    "refuse_other_formats",
    "require_known",
    "unknown_magic",
]

_MAGIC_MAX: Final = 127
"""Java reads the byte as a signed one."""
_START_SIZE: Final = 17
"""Offset, length, leader epoch or CRC, and the format."""


class UnknownFormat(StorageFailure):
    """A log has records of a format that is not read here: its partition is off line."""

    def __init__(self, path: str, position: int, magic: int) -> None:
        self.reason = format_problem(position, magic)
        super().__init__("serve", path, self.reason)
        self.magic = magic
        """The format of the records."""
        self.position = position
        """The byte at which they begin."""


def format_problem(position: int, magic: int) -> str:
    """Return the sentence that says what was found, and how the records can be read."""
    age = "from before Kafka 0.11" if magic < MAGIC else "of a later version"
    return (
        f"from byte {position} on it has records of format v{magic}, {age}, and only v{MAGIC} is "
        "read here; nothing of it was changed: let a broker that reads them serve this folder, "
        "copy the topic there to a new one (its records are v2), and bring that one here"
    )


def refuse_other_formats(
    disk: Disk, directory: str, register: SegmentRegister | None = None
) -> None:
    """Look at the first bytes of each segment that `register` does not name as sound.

    Changes nothing.

    Raises `UnknownFormat`.
    """
    for name in sorted(disk.list(directory)):
        base = base_offset_of(name, LOG_SUFFIX)
        sealed = None if base is None or register is None else register.get(base)
        if base is None or (sealed is not None and not sealed.is_damaged):
            continue
        file = disk.open(f"{directory}/{name}")
        try:
            if magic_at(file.pread(_START_SIZE, 0), 0) != MAGIC:
                require_known(file, file.size(), 0, base)
        finally:
            file.close()


def require_known(file: DiskFile, size: int, position: int, expected: int) -> None:
    """Raise `UnknownFormat` if the place, which holds no sound batch, has another format."""
    magic = unknown_magic(file.pread, size, position, expected)
    if magic is not None:
        raise UnknownFormat(file.path, position, magic)


def unknown_magic(pread: Pread, size: int, position: int, expected: int) -> int | None:
    """Return the format of the records at `position`, where offset `expected` is due.

    No sound batch of v2 begins there. None for damage. `size` is that of the file.
    """
    start = pread(_START_SIZE, position)
    if len(start) < _START_SIZE:
        return None
    magic, length = magic_at(start, 0), message_length(start, 0)
    if magic > MAGIC:
        return magic if _is_later_format(pread, size, position, expected) else None
    found = _sound_old(pread, position, length) if magic < MAGIC else None
    if found is None and MESSAGE_SIZE_MIN <= length < size - position:
        behind = position + length
        following = pread(_START_SIZE, behind)
        if len(following) == _START_SIZE:
            found = _sound_old(pread, behind, message_length(following, 0))
    return found


def _sound_old(pread: Pread, position: int, length: int) -> int | None:
    if not MESSAGE_SIZE_MIN <= length <= MESSAGE_CHECKED_SIZE_BYTES_MAX:
        return None
    return sound_magic(pread(length, position))


def _is_later_format(pread: Pread, size: int, position: int, expected: int) -> bool:
    """Whether a chain of batches of later formats begins at `position`; its last may be cut."""
    first, first_length, count = position, 0, 0
    while position < size and count < LATER_FORMAT_BATCHES_COUNT_MAX:
        start = pread(_START_SIZE, position)
        if len(start) < _START_SIZE:
            break
        offset, rest = PREFIX.unpack_from(start, 0)
        length, magic = rest + LENGTH_PREFIX_SIZE, magic_at(start, 0)
        if magic == MAGIC:
            return False  # The log goes on with batches of v2.
        if not MAGIC < magic <= _MAGIC_MAX or offset < expected:
            break
        is_whole = _START_SIZE <= length <= size - position
        if not count:
            first_length = length
            if not is_whole:
                return False
        count += 1
        if not is_whole:
            break
        position, expected = position + length, offset + 1
    if count == 1:
        return not _is_v2_but_for_magic(pread, first, first_length)
    return count > 1


def _is_v2_but_for_magic(pread: Pread, position: int, length: int) -> bool:
    """Whether a lone batch has the CRC of one of v2: then only its byte of the format is wrong."""
    if not HEADER_SIZE <= length <= MESSAGE_CHECKED_SIZE_BYTES_MAX:
        return False
    batch = pread(length, position)
    return len(batch) == length and check_crc(batch, 0, parse_header(batch, 0))
