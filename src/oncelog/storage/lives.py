"""Decides whether a broker may have lost records since its last life.

A registration at the metadata store begins a life, which has a number, the *broker epoch*. Every
log directory notes it in a file, `oncelog.life`, together with the boot of the system and the
file's own device and inode. A copy of the folder has another inode, a folder that was restored has
an older epoch, and after a loss of power the boot is another one.

Here are the decisions, from values; `LogDirectory` reads and writes the notes. The note needs no
sync: it counts in the boot in which it was written, and there only its process can have died. One
that says that every record was synced counts after a loss of power too, and is synced itself.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import NamedTuple

from oncelog.core.crc import crc32c
from oncelog.runtime.file_place import FilePlace
from oncelog.storage.checkpoints import format_properties, parse_properties

__all__ = [
    "FolderLife",
    "LifeNote",
    "decide_unclean",
    "format_clean_shutdown",
    "format_note",
    "is_of_dead_life",
    "last_sound_epoch",
    "parse_clean_shutdown",
    "parse_note",
    "unclean_folder",
]

_NO_EPOCH = -1
_CHECKSUM = "checksum"


class LifeNote(NamedTuple):
    """What a folder says of the life in which it was written last."""

    broker_epoch: int
    place: FilePlace
    """Of this note's file, when it was written."""
    is_synced: bool
    """Whether every record was synced before it was acknowledged, in all of that life so far."""


class FolderLife(NamedTuple):
    """A log directory as a start finds it, before it changes anything."""

    directory: str
    is_new: bool
    """Whether this start has made it."""
    closed_epoch: int | None
    """The life in which it was closed cleanly: -1 for one without a number, None where not."""
    note: LifeNote | None
    """None where there is none that is whole."""
    place: FilePlace | None
    """Of the note's file, now."""


def decide_unclean(
    last_epoch: int, folders: Sequence[FolderLife], missing: Collection[str]
) -> str | None:
    """Return why records of the last life may be lost; None if none is: a *clean* registration.

    `last_epoch` is the last life of this broker that the store knows, 0 for none; `missing` are the
    log directories of that life that are not here. It is clean where none is missing and each
    folder is:

    | closed cleanly | note       | its file, boot | file system | all synced | clean |
    |----------------|------------|----------------|-------------|------------|-------|
    | (made now)     |            |                |             |            | yes   |
    | in the life    |            |                |             |            | yes   |
    | in another one |            |                |             |            | no    |
    | no             | none       |                |             |            | no    |
    | no             | of another |                |             |            | no    |
    | no             | of it      | same, same     | local       |            | yes   |
    | no             | of it      | same, same     | other       | yes        | yes   |
    | no             | of it      | same, same     | other       | no         | no    |
    | no             | of it      | same, another  |             | yes        | yes   |
    | no             | of it      | same, another  |             | no         | no    |
    | no             | of it      | another        |             |            | no    |

    A copy that was made during the life and put back in place of the original under its inode, as
    some file systems' rollbacks do, cannot be told from the original within one boot, nor in any
    where all was synced.
    """
    if missing:
        return f"the log directory with directory.id={min(missing)} is missing"
    reasons = (unclean_folder(last_epoch, folder) for folder in folders)
    return next((reason for reason in reasons if reason is not None), None)


def unclean_folder(last_epoch: int, folder: FolderLife) -> str | None:
    """Return why this folder may have lost records of the last life: see `decide_unclean`."""
    directory, note, place = folder.directory, folder.note, folder.place
    if folder.is_new:
        return None
    if folder.closed_epoch is not None:
        closed_epoch = max(folder.closed_epoch, 0)  # One without a number is before the first.
        if closed_epoch == last_epoch:
            return None
        return f"{directory} is of life {closed_epoch} of this broker, whose last was {last_epoch}"
    if note is None or place is None:
        return f"{directory} was not closed cleanly, and has no sound note of its last life"
    if note.broker_epoch != last_epoch:
        return (
            f"{directory} was not closed cleanly in life {note.broker_epoch} of this broker, "
            f"whose last was {last_epoch}"
        )
    if note.place.inode != place.inode:
        return f"{directory} is a copy"
    if note.is_synced:
        return None
    if not note.place.is_same_boot(place):
        return f"{directory} was not closed cleanly before the system went down"
    if not place.is_local:
        return f"{directory} was not closed cleanly, and its file system may have lost records"
    return None


def last_sound_epoch(folder: FolderLife) -> int:
    """Return the last life all of whose records the folder has; -1 for none with a number.

    A start that fails before it begins a life closes the folder as of this one.
    """
    if folder.closed_epoch is not None:
        return folder.closed_epoch
    note = folder.note
    is_sound = note is not None and unclean_folder(note.broker_epoch, folder) is None
    return note.broker_epoch if note is not None and is_sound else _NO_EPOCH


def is_of_dead_life(broker_epoch: int, folders: Sequence[FolderLife]) -> bool:
    """Whether the process of that life is dead, because its folders' locks are held here.

    That is certain where each folder is the very one that it locked, in the same boot. Its session
    and its registration may be taken over then.
    """
    return bool(folders) and all(
        folder.note is not None
        and folder.place is not None
        and folder.note.broker_epoch == broker_epoch
        and folder.note.place.is_same_boot(folder.place)
        and folder.place.is_local
        for folder in folders
    )


def format_note(note: LifeNote) -> bytes:
    """The content of `oncelog.life`."""
    place = note.place
    content = format_properties(
        {
            "broker.epoch": str(note.broker_epoch),
            "boot.id": place.boot_id,
            "device": str(place.device),
            "inode": str(place.inode),
            "local": str(place.is_local).lower(),
            "synced": str(note.is_synced).lower(),
        }
    )
    return content + format_properties({_CHECKSUM: str(crc32c(content))})


def parse_note(data: bytes | None) -> LifeNote | None:
    """The note in a file; None where it is missing or damaged."""
    fields = parse_properties(data)
    content = (data or b"").partition(f"{_CHECKSUM}=".encode())[0]
    if fields.get(_CHECKSUM) != str(crc32c(content)):
        return None
    try:
        place = FilePlace(
            fields["boot.id"],
            int(fields["device"]),
            int(fields["inode"]),
            fields["local"] == "true",
        )
        return LifeNote(int(fields["broker.epoch"]), place, fields["synced"] == "true")
    except (KeyError, ValueError):
        return None


def format_clean_shutdown(broker_epoch: int) -> bytes:
    """The content of `.kafka_cleanshutdown`, as Kafka writes it (KIP-966)."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}).encode()


def parse_clean_shutdown(data: bytes | None) -> int | None:
    """The broker epoch in `.kafka_cleanshutdown`; None where there is no such file."""
    if data is None:
        return None
    try:
        found = json.loads(data)["brokerEpoch"]
    except (ValueError, LookupError, TypeError):
        return _NO_EPOCH
    return found if type(found) is int else _NO_EPOCH
