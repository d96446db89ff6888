"""A Python environment with nothing in it, where nothing of this checkout can be seen."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Self

STEP_S = 600
NONE: Mapping[str, str] = MappingProxyType({})
_HIDDEN = ("PYTHON", "VIRTUAL", "ONCELOG")


class StepFailed(RuntimeError):  # noqa: N818 - what happened, as subprocess names its own
    """A command did not end well; the text has what it printed."""


def environment() -> dict[str, str]:
    """The variables of this process without those that would lead into this checkout."""
    return {key: value for key, value in os.environ.items() if not key.startswith(_HIDDEN)}


def run(
    *command: str | Path, cwd: Path, text: str | None = None, variables: Mapping[str, str] = NONE
) -> str:
    """What a command prints; `text` is what it reads. Raises `StepFailed`."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env=environment() | dict(variables),
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            text=True,
            timeout=STEP_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StepFailed(f"{' '.join(words)}: not done after {STEP_S} s") from None
    if done.returncode != 0:
        raise StepFailed(f"{' '.join(words)}\n{done.stdout}\n{done.stderr}")
    return done.stdout


class FreshPython:
    """A virtual environment of its own in `folder`, where its commands run, too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def made(cls, folder: Path, python: str | Path = sys.executable) -> Self:
        """With pip and nothing else, of that interpreter. Raises `StepFailed`."""
        run(python, "-m", "venv", folder, cwd=folder.parent)
        return cls(folder)

    def command(self, name: str) -> Path:
        """The path of one of its commands, as ``python``."""
        return self.folder / "bin" / name

    @property
    def packages(self) -> Path:
        """Its folder of libraries."""
        (found,) = (self.folder / "lib").glob("python*/site-packages")
        return found

    def run(
        self, name: str, *arguments: str | Path, cwd: Path | None = None, text: str | None = None
    ) -> str:
        """What one of its commands prints; `text` is what it reads. Raises `StepFailed`."""
        return run(self.command(name), *arguments, cwd=cwd or self.folder, text=text)

    def install(self, *packages: str | Path, options: tuple[str, ...] = ()) -> None:
        """By pip. Raises `StepFailed`."""
        quiet = ("-m", "pip", "--quiet", "--disable-pip-version-check", "install")
        self.run("python", *quiet, *options, *packages)

    def installed(self) -> dict[str, str]:
        """Library -> version."""
        listed = self.run("python", "-m", "pip", "--disable-pip-version-check", "freeze")
        pairs = (line.split("==") for line in listed.splitlines() if "==" in line)
        return {name.lower().replace("_", "-"): version for name, version in pairs}
