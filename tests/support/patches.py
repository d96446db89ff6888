"""Bugs that are kept as data: patches in TOML files, and copies of the code that have them.

A file holds at least `file` (from the repository's root), `before` and `after` (`before` is in the
file exactly once), and `why`: what a user would suffer. What else it holds is its readers' matter.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

__all__ = [
    "EDIT_KEYS",
    "ROOT",
    "BadPatch",
    "Edit",
    "check_keys",
    "copy_tree",
    "edit_of",
    "environment",
    "limited",
    "patched",
    "plant",
    "read",
    "run_pytest",
    "why_of",
]

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("src", "tests", "bench", "docs", "examples", "pyproject.toml", "README.md", "noxfile.py")
"""What a copy holds: some unit tests compare the code with the documents."""

MEMORY_MAX = 6 << 30
"""Bytes that a process with a bug may take: one that counts without end must not take them all."""

RUN_SECONDS_MAX = 600
TEST_SECONDS_MAX = 60
EDIT_KEYS = frozenset({"file", "before", "after"})


class BadPatch(ValueError):  # noqa: N818 - names a state of the file
    """A bug's file that cannot be used, and why."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One place in the code that a bug changes."""

    file: str
    before: str
    after: str


def read(name: str, folder: str, root: Path) -> dict[str, Any]:
    """What the file of a bug holds. Raises `BadPatch` if there is none, or it is not TOML."""
    path = root / folder / f"{name}.toml"
    if not path.is_file():
        raise BadPatch(f"{name}: there is no {path.relative_to(root)}")
    try:
        return tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise BadPatch(f"{name}: {error}") from error


def check_keys(name: str, table: Mapping[str, Any], keys: frozenset[str]) -> None:
    """Raise `BadPatch` unless the table has exactly these keys."""
    if set(table) != keys:
        odd = ", ".join(sorted(set(table) ^ keys))
        raise BadPatch(f"{name}: keys missing or unknown: {odd}")


def edit_of(name: str, table: Mapping[str, Any]) -> Edit:
    """The edit of a table. Raises `BadPatch` if one of its values is no text."""
    if not all(isinstance(table[key], str) for key in EDIT_KEYS):
        raise BadPatch(f"{name}: `file`, `before` and `after` hold text")
    return Edit(table["file"], table["before"], table["after"])


def why_of(name: str, table: Mapping[str, Any]) -> str:
    """The reason in a table. Raises `BadPatch` if it gives none."""
    why = table["why"]
    if not isinstance(why, str) or not why.strip():
        raise BadPatch(f"{name}: `why` is empty")
    return why


def patched(name: str, edits: Iterable[Edit], root: Path) -> dict[str, str]:
    """The text of each file that the edits change. Raises `BadPatch` unless each fits once."""
    texts: dict[str, str] = {}
    for edit in edits:
        path = root / edit.file
        if not path.is_file():
            raise BadPatch(f"{name}: there is no {edit.file}")
        text = texts.get(edit.file) or path.read_text()
        count = text.count(edit.before)
        if count != 1:
            raise BadPatch(f"{name}: {edit.file} has `before` {count} times, not once")
        if edit.before == edit.after:
            raise BadPatch(f"{name}: `after` changes nothing in {edit.file}")
        texts[edit.file] = text.replace(edit.before, edit.after)
    return texts


def plant(name: str, edits: Iterable[Edit], tree: Path) -> None:
    """Change a copy of the repository. Raises `BadPatch` unless each edit fits once."""
    for file, text in patched(name, edits, tree).items():
        path = tree / file
        path.write_text(text)
        if path.suffix == ".py":
            # It could pass for up to date: same size, and written within the same second.
            Path(cache_from_source(str(path))).unlink(missing_ok=True)


def environment(tree: Path) -> dict[str, str]:
    """In which Python imports the sources of a copy, and leaves nothing in it."""
    return os.environ | {"PYTHONPATH": f"{tree / 'src'}", "PYTHONDONTWRITEBYTECODE": "1"}


def copy_tree(target: Path) -> None:
    """Copy what the tests need. Compiled files come along, as they carry their source's time.

    Files that another process is writing, and will rename, do not.
    """
    being_written = shutil.ignore_patterns("*.pyc.*")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=being_written)
        else:
            shutil.copy2(source, target / name)


def limited(command: Iterable[str], memory_max: int = MEMORY_MAX) -> list[str]:
    """The command with a limit on its memory in bytes, where the system has `prlimit`."""
    prlimit = shutil.which("prlimit")
    return [*([prlimit, f"--data={memory_max}"] if prlimit else []), *command]


def run_pytest(tree: Path, tests: Iterable[str]) -> tuple[int, str]:
    """Run tests of a copy against the sources of that copy; returns exit code and output."""
    options = [
        "-q",
        "--tb=short",
        "--color=no",
        "-rf",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
    ]
    options.append(f"--timeout={TEST_SECONDS_MAX}")
    try:
        done = subprocess.run(
            limited([sys.executable, "-m", "pytest", *options, *tests]),
            cwd=tree,
            env=environment(tree) | {"COLUMNS": "1000"},
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return -1, f"not over after {RUN_SECONDS_MAX} s"
    return done.returncode, done.stdout + done.stderr
