"""Compiles the rooms that pyproject.toml names, for the checkout: what `make compiled` runs.

``python -m tests.support.compiling`` does nothing where the compiled modules are those of the
sources as they are, and where there is no C compiler: all runs interpreted then. With ``--check``
mypyc only translates to C, which tells whether it takes the sources. With ``--test`` tests are run
against the compiled modules. What is compiled, and what stays interpreted, stands in
pyproject.toml; `oncelog.compiled` says when it is used.
"""

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import setup
from oncelog.compiled import FOLDER, MANIFEST_NAME, PACKAGE, Manifest, digest

__all__ = ["inputs", "is_current", "main", "manifest_of", "places_of"]

ROOT = Path(__file__).resolve().parents[2]
TESTED = ("tests/unit", "tests/scenarios")


def compiled_sources() -> list[str]:
    """Paths below the package."""
    paths = [Path(path) for group, _ in setup.groups() for path in group]
    return [path.relative_to("src/oncelog").as_posix() for path in paths]


def inputs() -> dict[str, str]:
    """Digest by name of everything that the compiled modules depend on."""
    given = {name: digest((PACKAGE / name).read_bytes()) for name in compiled_sources()}
    given["mypy"] = importlib.metadata.version("mypy")
    given["python"] = sys.version
    given["optimise"] = os.environ.get("ONCELOG_OPTIMISE", setup.OPTIMISE)
    for name in ("setup.py", "pyproject.toml"):
        given[name] = digest((ROOT / name).read_bytes())
    return given


def manifest_of(given: dict[str, str], folder: Path) -> Manifest:
    """The manifest of what was built in `folder` from `given`."""
    names = compiled_sources()
    modules = {f"oncelog.{name.removesuffix('.py').replace('/', '.')}" for name in names}
    modules |= {f"{library}__mypyc" for _, library in setup.groups()}
    # An earlier build may have left modules that are interpreted by now.
    places = {name: place for name, place in places_of(folder).items() if name in modules}
    sources = {name: given[name] for name in names}
    return {"inputs": _summary(given), "sources": sources, "modules": places}


def places_of(folder: Path) -> dict[str, str]:
    """Module -> file below `folder`."""
    suffix = EXTENSION_SUFFIXES[0]
    found = sorted(path.relative_to(folder) for path in folder.rglob(f"*{suffix}"))
    return {
        path.as_posix().removesuffix(suffix).replace("/", "."): path.as_posix() for path in found
    }


def is_current(folder: Path, given: dict[str, str]) -> bool:
    """Whether `folder` holds what would be built from `given`."""
    try:
        manifest: Manifest = json.loads((folder / MANIFEST_NAME).read_bytes())
    except (OSError, ValueError):
        return False
    return manifest["inputs"] == _summary(given)


def _summary(given: dict[str, str]) -> str:
    return digest(json.dumps(given, sort_keys=True).encode())


def build(console: Console) -> bool:
    """Compile everything and write the manifest last. False when that failed."""
    given = inputs()
    total = len(compiled_sources()) + len(setup.groups())
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / MANIFEST_NAME).unlink(missing_ok=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("compiling", total=total)
        log = []
        for line in _build_lines():
            log.append(line)
            progress.update(task, advance=line.startswith("building '"))
    if log[-1] != "exit code 0":
        console.print("".join(log[-30:]), markup=False, highlight=False)
        return False
    manifest = manifest_of(given, FOLDER)
    (FOLDER / MANIFEST_NAME).write_text(json.dumps(manifest, indent=1))
    return True


def _build_lines() -> Iterator[str]:
    work = FOLDER.parent / f"{FOLDER.name}-objects"
    arguments = ("-j", str(os.cpu_count() or 1), "--build-lib", FOLDER, "--build-temp", work)
    with subprocess.Popen(
        [sys.executable, ROOT / "setup.py", "build_ext", *arguments],
        cwd=ROOT,
        env=_environment(work / "c"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield from process.stdout
    yield f"exit code {process.returncode}"


def _environment(c_folder: Path) -> dict[str, str]:
    c_folder.mkdir(parents=True, exist_ok=True)
    return os.environ | {"ONCELOG_COMPILED": "1", "ONCELOG_C_DIR": str(c_folder)}


def check(console: Console) -> bool:
    """Translate to C, and no further."""
    with tempfile.TemporaryDirectory(prefix="oncelog-c-") as folder:
        done = subprocess.run(
            [sys.executable, "-c", "import setup; setup.modules()"],
            cwd=ROOT,
            env=_environment(Path(folder)),
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        console.print(done.stdout + done.stderr, markup=False, highlight=False)
    return done.returncode == 0


def make_current(console: Console) -> bool:
    """Compile if need be. False when that failed."""
    if is_current(FOLDER, inputs()):
        console.print("compiled modules: up to date")
        return True
    if setup.c_compiler() is None:
        console.print("there is no C compiler, or no Python.h: everything runs interpreted")
        return True
    return build(console)


def run_tests(options: Sequence[str], console: Console) -> bool:
    """Run tests against compiled modules, made first; True also where none can be made."""
    if not make_current(console):
        return False
    if not is_current(FOLDER, inputs()):
        return True
    environment = os.environ | {"ONCELOG_COMPILED": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not soak", *options]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode == 0


def main() -> int:
    """Exit code 0 also where there is nothing to do."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="translate to C only")
    parser.add_argument("--test", action="store_true", help="then run tests: unit and scenarios")
    parser.add_argument("--jobs", type=int, default=2, help="processes of the tests")
    arguments, for_pytest = parser.parse_known_args()
    console = Console()
    if arguments.check:
        return 0 if check(console) else 1
    if arguments.test:
        options = ["-n", str(arguments.jobs), *(for_pytest or TESTED)]
        return 0 if run_tests(options, console) else 1
    return 0 if make_current(console) else 1


if __name__ == "__main__":
    sys.exit(main())
