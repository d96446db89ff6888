"""Where tests keep folders that need no disk: in memory, where the system has room there.

A killed process loses nothing that it wrote to memory, and tests of lost power and failing disks
bring a disk of their own. But an fsync takes milliseconds on a disk, and tests make tens of
thousands.
"""

import os

__all__ = ["scratch_folder"]

MEMORY = "/dev/shm"
ROOM_BYTES_MIN = 1 << 30


def scratch_folder(memory: str = MEMORY, room_bytes_min: int = ROOM_BYTES_MIN) -> str | None:
    """The folder in memory, None where there is none, or too little room in it."""
    try:
        found = os.statvfs(memory)
    except OSError:
        return None
    has_room = found.f_bavail * found.f_frsize >= room_bytes_min
    return memory if has_room and os.access(memory, os.W_OK) else None
