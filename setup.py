"""Compiles the hot rooms with mypyc where that is asked for, and makes the page of an index.

All else stands in pyproject.toml.

`ONCELOG_COMPILED=1 pip wheel .` makes a wheel with compiled modules beside the sources; without it
the wheel is pure. `make compiled` calls `build_ext` for a checkout (tests/support/compiling.py).
"""

import os
import re
import shutil
import sys
import sysconfig
import tomllib
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from setuptools import Extension, setup

ROOT = Path(__file__).resolve().parent
PACKAGE = ROOT / "src" / "oncelog"
OPTIMISE = "2"
MYPYC = "mypy[mypyc]>=2.1,<3"
CHECKED = (
    "--strict",
    # Where pip builds a wheel, no library is installed but mypy.
    "--ignore-missing-imports",
    "--no-warn-return-any",
    "--no-warn-unused-ignores",
    # mypy's cache forgets what mypyc needs to know of classes in other groups.
    f"--cache-dir={os.devnull}",
)
"""Options of mypy."""


LINK_INTO_THE_CHECKOUT = re.compile(r"!?\[([^\]]+)\]\((?!https?:|#)[^)]+\)")


def long_description() -> str:
    """README.md for a package index, where a link into the checkout would lead nowhere."""
    return LINK_INTO_THE_CHECKOUT.sub(r"\1", (ROOT / "README.md").read_text(encoding="utf-8"))


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


def c_compiler() -> str | None:
    """The C compiler that this Python builds with; None if it, or Python's header, is missing."""
    command = os.environ.get("CC") or str(sysconfig.get_config_var("CC") or "cc")
    has_header = (Path(sysconfig.get_path("include")) / "Python.h").is_file()
    return shutil.which(command.split()[0]) if has_header else None


def compiles(commands: Sequence[str]) -> bool:
    """Whether these commands build modules, and that is asked for.

    Never for an editable install: its modules would lie beside the sources, and grow old.
    """
    if os.environ.get("ONCELOG_COMPILED", "0") in ("", "0") or "editable_wheel" in commands:
        return False
    return not {"bdist_wheel", "build_ext"}.isdisjoint(commands)


def requirements(commands: Sequence[str]) -> list[str]:
    """What has to be there before a build: pip asks by `egg_info`, and installs it."""
    is_asked = "egg_info" in commands and compiles(["bdist_wheel"])
    return [MYPYC] if is_asked else []


def modules() -> list[Extension]:
    """Translate to C."""
    try:
        from mypyc.build import mypycify
    except ImportError:
        sys.exit(f"ONCELOG_COMPILED=1 needs {MYPYC}")
    if c_compiler() is None:
        sys.exit("ONCELOG_COMPILED=1 needs a C compiler, and Python.h")
    os.chdir(ROOT)
    parts = groups()
    paths = [path for kept, _ in parts for path in kept]
    made: list[Extension] = mypycify(
        [*CHECKED, *paths],
        opt_level=os.environ.get("ONCELOG_OPTIMISE", OPTIMISE),
        debug_level="0",
        separate=parts,
        target_dir=os.environ.get("ONCELOG_C_DIR"),
    )
    return made


if __name__ == "__main__":
    given = sys.argv[1:]
    setup(
        long_description=long_description(),
        long_description_content_type="text/markdown",
        setup_requires=requirements(given),
        ext_modules=modules() if compiles(given) else [],
        options={"build_ext": {"parallel": os.cpu_count() or 1}},
    )
