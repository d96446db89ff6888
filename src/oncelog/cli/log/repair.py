"""``oncelog log repair``: mend what `verify` found, and keep a copy of everything.

Without ``--yes`` it says what it would do and changes nothing. It takes the folder's lock, so no
broker of ours or of Apache's runs meanwhile. What each damaged stretch becomes, and which offsets
the log no longer holds then, is said line by line; see `oncelog.cli.log.mending`.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from oncelog.cli.log.check_folder import LOCK_NAME, FolderCheck
from oncelog.cli.log.findings import ERROR
from oncelog.cli.log.kinds import (
    CLEAN_SHUTDOWN_NAME,
    OFFSET_CHECKPOINTS,
    FileKind,
    kind_of,
    look_at,
    partition_folders,
    partition_of,
    unreadable,
)
from oncelog.cli.log.mending import PartitionPlan, plan_partition, set_aside
from oncelog.cli.output import Column, print_rows, say
from oncelog.cli.tool import Failure, ToolCommand, json_option
from oncelog.runtime.disk import FolderInUse, StorageFailure, SystemDisk

__all__ = ["command"]

_COLUMNS: Final = (
    Column("file", "File", style="cyan", wraps=True),
    Column("where", "Byte"),
    Column("what", "What", wraps=True),
    Column("deed", "Repair", wraps=True),
    Column("lost", "Lost", style="red", wraps=True),
)
_ADVICE: Final = {
    FileKind.PROPERTIES: "put back meta.properties from a backup: version=1, cluster.id, node.id "
    "and directory.id",
    FileKind.FORMAT: "write the number of the format into it, 1 for the only one there is",
    FileKind.PARTITION_METADATA: "the broker writes it again at its start if it knows the topic",
}
_NO_ADVICE: Final = "this cannot be mended here"

Row = tuple[str, str, str, str, str]


@click.command("repair", cls=ToolCommand)
@click.argument("path", type=click.Path())
@click.option("--yes", is_flag=True, help="Do it; without this, only say what would be done.")
@json_option("Print JSON, one object per repair.")
def command(path: str, yes: bool, as_json: bool) -> None:
    """Mend what verify found; keeps a copy of everything.

    PATH is a log directory, or the folder of one partition.
    """
    target = look_at(path)
    if target.is_file:
        raise Failure(f"{path} is a file: name its folder, since the files there belong together")
    root = os.path.dirname(os.path.abspath(path)) if target.is_partition else path
    try:
        with _locked(root):
            _repair(path, root, is_partition=target.is_partition, yes=yes, as_json=as_json)
    except OSError as error:
        raise unreadable(path, error) from None
    except StorageFailure as failure:
        raise Failure(f"{failure}; run it again when that is mended, nothing was lost") from None


@contextmanager
def _locked(root: str) -> Iterator[None]:
    try:
        lock = SystemDisk().lock(os.path.join(root, LOCK_NAME))
    except FolderInUse:
        raise Failure(f"a broker is using {root}: stop it first") from None
    try:
        with open(os.path.join(root, LOCK_NAME), "r+b") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Failure(f"Apache Kafka is using {root}: stop it first") from None
            yield
    finally:
        lock.release()


def _repair(path: str, root: str, *, is_partition: bool, yes: bool, as_json: bool) -> None:
    clean_path = os.path.join(root, CLEAN_SHUTDOWN_NAME)
    was_closed = os.path.exists(clean_path)
    folders = [path] if is_partition else [p for p in partition_folders(path) if _is_live(p)]
    plans = [plan_partition(folder, was_closed=was_closed) for folder in folders]
    torn, unmended = ([], []) if is_partition else _own_files(path)
    rows = [row for plan in plans for row in _plan_rows(plan, root)]
    rows += [(os.path.relpath(name, root), "", text, "set it aside", "") for name, text in torn]
    unmended += [each for plan in plans for each in plan.unmended]
    advice = [(os.path.relpath(n, root), "", text, _advice(n), "") for n, text in unmended]
    print_rows(_COLUMNS, rows + advice, as_json=as_json)
    if not rows:
        say("nothing to repair" if not advice else "nothing that this can repair", style="yellow")
    elif not yes:
        say("nothing was changed: add --yes to do this", style="yellow")
    else:
        _mend(plans, [name for name, _ in torn], clean_path if was_closed else None)
    if advice:
        raise Failure(f"{len(advice)} of the findings cannot be mended here")


def _is_live(folder: str) -> bool:
    partition = partition_of(folder)
    return partition is not None and os.path.basename(folder) == f"{partition[0]}-{partition[1]}"


def _own_files(path: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Findings about the log directory's own files: (to set aside, not to be mended)."""
    torn, unmended = [], []
    for finding in FolderCheck(path).run_own():
        if finding.severity != ERROR:
            continue
        name, text = finding.path, f"{finding.where} {finding.text}".strip()
        if os.path.basename(name) in OFFSET_CHECKPOINTS:
            torn.append((name, text))
        else:
            unmended.append((name, text))
    return torn, unmended


def _plan_rows(plan: PartitionPlan, root: str) -> Iterator[Row]:
    for path, mends in plan.mends.items():
        name = os.path.relpath(path, root)
        for mend in mends:
            where = f"{mend.position}+{mend.size}"
            yield name, where, mend.reason, mend.deed, mend.lost
    for path in plan.files_aside:
        yield os.path.relpath(path, root), "", "does not fit the log", "set aside, build again", ""


def _advice(path: str) -> str:
    kind = kind_of(path)
    return _ADVICE.get(kind, _NO_ADVICE) if kind is not None else _NO_ADVICE


def _mend(plans: list[PartitionPlan], torn: list[str], clean_path: str | None) -> None:
    """Do all of it. The marker of a clean stop is away until everything is in place again."""
    disk = SystemDisk()
    content = b""
    if clean_path is not None:
        content = disk.read(clean_path) or b""
        disk.remove(clean_path)
        disk.sync_dir(os.path.dirname(clean_path))
    for name in torn:
        say(f"{name} is now {set_aside(name)}")
    for plan in plans:
        if plan:
            for path, copy in plan.mend():
                say(f"{path}: what it held is in {copy}")
    if clean_path is not None:
        disk.write_atomic(clean_path, content, sync=True)
