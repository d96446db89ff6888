"""Compiles the hot rooms with mypyc where that is asked for; all else stands in pyproject.toml.

`ONCELOG_COMPILED=1 pip wheel .` makes a wheel with compiled modules beside the sources; without it
the wheel is pure. `make compiled` calls `build_ext` for a checkout (tests/support/compiling.py).
"""

import os
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent
PACKAGE = ROOT / "src" / "oncelog"
OPTIMISE = "2"
MYPYC = "mypy[mypyc]>=2.1,<3"


def groups() -> list[tuple[list[str], str | None]]:
    """(sources, name of the shared library) of each group."""
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["oncelog"]
    found: list[tuple[list[str], str | None]] = []
    for name, parts in tool["compiled"].items():
        paths = [path for part in parts for path in sources(PACKAGE / part)]
        names = {path: path.relative_to(PACKAGE).as_posix() for path in paths}
        kept = [
            path.relative_to(ROOT).as_posix()
            for path in paths
            if not any(fnmatch(names[path], pattern) for pattern in tool["interpreted"])
        ]
        found.append((kept, f"oncelog_{name}"))
    return found


def sources(place: Path) -> list[Path]:
    """The file itself, or all below a folder."""
    return [place] if place.is_file() else sorted(place.rglob("*.py"))


def wants_compiling() -> bool:
    """Never for an editable install: its modules would lie beside the sources, and grow old."""
    asked = os.environ.get("ONCELOG_COMPILED", "0") not in ("", "0")
    return asked and "editable_wheel" not in sys.argv and "sdist" not in sys.argv


if __name__ == "__main__":
    if wants_compiling():
        os.chdir(ROOT)
        try:
            from mypyc.build import mypycify
        except ImportError:
            # pip asks first what is needed, and installs it.
            setup(setup_requires=[MYPYC])
        else:
            parts = groups()
            paths = [path for kept, _ in parts for path in kept]
            modules = mypycify(
                # mypy's cache forgets what mypyc needs to know of classes in other groups.
                ["--strict", f"--cache-dir={os.devnull}", *paths],
                opt_level=os.environ.get("ONCELOG_OPTIMISE", OPTIMISE),
                debug_level="0",
                separate=parts,
                target_dir=os.environ.get("ONCELOG_C_DIR"),
            )
            setup(setup_requires=[MYPYC], ext_modules=modules)
    else:
        setup()
