"""`make test-pythons`: the suite on each Python that this machine has, with evidence.

Interpreters are looked for on the PATH and among pyenv's versions. Each gets a virtual environment
of its own under .cache/pythons; where Spark's packages cannot be installed its tests are left out,
and the table says so. What was found is a row of docs/evidence.md; the versions that pyproject.toml
claims are held to it by a unit test.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
import tomllib
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.support import evidence
from tests.support.evidence import ROOT

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
FOLDER = ROOT / ".cache" / "pythons"
SPARK_TESTS = ("tests/spark", "tests/unit/spark")
CLAIMS_TEST = "tests/unit/support/test_pythons.py::test_only_versions_that_passed_are_claimed"
"""Compares with the evidence of the run before: it cannot be part of the run that writes it."""
INSTALL_TIMEOUT_S = 1800
SUITE_TIMEOUT_S = 3600
# What a Python needs beyond its core: one that was built without them is of no use here.
PROBE = "import ctypes, sqlite3, ssl, venv, zlib, sys; print('%d.%d' % sys.version_info[:2])"


@dataclass(frozen=True, slots=True)
class Result:
    """What the suite said on one interpreter."""

    python: str
    passed: int
    failed: int
    skipped: int
    seconds: int
    spark: str
    """"installed", or why not."""
    skip_reasons: dict[str, int] = field(default_factory=dict)


def candidates(version: str) -> Iterator[Path]:
    """Where an interpreter of this version may be, best first."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        yield Path(sys.executable)
    on_path = shutil.which(f"python{version}")
    if on_path is not None:
        yield Path(on_path)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    yield from sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True)


def interpreter(version: str) -> Path | str:
    """An interpreter that works, or the reason why there is none."""
    reason = "not on this machine: neither on the PATH nor among pyenv's versions"
    for path in candidates(version):
        done = subprocess.run([path, "-c", PROBE], capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip() == version:
            return path
        last_words = (done.stderr.strip() or f"it is Python {done.stdout.strip()}").splitlines()[-1]
        reason = f"{path} is not usable: {last_words}"
    return reason


def requirements(extra: str, *, without: str) -> list[str]:
    """What an extra of pyproject.toml asks for, extras inside it included, but for one of them."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    found = []
    for requirement in extras[extra]:
        inner = requirement.removeprefix("oncelog[").removesuffix("]")
        if inner == requirement:
            found.append(requirement)
            continue
        for name in inner.split(","):
            if name != without:
                found += requirements(name, without=without)
    return found


def environment(version: str, python: Path, console: Console) -> tuple[Path, str]:
    """(the virtual environment's Python, "installed" or why Spark is not), set up once.

    Raises `RuntimeError` when not even the rest can be installed.
    """
    folder = FOLDER / version
    stamp = folder / ".installed"
    inside = folder / "bin" / "python"
    project = ROOT / "pyproject.toml"
    if stamp.exists() and stamp.stat().st_mtime >= project.stat().st_mtime:
        return inside, stamp.read_text()
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([python, "-m", "venv", folder], check=True)
    console.print(f"installing into {folder.relative_to(ROOT)} ...")
    problem = install(inside, "--editable", ".[dev]")
    spark = "installed"
    if problem is not None:
        spark = f"not installed: {problem}"
        rest = requirements("dev", without="spark")
        problem = install(inside, "--editable", ".", *rest)
    if problem is not None:
        raise RuntimeError(f"the dependencies cannot be installed: {problem}")
    stamp.write_text(spark)
    return inside, spark


def install(python: Path, *what: str) -> str | None:
    """None when pip installed it, or its last words."""
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"pip was not done after {INSTALL_TIMEOUT_S} s"
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return lines[-1].strip() if lines else f"pip ended with {done.returncode}"


def run_suite(version: str, python: Path, spark: str, paths: Sequence[str]) -> Result:
    """Run pytest and count."""
    report = FOLDER / f"{version}.xml"
    report.unlink(missing_ok=True)
    left_out = [f"--ignore={path}" for path in SPARK_TESTS] if spark != "installed" else []
    command = [str(python), "-m", "pytest", "-q", "-m", "not soak", "-p", "no:cacheprovider"]
    command += [f"--junit-xml={report}", f"--deselect={CLAIMS_TEST}", *left_out, *paths]
    # Tests that start `oncelog` have to find the one of this environment.
    search = f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    settings = {**os.environ, "PATH": search, "VIRTUAL_ENV": str(python.parents[1])}
    settings.pop("PYTHONPATH", None)
    begun = time.monotonic()
    code = subprocess.run(
        command, cwd=ROOT, env=settings, timeout=SUITE_TIMEOUT_S, check=False
    ).returncode
    seconds = round(time.monotonic() - begun)
    asked = [str(python), "-c", "import platform; print(platform.python_version())"]
    name = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    return counted(report, code, name, seconds, spark)


def counted(report: Path, code: int, python: str, seconds: int, spark: str) -> Result:
    """The figures of pytest's report; a run without one, or that did not end well, has failed."""
    suite = ElementTree.parse(report).getroot().find("testsuite") if report.exists() else None
    if suite is None:
        return Result(python, 0, 1, 0, seconds, spark)
    tests, failures, errors, skipped = (
        int(suite.get(key, "0")) for key in ("tests", "failures", "errors", "skipped")
    )
    reasons = Counter(str(skip.get("message")) for skip in suite.iter("skipped"))
    failed = failures + errors
    return Result(
        python,
        passed=tests - failed - skipped,
        failed=failed or (1 if code != 0 else 0),
        skipped=skipped,
        seconds=seconds,
        spark=spark,
        skip_reasons=dict(sorted(reasons.items())),
    )


def table(results: dict[str, Result]) -> Table:
    """A row for each interpreter that ran the suite."""
    made = Table(title="Oncelog on each Python")
    made.add_column("Python")
    for name in ("passed", "failed", "skipped", "seconds"):
        made.add_column(name, justify="right")
    made.add_column("Spark", overflow="fold")
    for result in results.values():
        color = "red" if result.failed else "green"
        made.add_row(
            result.python,
            f"{result.passed:,}",
            f"[{color}]{result.failed}[/{color}]",
            str(result.skipped),
            str(result.seconds),
            result.spark,
        )
    return made


def write_evidence(
    results: dict[str, Result], untested: dict[str, str], paths: Sequence[str]
) -> bool:
    """Whether all that ran passed, written down."""
    passed = bool(results) and not any(result.failed for result in results.values())
    count = ", ".join(f"{one.passed:,} tests on {v}" for v, one in results.items())
    untested_too = "".join(f"; {v} untested" for v in untested)
    how = f"make test-pythons ARGS='{' '.join(paths)}'"
    evidence.note("pythons", "passed" if passed else "failed", count + untested_too, how)
    return passed


def main() -> int:
    """Exit code 0 when the suite passed on every interpreter that was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", default=["tests"], help="what to run")
    parser.add_argument("--only", action="append", choices=VERSIONS, help="run these, no evidence")
    arguments = parser.parse_args()
    console = Console()
    results: dict[str, Result] = {}
    untested: dict[str, str] = {}
    for version in arguments.only or VERSIONS:
        python = interpreter(version)
        if isinstance(python, str):
            untested[version] = python
            continue
        try:
            inside, spark = environment(version, python, console)
        except RuntimeError as error:
            untested[version] = str(error)
            continue
        console.print(f"Python {version} ...")
        results[version] = run_suite(version, inside, spark, arguments.paths)
    console.print(table(results))
    for version, reason in untested.items():
        console.print(f"Python {version} is untested: {reason}", highlight=False)
    if arguments.only:
        return 1 if any(result.failed for result in results.values()) else 0
    return 0 if write_evidence(results, untested, arguments.paths) else 1


if __name__ == "__main__":
    sys.exit(main())
