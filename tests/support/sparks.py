"""`make test-sparks`: the tests of the pipeline on each PySpark, with evidence.

Each version gets a virtual environment of its own under .cache/sparks. Before 4.2 the tests read
through Spark's own Kafka connector (`tests.spark.sources`). One that is refused has to be refused
by name: importing `oncelog.spark` there must fail with the sentence of
`oncelog.spark.versions.refuse_version` and nothing else. What was found is written to
docs/evidence.md; pyproject.toml's range is held to it by a unit test.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tests.support import evidence
from tests.support.evidence import ROOT
from tests.support.pythons import SUITE_TIMEOUT_S, counted, install

TAKEN = ("4.3", "4.2", "4.1", "4.0", "3.5")
REFUSED = ("3.4",)
BESIDE = {
    # Its `applyInPandasWithState` slices Arrow's batches by floats, which later ones refuse.
    "3.5": ("pyarrow<19",)
}
WARNINGS = {
    # It compares versions by distutils, and leaves the sockets open by which it collects.
    "3.5": (
        "-W",
        "ignore:distutils Version classes are deprecated:DeprecationWarning",
        "-W",
        "ignore::pytest.PytestUnraisableExceptionWarning",
    )
}
FOLDER = ROOT / ".cache" / "sparks"
PATHS = ("tests/unit/spark", "tests/spark")
VERSION = "import pyspark; print(pyspark.__version__)"


def environment(version: str, console: Console) -> Path:
    """The Python of an environment with this PySpark and all else for development.

    It is set up once. Raises `RuntimeError` when it cannot be.
    """
    folder = FOLDER / version
    inside, stamp = folder / "bin" / "python", folder / ".installed"
    if stamp.exists() and stamp.stat().st_mtime >= (ROOT / "pyproject.toml").stat().st_mtime:
        return inside
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    console.print(f"installing into {folder.relative_to(ROOT)} ...")
    # Refused versions are outside of pyproject.toml's range, so PySpark comes last and alone.
    for what in (("--editable", ".[dev]"), (f"pyspark=={version}.*", *BESIDE.get(version, ()))):
        problem = install(inside, *what)
        if problem is not None:
            raise RuntimeError(f"{' '.join(what)} cannot be installed: {problem}")
    stamp.touch()
    return inside


def run_tests(version: str, python: Path, paths: Sequence[str]) -> dict[str, object]:
    """Run pytest there and count."""
    report = FOLDER / f"{version}.xml"
    report.unlink(missing_ok=True)
    command = [str(python), "-m", "pytest", "-q", "-m", "not soak", "-p", "no:cacheprovider"]
    command += [f"--junit-xml={report}", *WARNINGS.get(version, ()), *paths]
    begun = time.monotonic()
    done = subprocess.run(
        command, cwd=ROOT, env=settings(python), timeout=SUITE_TIMEOUT_S, check=False
    )
    name = said(python, VERSION)
    result = counted(report, done.returncode, name, round(time.monotonic() - begun), "installed")
    return {
        "pyspark": result.python,
        "verdict": "works" if result.failed == 0 else "fails",
        "passed": result.passed,
        "failed": result.failed,
        "skipped": result.skipped,
        "skip reasons": result.skip_reasons,
        "seconds": result.seconds,
    }


def run_import(python: Path) -> dict[str, object]:
    """Import the pipeline where it is refused."""
    words = said(python, "import oncelog.spark").splitlines()
    sentence = words[-1] if words else ""
    refused = "UnsupportedModeError: PySpark " in sentence
    return {
        "pyspark": said(python, VERSION),
        "verdict": "refused by name" if refused else "fails",
        "said": sentence,
    }


def said(python: Path, code: str) -> str:
    """What a line of Python prints there, errors included."""
    command = [str(python), "-c", code]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=settings(python),
        check=False,
    )
    return done.stdout.strip()


def settings(python: Path) -> dict[str, str]:
    """The variables of a process in that environment."""
    search = f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    made = {**os.environ, "PATH": search, "VIRTUAL_ENV": str(python.parents[1])}
    made.pop("PYTHONPATH", None)
    return made


def main() -> int:
    """Exit code 0 when the suite passed on each version taken and the others were refused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", default=list(PATHS), help="what to run")
    parser.add_argument("--only", action="append", choices=TAKEN + REFUSED, help="no evidence")
    arguments = parser.parse_args()
    console = Console()
    found: dict[str, dict[str, object]] = {}
    for version in arguments.only or TAKEN + REFUSED:
        python = environment(version, console)
        taken = version in TAKEN
        found[version] = (
            run_tests(version, python, arguments.paths) if taken else run_import(python)
        )
        console.print(f"PySpark {version}: {found[version]}", highlight=False)
    passed = not any(result["verdict"] == "fails" for result in found.values())
    if not arguments.only:
        verdict = "passed" if passed else "failed"
        versions = ", ".join(f"{v} {result['verdict']}" for v, result in found.items())
        evidence.note("sparks", verdict, f"PySpark {versions}", "make test-sparks")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
