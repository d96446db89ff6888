"""The reference pages of docs/ are what the code makes."""

import pytest

from tests.support.reference import api, commands, errors

HINT = "run: python -m tests.support.reference"


def test_the_errors_are_those_of_the_code() -> None:
    assert errors.DOCUMENT.read_text() == errors.document(), HINT


@pytest.mark.slow
def test_every_error_that_the_brokers_sources_name_has_a_sentence_and_no_other() -> None:
    assert errors.sentences().keys() == errors.named_in_the_sources()


@pytest.mark.slow
def test_the_commands_are_those_of_the_code() -> None:
    assert commands.DOCUMENT.read_text() == commands.document(), HINT


@pytest.mark.slow
def test_the_api_is_that_of_the_code() -> None:
    pytest.importorskip("pyspark")
    assert api.DOCUMENT.read_text() == api.document(), HINT


@pytest.mark.slow
@pytest.mark.parametrize("module", api.MODULES)
def test_every_public_name_says_what_it_is(module: str) -> None:
    if module == "oncelog.spark":
        pytest.importorskip("pyspark")
    silent = []
    for name, value in api.public(module):
        if callable(value) and not value.__doc__:
            silent.append(name)
        if isinstance(value, type):
            silent += [f"{name}.{each}" for each, found in api.members(value) if not found.__doc__]
    assert not silent
