"""Builds the Go programs of the interop suite, once for each state of their sources."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from tests.support.peer.kafka import ROOT

__all__ = ["GoUnavailable", "built"]

CACHE = ROOT / ".cache" / "go"
USUAL_PLACE = "/usr/local/go/bin/go"
DOWNLOAD_TIMEOUT_S = 120
BUILD_TIMEOUT_S = 600
"""The first build on a machine compiles Go's own library: half a minute of processor."""


class GoUnavailable(Exception):  # noqa: N818 - names a state of the machine
    """Go, or a module, cannot be had here; the message says why."""


def built(source: Path, go: str | None = None, cache: Path = CACHE) -> Path:
    """Return the program whose module is in the folder `source`, built by the command `go`.

    Raises `GoUnavailable`; a program that does not compile is a `CalledProcessError`.
    """
    state = hashlib.sha256()
    for file in sorted(source.iterdir()):
        state.update(file.name.encode() + b"\0" + file.read_bytes())
    program = cache / f"{source.name}-{state.hexdigest()[:16]}"
    if program.exists():
        return program
    go = go or shutil.which("go") or USUAL_PLACE
    environment = os.environ | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": ""}
    try:
        _run([go, "mod", "download"], source, environment, DOWNLOAD_TIMEOUT_S)
    except FileNotFoundError:
        raise GoUnavailable("Go is not installed") from None
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = getattr(error, "stderr", "") or str(error)
        raise GoUnavailable(f"go mod download: {said.strip()}") from error
    cache.mkdir(parents=True, exist_ok=True)
    # Another process may build it too: each has a name of its own until it is whole.
    unfinished = program.with_name(f"{program.name}.{os.getpid()}")
    _run([go, "build", "-o", str(unfinished), "."], source, environment, BUILD_TIMEOUT_S)
    unfinished.replace(program)
    return program


def _run(command: list[str], folder: Path, environment: dict[str, str], timeout_s: float) -> None:
    subprocess.run(
        command,
        cwd=folder,
        env=environment,
        timeout=timeout_s,
        capture_output=True,
        text=True,
        check=True,
    )
