"""``oncelog log strays``: shows, restores or removes the folders that a broker set aside.

A broker never deletes a partition's folder that its metadata does not contain: it renames it to
``<topic>-<partition>.<id>-stray`` and logs it. An administrator decides here what becomes of it. To
change something, no broker may be running on the folders.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from oncelog.cli.output import Column, print_rows, print_text
from oncelog.cli.tool import Failure, ToolCommand, json_option
from oncelog.core.errors import OncelogError
from oncelog.runtime.disk import SystemDisk
from oncelog.storage.folder_names import parse_suffixed_name
from oncelog.storage.log_directory import LogDirectory
from oncelog.storage.strays import Stray, find_strays, remove_stray, restore_stray

__all__ = ["command"]

_COLUMNS: Final = (
    Column("folder", "Folder", style="cyan", wraps=True),
    Column("partition", "Partition"),
    Column("size_bytes", "Bytes", numeric=True),
    Column("topic_id", "Topic id", style="dim", spare=1),
    Column("reason", "Set aside because", wraps=True),
)


@click.command("strays", cls=ToolCommand)
@click.argument("paths", metavar="DIR...", nargs=-1, required=True, type=click.Path())
@click.option("--restore", "action", flag_value="restore", help="Put strays back in their places.")
@click.option("--remove", "action", flag_value="remove", help="Remove strays and their records.")
@click.option("--only", metavar="NAME", multiple=True, help="Only this stray; repeatable.")
@json_option("Print JSON, one object per stray.")
def command(
    paths: tuple[str, ...], action: str | None, only: tuple[str, ...], as_json: bool
) -> None:
    """Show strays, put them back, or remove them.

    DIR is a log directory; to put strays back, name all log directories of the broker.
    """
    disk = SystemDisk()
    directories = [path.rstrip("/") or "/" for path in paths]
    try:
        strays = [
            stray
            for directory in directories
            for stray in find_strays(disk, directory)
            if not only or stray.name in only
        ]
        _check_known(only, strays)
        if action is None:
            print_rows(_COLUMNS, list(map(_row, strays)), as_json=as_json)
            return
        with _taken(disk, directories) as folders:
            for stray in strays:
                _settle(disk, action, stray, folders)
    except OncelogError as error:
        raise Failure(str(error)) from None
    finally:
        disk.close()


def _settle(disk: SystemDisk, action: str, stray: Stray, folders: list[LogDirectory]) -> None:
    if action == "remove":
        remove_stray(disk, stray)
        print_text(f"removed {stray.path}, {stray.size_bytes} bytes")
        return
    moved = restore_stray(disk, stray, folders)
    print_text(f"put {stray.path} back as {stray.partition}, {stray.size_bytes} bytes")
    if moved is not None:
        print_text(f"what was in its place is {moved} now")


def _check_known(only: tuple[str, ...], strays: list[Stray]) -> None:
    unknown = set(only) - {stray.name for stray in strays}
    for name in sorted(unknown):
        what = "is not there" if parse_suffixed_name(name) else "is not the name of a stray"
        raise Failure(f"{name} {what}: `oncelog log strays DIR` shows their names")


@contextmanager
def _taken(disk: SystemDisk, directories: list[str]) -> Iterator[list[LogDirectory]]:
    """The log directories, locked."""
    folders: list[LogDirectory] = []
    try:
        for directory in directories:
            if not disk.is_dir(directory):
                raise Failure(f"{directory} is not a folder")
            folders.append(LogDirectory.take(disk, directory, None))
        yield folders
    finally:
        for folder in folders:
            folder.release()


def _row(stray: Stray) -> tuple[str, str, int, str, str]:
    return (
        os.path.join(stray.directory, stray.name),
        str(stray.partition or "-"),
        stray.size_bytes,
        str(stray.topic_id or "-"),
        stray.reason or "-",
    )
