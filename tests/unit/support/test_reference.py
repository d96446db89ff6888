"""The reference pages are what the code makes, and leave nothing out."""

from collections.abc import Iterator

import click
import pytest

from oncelog.cli.main import main
from tests.support.reference import access, api, commands, errors

HINT = "run: python -m tests.support.reference"


def test_the_errors_are_those_of_the_code() -> None:
    assert errors.DOCUMENT.read_text() == errors.document(), HINT


def test_what_requests_need_is_what_the_rows_of_the_apis_say() -> None:
    assert access.DOCUMENT.read_text() == access.document(), HINT


@pytest.mark.slow
def test_every_error_that_the_brokers_sources_name_has_a_sentence_and_no_other() -> None:
    assert errors.sentences().keys() == errors.named_in_the_sources()


@pytest.mark.slow
def test_every_command_and_each_of_its_options_is_in_the_page() -> None:
    document = commands.document()
    lines, missing = set(document.splitlines()), []
    for path, command in leaves(main, "oncelog"):
        if f"## {path}" not in lines:
            missing.append(path)
        names = {
            name
            for option in command.params
            if isinstance(option, click.Option) and not option.hidden and option.help
            for name in option.opts
        }
        missing += [f"{path} {name}" for name in names if name not in document]
    assert missing == []


def leaves(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, and what a user types for it."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from leaves(found, f"{path} {name}")


@pytest.mark.slow
def test_every_public_name_is_in_the_page() -> None:
    pytest.importorskip("pyspark")
    headings = [line for line in api.document().splitlines() if line.startswith("### ")]
    told = {heading.rpartition(".")[2] for heading in headings}
    names = {name for module in api.MODULES for name, _ in api.public(module)}
    assert len(names) > 40
    assert names - told == set()


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
