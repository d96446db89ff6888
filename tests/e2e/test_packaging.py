"""sdist and wheel, made from the checkout and installed where there is none.

For `make test-full`: pip fetches the libraries.
"""

import zipfile
from pathlib import Path

import pytest

import oncelog
import setup
from tests.support import release
from tests.support.fresh_python import FreshPython
from tests.support.install_size import BASE_BYTES_MAX, ROOT, folder_bytes

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist of what git knows, and the wheel that is made from the sdist alone."""
    return release.build(ROOT, tmp_path_factory.mktemp("packaging"))


@pytest.fixture(scope="module")
def fresh(dist: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> FreshPython:
    """Where the wheel was installed, and a broker of it served its own commands."""
    _, wheel = dist
    return release.check_wheel(tmp_path_factory.mktemp("fresh"), wheel, oncelog.__version__)


def test_the_sdist_holds_everything_that_git_knows(dist: tuple[Path, Path]) -> None:
    sdist, _ = dist
    assert release.missing_in_sdist(ROOT, sdist) == set()


def test_the_wheel_holds_the_package_and_nothing_else(dist: tuple[Path, Path]) -> None:
    _, wheel = dist
    assert release.strangers_in_wheel(ROOT, wheel) == set()


def test_the_page_of_an_index_has_no_link_into_a_checkout(dist: tuple[Path, Path]) -> None:
    _, wheel = dist
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        metadata = archive.read(name).decode()
    assert "Description-Content-Type: text/markdown" in metadata
    assert metadata.rstrip().endswith(setup.long_description().rstrip())
    assert setup.LINK_INTO_THE_CHECKOUT.search(metadata) is None


def test_an_index_takes_the_metadata(dist: tuple[Path, Path], tmp_path: Path) -> None:
    release.check_metadata(tmp_path, *dist)


def test_tests_run_from_the_sdist(dist: tuple[Path, Path], tmp_path: Path) -> None:
    sdist, _ = dist
    release.check_sdist(tmp_path, sdist)


def test_the_simulation_works_where_there_is_no_checkout(fresh: FreshPython) -> None:
    fresh.run("oncelog", "simulate", "--seed", "1", "--duration", "1", "--page", "run.html")
    assert (fresh.folder / "run.html").stat().st_size > 1000


def test_the_base_install_is_small(fresh: FreshPython) -> None:
    assert folder_bytes(fresh.packages) <= BASE_BYTES_MAX
