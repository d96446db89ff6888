"""Plants the bugs of tests/mutations/ one at a time and demands that the tests named there fail.

Run as ``python -m tests.support.mutations [NAME ...] [--evidence]``; part of `make test-full`.

A mutation is a TOML file: `file` (from the repository's root), `before` and `after` (`before` is in
the file exactly once), `tests` (paths or node ids of pytest; each must fail with the bug planted),
`why` (what a user would suffer from it). Nothing in the checkout is changed: each mutation gets a
copy of its own. First all named tests run on an unchanged copy, where they must pass.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.support import evidence
from tests.support.patches import (
    BadPatch,
    Edit,
    check_keys,
    edit_of,
    environment,
    patched,
    plant,
    read,
    why_of,
)

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "mutations"
COPIED = ("src", "tests", "bench", "docs", "examples", "pyproject.toml", "README.md")
"""What a copy holds: some unit tests compare the code with the documents."""

PARALLEL_MAX = 2
RUN_SECONDS_MAX = 600
TEST_SECONDS_MAX = 60
FAILED_LINE = "FAILED "
EXIT_OK, EXIT_TESTS_FAILED = 0, 1
KEYS = frozenset({"file", "before", "after", "tests", "why"})


@dataclass(frozen=True, slots=True)
class Mutation:
    """One planted bug. See the module."""

    name: str
    edit: Edit
    tests: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one mutation; `problem` is empty if every named test failed."""

    mutation: Mutation
    seconds: float
    problem: str = ""
    output: str = ""

    @property
    def caught(self) -> bool:
        """Whether every named test failed."""
        return not self.problem


def names() -> list[str]:
    """All mutations of the repository, by name."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str, root: Path = ROOT) -> Mutation:
    """Read one mutation. Raises `BadPatch` if it is not well formed or does not fit the code."""
    content = read(name, "tests/mutations", root)
    check_keys(name, content, KEYS)
    tests = content["tests"]
    if not isinstance(tests, list) or not tests or not all(isinstance(t, str) for t in tests):
        raise BadPatch(f"{name}: `tests` is a list of paths or node ids")
    mutation = Mutation(name, edit_of(name, content), tuple(tests), why_of(name, content))
    patched(name, [mutation.edit], root)
    _check_tests(mutation, root)
    return mutation


def _check_tests(mutation: Mutation, root: Path) -> None:
    name = mutation.name
    for test in mutation.tests:
        file, *parts = test.split("::")
        path = root / file
        if not path.exists():
            raise BadPatch(f"{name}: there is no test {file}")
        for part in parts:
            word = part.partition("[")[0]
            if f"def {word}(" not in path.read_text() and f"class {word}" not in path.read_text():
                raise BadPatch(f"{name}: {file} has no {word}")


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
            [sys.executable, "-m", "pytest", *options, *tests],
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


def check_unchanged(mutations: Sequence[Mutation]) -> str:
    """Run all named tests without any bug, in one go; returns the output if they do not pass."""
    tests = sorted({test for mutation in mutations for test in mutation.tests})
    with tempfile.TemporaryDirectory(prefix="oncelog-mutations-") as folder:
        tree = Path(folder)
        copy_tree(tree)
        imported = subprocess.run(
            [sys.executable, "-c", "import oncelog; print(oncelog.__file__)"],
            cwd=tree,
            env=environment(tree),
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        if not Path(imported).is_relative_to(tree):
            return f"the copy's sources are not what is imported, but {imported}"
        code, output = run_pytest(tree, tests)
    return "" if code == EXIT_OK else f"exit code {code}\n{output}"


def run_mutation(mutation: Mutation) -> Result:
    """Plant one bug and run its tests."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="oncelog-mutation-") as folder:
        tree = Path(folder)
        copy_tree(tree)
        plant(mutation.name, [mutation.edit], tree)
        code, output = run_pytest(tree, mutation.tests)
    return Result(mutation, time.monotonic() - begun, judge(mutation.tests, code, output), output)


def judge(tests: Iterable[str], code: int, output: str) -> str:
    """Say why a run did not catch the bug; empty if it did.

    Only failures of tests count: code that cannot be imported proves nothing.
    """
    if code == EXIT_OK:
        return "survived: its tests pass"
    if code != EXIT_TESTS_FAILED:
        return f"no catch: exit code {code}"
    failed = [
        line.removeprefix(FAILED_LINE)
        for line in output.splitlines()
        if line.startswith(FAILED_LINE)
    ]
    missed = [test for test in tests if not any(is_of(line, test) for line in failed)]
    return f"survived in {', '.join(missed)}" if missed else ""


def is_of(failed: str, test: str) -> bool:
    """Whether pytest's line about a failed test is about `test`, or about one inside of it."""
    return failed.startswith(test) and failed[len(test) :][:1] in ("", " ", "[", ":", "/")


def run_all(mutations: Sequence[Mutation], console: Console) -> list[Result]:
    """Run each mutation, a few at a time, with a bar that shows how far it is."""
    columns = (TextColumn("mutations"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    results = []
    with (
        Progress(*columns, TextColumn("{task.description}"), console=console) as progress,
        ThreadPoolExecutor(PARALLEL_MAX) as pool,
    ):
        task = progress.add_task("", total=len(mutations))
        for done in as_completed([pool.submit(run_mutation, m) for m in mutations]):
            results.append(done.result())
            progress.update(task, advance=1, description=results[-1].mutation.name)
    return sorted(results, key=lambda result: result.mutation.name)


def show(results: Sequence[Result], console: Console) -> None:
    """One line per mutation, then the output of those that no test caught."""
    table = Table(title="planted bugs")
    for column in ("mutation", "file", "verdict"):
        table.add_column(column, overflow="fold")
    table.add_column("seconds", justify="right")
    for result in results:
        verdict = "[green]caught[/green]" if result.caught else f"[bold red]{result.problem}[/]"
        mutation = result.mutation
        table.add_row(mutation.name, mutation.edit.file, verdict, f"{result.seconds:.1f}")
    console.print(table)
    for result in results:
        if not result.caught:
            console.print(f"[red]{result.mutation.name}[/red]: {result.mutation.why.strip()}")
            console.print(result.output, markup=False, highlight=False)


def run(wanted: Sequence[str], console: Console, *, with_evidence: bool) -> bool:
    """Run the named mutations, or all; true if every one was caught."""
    try:
        mutations = [load(name) for name in wanted or names()]
    except BadPatch as error:
        console.print(f"[red]{error}[/red]")
        return False
    with console.status("the same tests without any bug"):
        problem = check_unchanged(mutations)
    if problem:
        console.print("[red]the tests do not pass on the code as it is[/red]")
        console.print(problem, markup=False, highlight=False)
        return False
    results = run_all(mutations, console)
    show(results, console)
    missed = [result.mutation.name for result in results if not result.caught]
    if with_evidence:
        verdict = f"survived: {', '.join(missed)}" if missed else "all caught"
        how = "python -m tests.support.mutations"
        evidence.note("mutations", verdict, f"{len(results)} planted bugs", how)
    return not missed


def main() -> int:
    """Exit code 0 only if every bug was caught."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="all if none is given")
    parser.add_argument("--evidence", action="store_true", help="write docs/evidence.md")
    arguments = parser.parse_args()
    passed = run(arguments.names, Console(), with_evidence=arguments.evidence)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
