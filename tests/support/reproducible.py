"""Source archives whose bytes depend on their files alone."""

import gzip
import io
import tarfile
from pathlib import Path

__all__ = ["pack_again"]

_FILE, _PROGRAM, _FOLDER = 0o644, 0o755, 0o755


def pack_again(archive: Path, time_s: int) -> None:
    """Rewrite a .tar.gz in the order of its names, with one time, one owner and plain modes.

    setuptools keeps the times, owners and modes that the files happen to have.
    """
    packed = io.BytesIO()
    with (
        tarfile.open(archive) as old,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as new,
    ):
        for entry in sorted(old.getmembers(), key=lambda entry: entry.name):
            made = tarfile.TarInfo(entry.name)
            made.type, made.size, made.mtime = entry.type, entry.size, time_s
            made.mode = _FOLDER if entry.isdir() else _PROGRAM if entry.mode & 0o100 else _FILE
            new.addfile(made, old.extractfile(entry) if entry.isfile() else None)
    with (
        archive.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=time_s) as out,
    ):
        out.write(packed.getvalue())
