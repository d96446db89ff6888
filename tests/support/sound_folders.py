"""Runs `oncelog log verify` on the log directories that tests leave after a clean stop."""

from __future__ import annotations

from pathlib import Path

from oncelog.cli.log.check_folder import is_in_use
from oncelog.cli.log.findings import ERROR, Finding
from oncelog.cli.log.verify import verify_path
from oncelog.storage.files import CLEAN_SHUTDOWN_NAME

__all__ = ["faults"]


def faults(root: Path) -> list[Finding]:
    """What is wrong in the log directories below `root` that a broker closed.

    Folders within one called `damaged` are not looked at.
    """
    return [
        finding
        for marker in sorted(root.rglob(CLEAN_SHUTDOWN_NAME))
        if "damaged" not in marker.parts and not is_in_use(str(marker.parent))
        for finding in verify_path(str(marker.parent))
        if finding.severity == ERROR
    ]
