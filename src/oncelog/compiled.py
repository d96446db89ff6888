"""Lets the compiled modules of a checkout take the place of their sources, while they are fresh.

`make compiled` has mypyc compile the rooms that `[tool.oncelog.compiled]` of pyproject.toml names
(D11). The modules lie below `build/compiled`, never beside the sources: a copy of the sources, as
planted bugs need it, runs what it says. A manifest holds the hash of each source. If one of them
differs from its file, the compiled modules are passed over, all of them, because they call each
other without looking names up: a changed checkout runs interpreted until it is compiled again. They
are used only where `ONCELOG_COMPILED=1` asks for them.

In a wheel that was built with `ONCELOG_COMPILED=1` they lie beside the sources, and Python prefers
them by itself.

It is imported before any other module of this package, so it must import none.
"""

import os
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TypedDict

__all__ = [
    "Finder",
    "Manifest",
    "activate",
    "digest",
    "fresh_modules",
    "how_it_runs",
    "is_outdated",
]

PACKAGE = Path(__file__).resolve().parent
FOLDER = PACKAGE.parents[1] / "build" / "compiled" / f"{sys.implementation.cache_tag}"
MANIFEST_NAME = "manifest.json"
LEADING_MODULE = "oncelog.protocol.wire"
"""Where this one is compiled, all are."""


class Manifest(TypedDict):
    """What was compiled from what."""

    inputs: str
    """A digest of all that the compiler was given: its version, the settings, the sources."""
    sources: dict[str, str]
    """Path below the package -> digest of the source."""
    modules: dict[str, str]
    """Full name of a module -> path below the folder."""


class Finder:
    """Finds compiled modules; Python asks it before it looks at the sources."""

    def __init__(self, places: Mapping[str, Path]) -> None:
        self._places = places

    def find_spec(
        self, name: str, path: object = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        place = self._places.get(name)
        return None if place is None else spec_from_file_location(name, place)


def digest(data: bytes) -> str:
    """How the manifest tells one source from another."""
    import hashlib  # It loads OpenSSL, which an interpreted broker does without.

    return hashlib.blake2b(data, digest_size=16).hexdigest()


def fresh_modules(folder: Path, package: Path) -> dict[str, Path]:
    """The compiled modules by name; none if a source is not the one that was compiled."""
    import json

    try:
        manifest: Manifest = json.loads((folder / MANIFEST_NAME).read_bytes())
        for name, expected in manifest["sources"].items():
            if digest((package / name).read_bytes()) != expected:
                return {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {name: folder / place for name, place in manifest["modules"].items()}


def activate() -> None:
    """Have the compiled modules found from here on, if they are asked for and fresh."""
    if os.environ.get("ONCELOG_COMPILED", "0") not in ("", "0"):
        places = fresh_modules(FOLDER, PACKAGE)
        if places:
            sys.meta_path.insert(0, Finder(places))


def is_outdated() -> bool:
    """Whether there are compiled modules, but of other sources than these."""
    return (FOLDER / MANIFEST_NAME).is_file() and not fresh_modules(FOLDER, PACKAGE)


def how_it_runs() -> str:
    """The word "compiled" or "interpreted"."""
    spec = find_spec(LEADING_MODULE)
    is_source = spec is None or (spec.origin or "").endswith(".py")
    return "interpreted" if is_source else "compiled"
