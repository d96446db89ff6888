"""The tests on each Python and on each PySpark, each in an environment of its own (`nox`).

A Python that this machine does not have is passed over; `nox --list` names the sessions. What they
found are rows of docs/evidence.md.
"""

import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import nox

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from tests.support import copied, evidence  # noqa: E402 - the checkout is no library
from tests.support.release import build  # noqa: E402

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
SPARKS = ("3.5", "4.0", "4.1", "4.2", "4.3")
REFUSED_SPARK = "3.4"
SPARK_TESTS = ("tests/unit/spark", "tests/spark")
COLLECTS_BY_OPEN_SOCKETS = ("-W", "ignore::pytest.PytestUnraisableExceptionWarning")
"""Some leave the sockets open by which they collect rows, which Python says when it frees them."""
COMPARES_BY_DISTUTILS = (
    "-W",
    "ignore:distutils Version classes are deprecated:DeprecationWarning",
)
OLD_SPARKS = {
    "3.5": (*COMPARES_BY_DISTUTILS, *COLLECTS_BY_OPEN_SOCKETS),
    "4.0": COLLECTS_BY_OPEN_SOCKETS,
    "4.1": COLLECTS_BY_OPEN_SOCKETS,
}
INVALID = "UnsupportedModeError: PySpark "

nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_missing_interpreters = False


@nox.session(python=PYTHONS)
def pythons(session: nox.Session) -> None:
    """Everything but the soaks, on one Python."""
    session.install("--editable", ".[dev]")
    _test(session, f"python {session.python}", *(session.posargs or ("tests",)))


@nox.session
@nox.parametrize("pyspark", SPARKS)
def sparks(session: nox.Session, pyspark: str) -> None:
    """The pipeline's tests on one PySpark; before 4.2 they read through Spark's own connector."""
    session.install("--editable", ".[dev]")
    # 3.5's `applyInPandasWithState` slices Arrow's batches by floats, which later ones refuse.
    session.install(f"pyspark=={pyspark}.*", *(("pyarrow<19",) if pyspark == "3.5" else ()))
    old = OLD_SPARKS.get(pyspark, ())
    _test(session, f"pyspark {pyspark}", *old, *(session.posargs or SPARK_TESTS))


@nox.session
def refused_spark(session: nox.Session) -> None:
    """A PySpark that is too old is refused by name, at the import."""
    session.install("--editable", ".[spark]")
    session.install(f"pyspark=={REFUSED_SPARK}.*")
    said = session.run("python", "-c", "import oncelog.spark", success_codes=[1], silent=True)
    is_by_name = INVALID in str(said).strip().splitlines()[-1]
    _note(session, f"pyspark {REFUSED_SPARK}", "refused by name" if is_by_name else "failed", "")
    if not is_by_name:
        session.error(str(said))


@nox.session(python=PYTHONS)
def docs(session: nox.Session) -> None:
    """The tests of docs/testing.md, copied into an empty project where the wheel is installed."""
    # Outside of the checkout, whose settings of pytest a project of its own does not have.
    with tempfile.TemporaryDirectory(prefix="oncelog-docs-") as folder:
        _, wheel = build(ROOT, Path(folder))
        session.install(*copied.packages(wheel))
        project = Path(folder) / "project"
        project.mkdir()
        copied.copy_tests(project)
        with session.chdir(project):
            _test(session, f"docs/testing.md on python {session.python}")


@nox.session(python=PYTHONS)
def cycles(session: nox.Session) -> None:
    """Embedded brokers that start and stop 500 times leave nothing."""
    session.install("--editable", ".")
    said = session.run("python", "-m", "tests.support.cycles", "--check", silent=True)
    _note(session, f"embedded on python {session.python}", "flat", str(said).strip())


def _test(session: nox.Session, campaign: str, *arguments: str) -> None:
    """Run pytest, and keep the row."""
    report = Path(session.create_tmp()).resolve() / "report.xml"
    report.unlink(missing_ok=True)
    command = ("python", "-m", "pytest", "-q", "-m", "not soak", "-p", "no:cacheprovider")
    session.run(*command, f"--junit-xml={report}", *arguments, success_codes=range(6))
    suite = ElementTree.parse(report).getroot().find("testsuite") if report.exists() else None
    if suite is None:
        session.error("pytest left no report")
    counts = {key: int(suite.get(key, "0")) for key in ("tests", "failures", "errors", "skipped")}
    failed = counts["failures"] + counts["errors"]
    passed = counts["tests"] - counts["skipped"] - failed
    verdict = "passed" if passed and not failed else "failed"
    _note(session, campaign, verdict, f"{passed:,} passed, {failed} failed")
    if verdict == "failed":
        session.error(f"{failed} failed")


def _note(session: nox.Session, campaign: str, verdict: str, count: str) -> None:
    evidence.note(campaign, verdict, count, f"nox -s '{session.name}'")
