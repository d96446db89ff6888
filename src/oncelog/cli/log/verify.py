"""``oncelog log verify``: check files against each other, and change nothing.

Every batch's CRC, records and order; indexes, aborted transactions, producer snapshots and leader
epochs against the log; checkpoints against the ends of the logs; folders against the metadata. The
exit code is 1 when something is wrong. A broker may be running: then the end of each log is taken
as it is, and files that are written at a stop are not expected.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import click

from oncelog.cli.log.check_folder import FolderCheck, is_in_use
from oncelog.cli.log.check_partition import PartitionCheck
from oncelog.cli.log.findings import ERROR, Finding
from oncelog.cli.log.kinds import CLEAN_SHUTDOWN_NAME, look_at, unreadable
from oncelog.cli.output import Column, print_rows, say, warn
from oncelog.cli.tool import Failure, ToolCommand, json_option

__all__ = ["command", "verify_path"]

_COLUMNS: Final = (
    Column("severity", "", style="bold"),
    Column("file", "File", style="cyan", wraps=True),
    Column("where", "Where"),
    Column("finding", "Finding", wraps=True),
)
_FINDINGS_SHOWN_COUNT_MAX: Final = 10_000
"""A file of garbage would otherwise make one finding per entry."""


@click.command("verify", cls=ToolCommand)
@click.argument("path", type=click.Path())
@json_option("Print JSON, one object per finding.")
def command(path: str, as_json: bool) -> None:
    """Check files against each other; changes nothing."""
    try:
        findings = list(_limited(verify_path(path)))
        if _is_in_use(path):
            warn("a broker is using this folder: what it is just writing is not judged")
    except OSError as error:
        raise unreadable(path, error) from None
    root = path if os.path.isdir(path) else os.path.dirname(path)
    rows = [(f.severity, os.path.relpath(f.path, root), f.where, f.text) for f in findings]
    print_rows(_COLUMNS, rows, as_json=as_json)
    wrong_count = sum(finding.severity == ERROR for finding in findings)
    if wrong_count:
        things = "thing is" if wrong_count == 1 else "things are"
        raise Failure(
            f"{wrong_count} {things} wrong: `oncelog log repair {path}` says what can be done"
        )
    say(f"{path} is sound")


def verify_path(path: str) -> Iterator[Finding]:
    """What is found in a log directory, a partition's folder, or about one file of a partition.

    Raises OSError, and `Failure` for a path that is none of these.
    """
    target = look_at(path)
    if target.is_partition:
        yield from _partition_check(path).run()
    elif not target.is_file:
        yield from FolderCheck(path).run()
    else:
        folder = os.path.dirname(os.path.abspath(path))
        checked = _partition_check(folder).run() if look_at(folder).is_partition else None
        found = FolderCheck(folder).run() if checked is None else checked
        yield from (each for each in found if os.path.samefile(_existing(each.path), path))


def _partition_check(folder: str) -> PartitionCheck:
    above = os.path.dirname(os.path.abspath(folder))
    in_use = is_in_use(above)
    was_closed = not in_use and os.path.exists(os.path.join(above, CLEAN_SHUTDOWN_NAME))
    return PartitionCheck(folder, was_closed=was_closed, in_use=in_use)


def _existing(path: str) -> str:
    return path if os.path.exists(path) else os.devnull


def _is_in_use(path: str) -> bool:
    folder = os.path.abspath(path)
    return any(is_in_use(above) for above in (folder, *_parents(folder, 2)))


def _parents(folder: str, count: int) -> Iterator[str]:
    for _ in range(count):
        folder = os.path.dirname(folder)
        yield folder


def _limited(findings: Iterator[Finding]) -> Iterator[Finding]:
    for number, finding in enumerate(findings):
        if number == _FINDINGS_SHOWN_COUNT_MAX:
            return
        yield finding
