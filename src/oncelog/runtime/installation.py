"""Finds which oncelog is installed and how, to name the command that installs a missing extra.

`pip install 'oncelog[spark]'` does not help a user who installed from a checkout or a wheel.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["ExtraMissing", "how_to_install", "require_extra", "version"]

_CHECKOUT = Path(__file__).resolve().parents[3]


class ExtraMissing(ImportError):  # noqa: N818 - it names what is missing
    """Packages of an extra are not installed; the message says how to install them."""


def version() -> str:
    """Return the version of the package that runs, as `oncelog.__version__`."""
    # The top package is above this one, so it is not imported but looked up: it is loaded.
    return str(sys.modules["oncelog"].__version__)


def require_extra(purpose: str, extra: str, packages: Iterable[str]) -> None:
    """Check that an extra's packages are installed. Raises `ExtraMissing`."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise ExtraMissing(
            f"{purpose} needs {', '.join(missing)}, which {are} not installed: "
            f"{how_to_install(extra)}"
        )


def how_to_install(extra: str) -> str:
    """Return the command that adds an extra to this installation."""
    return f"{shlex.quote(sys.executable)} -m pip install {_what(extra)}"


def _what(extra: str) -> str:
    try:
        origin = Distribution.from_name("oncelog").read_text("direct_url.json")
    except PackageNotFoundError:
        # Run from the sources, without an installation.
        return shlex.quote(f"{_CHECKOUT}[{extra}]")
    if origin is None:
        return f"'oncelog[{extra}]'"
    found = json.loads(origin)
    url = urlsplit(found["url"])
    if url.scheme != "file":
        return shlex.quote(f"oncelog[{extra}] @ {found['url']}")
    editable = "-e " if found.get("dir_info", {}).get("editable") else ""
    return editable + shlex.quote(f"{unquote(url.path)}[{extra}]")
