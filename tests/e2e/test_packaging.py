"""sdist and wheel, made from the checkout and installed where there is none.

For `make test-full`: pip fetches the libraries.
"""

import json
import os
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest

from tests.support import evidence
from tests.support.install_size import BASE_BYTES_MAX, ROOT, folder_bytes

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

STEP_S = 300
NEWCOMER_S_MAX = 60
"""From the install, with pip's cache warm, to the first transactional record read back."""


def run(*command: str | Path, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL"))}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=STEP_S,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def tracked(*patterns: str) -> set[str]:
    return set(evidence.git("ls-files", "--", *patterns).splitlines())


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist of what git knows, and the wheel that is made from the sdist alone."""
    folder = tmp_path_factory.mktemp("packaging")
    source = folder / "source"
    for name in tracked("."):
        path = ROOT / name
        if path.is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes(path.read_bytes())
    venv.create(folder / "build", with_pip=True)
    python = folder / "build" / "bin" / "python"
    pip = ("-m", "pip", "--quiet", "--disable-pip-version-check")
    run(python, *pip, "install", "setuptools>=77", cwd=folder)
    made = folder / "dist"
    code = f"from setuptools.build_meta import build_sdist; build_sdist({str(made)!r})"
    run(python, "-c", code, cwd=source)
    (sdist,) = made.glob("*.tar.gz")
    run(python, *pip, "wheel", "--no-deps", "--wheel-dir", made, sdist, cwd=folder)
    return made


def test_the_sdist_holds_everything_that_git_knows(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    listed = run("tar", "-tzf", sdist, cwd=dist).splitlines()
    names = {name.partition("/")[2] for name in listed}
    missing = {name for name in tracked(".") if (ROOT / name).is_file()} - names
    assert {name for name in missing if not name.startswith(".")} == set()


def test_the_wheel_holds_the_package_and_nothing_else(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    listed = run(sys.executable, "-m", "zipfile", "-l", wheel, cwd=dist).splitlines()[1:]
    names = {line.split()[0] for line in listed}
    package = {name for name in names if ".dist-info/" not in name}
    assert {n for n in package if not n.endswith((".so", ".pyd"))} == {
        name.removeprefix("src/") for name in tracked("src/oncelog")
    }


def test_it_works_where_there_is_no_checkout_and_stays_small(dist: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    (packages,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    before = folder_bytes(packages)
    (wheel,) = dist.glob("*.whl")
    begun_s = time.monotonic()
    run(python, "-m", "pip", "--quiet", "install", wheel, cwd=tmp_path)
    size = folder_bytes(packages) - before
    oncelog = tmp_path / "env" / "bin" / "oncelog"
    assert run(oncelog, "--version", cwd=tmp_path).startswith("oncelog, version ")
    findings = [
        json.loads(line) for line in run(oncelog, "doctor", "--json", cwd=tmp_path).splitlines()
    ]
    assert {one["check"] for one in findings} >= {"read it committed", "delete the topic"}
    assert "broken" not in {one["state"] for one in findings}
    seconds = round(time.monotonic() - begun_s, 1)
    run(oncelog, "simulate", "--seed", "1", "--duration", "1", "--page", "run.html", cwd=tmp_path)
    assert (tmp_path / "run.html").stat().st_size > 1000
    evidence.write(
        "packaging",
        "passed" if size <= BASE_BYTES_MAX and seconds <= NEWCOMER_S_MAX else "failed",
        {
            "base install in MB": round(size / 10**6, 1),
            "wheel in kB": wheel.stat().st_size // 1000,
            "seconds from install to a committed record read back": seconds,
        },
    )
    assert size <= BASE_BYTES_MAX
    assert seconds <= NEWCOMER_S_MAX
