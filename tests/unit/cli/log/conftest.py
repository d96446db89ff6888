"""Log directories as a broker left them, a copy for each test."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from oncelog.cli.main import main
from tests.support import data_folder

Oncelog = Callable[..., Result]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`clean` and `killed`, see `tests.support.data_folder`. Never changed."""
    folder = tmp_path_factory.mktemp("folders")
    data_folder.make(folder / "clean", folder / "killed")
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """The folder of a broker that was stopped in order."""
    return Path(shutil.copytree(made / "clean", tmp_path / "data"))


@pytest.fixture
def killed(made: Path, tmp_path: Path) -> Path:
    """The folder of a broker that was killed."""
    return Path(shutil.copytree(made / "killed", tmp_path / "data"))


@pytest.fixture
def log() -> Oncelog:
    """Calls `oncelog log ARGUMENTS`."""

    def call(*arguments: object) -> Result:
        result = CliRunner().invoke(main, ["log", *map(str, arguments)])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return call
