"""The names that `import oncelog` gives: all there, and its version the one of the package."""

import re

import pytest
from click.testing import CliRunner

import oncelog
from oncelog.cli.main import main


@pytest.mark.parametrize("name", oncelog.__all__)
def test_a_public_name_is_there_and_listed(name: str) -> None:
    assert getattr(oncelog, name) is not None
    assert name in dir(oncelog)


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'oncelog' has no attribute 'Nothing'"):
        _ = oncelog.Nothing


def test_the_version_is_a_version_and_what_the_command_says() -> None:
    assert re.match(r"\d+\.\d+\.\d+", oncelog.__version__)
    told = CliRunner().invoke(main, ["--version"]).stdout
    assert told.startswith(f"oncelog, version {oncelog.__version__}")
