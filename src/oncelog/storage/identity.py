"""Reads and writes the identity of a log directory: `oncelog.format` and `meta.properties`.

`read_identity` changes nothing; `write_format` marks a new folder as ours, and `write_identity`
claims it for a broker, or records the upgrade of an older layout. Damaged or foreign files are
refused, never overwritten.
"""

from __future__ import annotations

import logging
import os
from typing import NamedTuple

from oncelog.core.errors import OncelogError
from oncelog.runtime.disk import Disk
from oncelog.storage.checkpoints import format_properties, parse_properties
from oncelog.storage.files import (
    CLEAN_SHUTDOWN_NAME,
    FORMAT_NAME,
    HIGH_WATERMARKS_NAME,
    LOG_STARTS_NAME,
    META_NAME,
    RECOVERY_POINTS_NAME,
)
from oncelog.storage.folder_names import parse_folder_name, parse_suffixed_name

__all__ = [
    "FORMAT_VERSION",
    "FolderMismatch",
    "Identity",
    "make_durably",
    "read_identity",
    "write_format",
    "write_identity",
]

log = logging.getLogger(__name__)

FORMAT_VERSION = 2
"""2: compacted logs have gaps, and other log directories may hold more of the broker's partitions.

A version that reads format 1 would cut a log at its first gap.
"""

_CHECKPOINTS = (CLEAN_SHUTDOWN_NAME, HIGH_WATERMARKS_NAME, LOG_STARTS_NAME, RECOVERY_POINTS_NAME)
_METADATA_PREFIX = "metadata.sqlite"
_KEYS = ("cluster.id", "node.id", "directory.id")
_REPLACES = "replaces.directory.ids"


class FolderMismatch(OncelogError):  # noqa: N818 - names a state of the folder
    """The folder is of another broker, another cluster, another layout, or not ours at all."""


class Identity(NamedTuple):
    """The contents of `meta.properties`."""

    cluster_id: str
    node_id: int
    directory_id: str
    format_version: int = FORMAT_VERSION
    replaces: frozenset[str] = frozenset()
    """Ids of the log directories in whose place it was made: their disks were exchanged."""


def read_identity(disk: Disk, directory: str, node_id: int | None) -> Identity | None:
    """Return the identity of a folder; None when the folder is new.

    Raises `FolderMismatch`, also for a folder of another broker than `node_id` (None: any), and
    `StorageFailure`.
    """
    format_version = _read_format(disk, directory)
    content = disk.read(f"{directory}/{META_NAME}")
    if format_version is None:
        _check_new(disk, directory, has_meta=content is not None)
        return None
    if content is None:
        held = _what_it_holds(disk, directory, passed_over=_METADATA_PREFIX)
        if held is None:
            # The first start died between its two writes, perhaps after it had made the store.
            return None
        raise FolderMismatch(
            f"the folder {directory} holds {held}, but its {META_NAME} is gone: put it back "
            "(cluster.id, node.id and directory.id, as in the broker's other folders)"
        )
    fields = parse_properties(content)
    missing = [key for key in _KEYS if not fields.get(key)]
    if missing or not fields["node.id"].isdecimal():
        what = "is empty" if not content.strip() else f"has no valid {(missing or ['node.id'])[0]}"
        raise FolderMismatch(
            f"the {META_NAME} of the folder {directory} {what}: put back the one that it had"
        )
    if node_id is None:
        node_id = int(fields["node.id"])
    if int(fields["node.id"]) != node_id:
        raise FolderMismatch(
            f"the folder {directory} belongs to broker {fields['node.id']}, not {node_id}"
        )
    replaces = frozenset(filter(None, fields.get(_REPLACES, "").split(",")))
    return Identity(fields["cluster.id"], node_id, fields["directory.id"], format_version, replaces)


def write_identity(disk: Disk, directory: str, identity: Identity) -> None:
    """Write the identity of a marked folder, or the new format of an older one, durably."""
    if identity.format_version < FORMAT_VERSION:
        write_format(disk, directory)
        log.info(
            "upgraded the folder %s from format %d to %d: older versions of Oncelog refuse it now",
            directory,
            identity.format_version,
            FORMAT_VERSION,
        )
        return
    meta = {
        "version": "1",
        "cluster.id": identity.cluster_id,
        "node.id": str(identity.node_id),
        "directory.id": identity.directory_id,
    }
    if identity.replaces:
        meta[_REPLACES] = ",".join(sorted(identity.replaces))
    disk.write_atomic(f"{directory}/{META_NAME}", format_properties(meta), sync=True)


def write_format(disk: Disk, directory: str) -> None:
    """Write the current format, durably: from now on the folder is ours."""
    disk.write_atomic(f"{directory}/{FORMAT_NAME}", b"%d\n" % FORMAT_VERSION, sync=True)


def _read_format(disk: Disk, directory: str) -> int | None:
    content = disk.read(f"{directory}/{FORMAT_NAME}")
    if content is None:
        return None
    text = content.decode("ascii", "replace").strip()
    if not text.isdecimal() or int(text) < 1:
        raise FolderMismatch(
            f"the {FORMAT_NAME} of the folder {directory} is damaged ({text!r}): "
            f"this version of Oncelog writes {FORMAT_VERSION}"
        )
    if int(text) > FORMAT_VERSION:
        raise FolderMismatch(
            f"the folder {directory} has format {text} of a newer Oncelog; "
            f"this version reads formats 1 to {FORMAT_VERSION}: use the newer one"
        )
    return int(text)


def _check_new(disk: Disk, directory: str, *, has_meta: bool) -> None:
    if has_meta:
        raise FolderMismatch(
            f"the folder {directory} has a {META_NAME} but no {FORMAT_NAME}: "
            "it belongs to another program, for example Apache Kafka"
        )
    held = _what_it_holds(disk, directory)
    if held is not None:
        raise FolderMismatch(
            f"the folder {directory} holds {held} but no {FORMAT_NAME}: it is not a log directory "
            "of Oncelog, or that file is lost"
        )


def _what_it_holds(disk: Disk, directory: str, passed_over: str | None = None) -> str | None:
    """Return the first name that only a used log directory contains; None if there is none.

    Names that begin with `passed_over` do not count.
    """
    for name in disk.list(directory):
        if passed_over is not None and name.startswith(passed_over):
            continue
        is_ours = name in _CHECKPOINTS or name.startswith(_METADATA_PREFIX)
        is_partition = parse_folder_name(name) or parse_suffixed_name(name)
        if is_ours or (is_partition and disk.is_dir(f"{directory}/{name}")):
            return name
    return None


def make_durably(disk: Disk, directory: str) -> None:
    """Make the folder and its parents so that their names survive a loss of power."""
    made = []
    path = directory
    while path and not disk.is_dir(path):
        made.append(path)
        path = os.path.dirname(path)
    if made:
        disk.mkdir(directory)
    for path in reversed(made):
        disk.sync_dir(os.path.dirname(path) or ".")
