"""How much disk the base install takes: oncelog and what it needs, without any extra."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BASE_BYTES_MAX = 40 * 10**6
JUSTIFIED_FROM_BYTES = 3 * 10**6
"""A library of this size or more is justified in ARCHITECTURE.md."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def base_requirements() -> set[str]:
    """The libraries of the base install, and those that they need, as far as they are installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: set[str] = set()
    waiting = list(project["dependencies"])
    while waiting:
        requirement = waiting.pop()
        name = _normal(requirement)
        if name in found or "extra ==" in requirement:
            continue
        try:
            waiting += requires(name) or []
        except PackageNotFoundError:
            continue  # For another platform or Python.
        found.add(name)
    return found


def _normal(requirement: str) -> str:
    match = _NAME.match(requirement)
    if match is None:
        raise ValueError(requirement)
    return match[0].lower().replace("_", "-")


def library_bytes(name: str) -> int:
    """The size of a library's files, without compiled bytecode."""
    paths = [Path(str(found.locate())) for found in distribution(name).files or []]
    return sum(p.stat().st_size for p in paths if p.suffix != ".pyc" and p.is_file())


def folder_bytes(folder: Path) -> int:
    """The size of the files below a folder, without compiled bytecode."""
    files = (path for path in folder.rglob("*") if path.suffix != ".pyc" and path.is_file())
    return sum(path.stat().st_size for path in files)
