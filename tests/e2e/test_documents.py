"""Every code block of README.md and docs/ is carried out, and prints what stands below it.

`tests.support.documents` says how; ``python -m tests.support.documents FILE`` writes outputs anew.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import shlex
from pathlib import Path

import click
import pytest

from oncelog.cli.main import main
from tests.support.documents.blocks import (
    DOCUMENTS,
    ROOT,
    Block,
    blocks,
    listed,
    listing_of,
)
from tests.support.documents.comparing import matches
from tests.support.documents.running import differences
from tests.support.root_logger import root_logger_as_before

pytestmark = pytest.mark.slow

ALL = [block for document in DOCUMENTS for block in blocks(document)]
CARRIED_OUT = sorted({block.document for block in ALL if listing_of(block) is None})
COMMANDS = [b for b in ALL if b.language in ("sh", "console") and listing_of(b) is not None]
NEEDS_SPARK = [
    b for b in ALL if b.language == "python" and b.document in ("README.md", "docs/spark.md")
]
LONG = frozenset({"docs/simulation.md"})
"""Carried out in `make test-full`."""
ELSEWHERE = frozenset(
    {
        *(
            ".",
            "cat",
            "cp",
            "curl",
            "kill",
            "mkdir",
            "mv",
            "printf",
            "seq",
            "sleep",
            "sort",
            "tar",
            "wc",
        ),
        *("docker", "journalctl", "systemctl", "useradd"),
        *("keytool", "openssl", "perf", "pytest", "spark-submit"),
    }
)
"""Programs of others in blocks that are not carried out."""


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(document, marks=pytest.mark.soak) if document in LONG else document
        for document in CARRIED_OUT
    ],
)
def test_the_blocks_of_a_document_do_what_it_says(document: str, tmp_path: Path) -> None:
    for block, text in differences(document, tmp_path):
        assert text == block.text, f"{block}: python -m tests.support.documents {document}"


@pytest.mark.parametrize("entry", listed(), ids=lambda entry: f"{entry.document}: {entry.begins}")
def test_a_listed_block_is_there_and_so_is_its_test(entry: object) -> None:
    (found,) = [one for one in listed() if one is entry]
    assert any(found.names(block) for block in ALL)
    assert bool(found.test) != bool(found.reason)
    if found.test:
        path, _, name = found.test.partition("::")
        assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE)


@pytest.mark.parametrize("block", COMMANDS, ids=str)
def test_a_command_that_is_not_carried_out_could_be(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("client", "admin", "app"):
        (tmp_path / f"{name}.properties").touch()
    monkeypatch.chdir(tmp_path)
    text = re.sub(r"\\\n", " ", block.text)
    shown = (
        re.findall(r"^\$ (.*)", text, re.MULTILINE)
        if block.language == "console"
        else text.splitlines()
    )
    for line in shown:
        for command in re.split(r" \| | && | &(?: |$)|; ", re.sub(r" #.*", "", line)):
            words = shlex.split(command, comments=True)
            problem = problem_of(words, block.document)
            assert not problem, f"{block}: {command}: {problem}"


def problem_of(words: list[str], document: str) -> str:
    """Why a command could not be run here; "" if nothing speaks against it."""
    match words:
        case []:
            return ""
        case ["oncelog", *arguments]:
            return problem_of_ours(arguments)
        case ["make", target, *_]:
            found = re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
            return "" if found else "no such target"
        case [python, "-m", module, *_] if python.endswith("python"):
            return "" if importlib.util.find_spec(module) else "no such module"
        case ["python", script, *_]:
            is_made_there = f"`{script}`:\n" in (ROOT / document).read_text()
            return "" if is_made_there or (ROOT / script).exists() else "no such file"
        case [pip, "install", *_] if pip.endswith("pip"):
            return ""
    return "" if words[0] in ELSEWHERE else "unknown program"


def problem_of_ours(arguments: list[str]) -> str:
    """What click says of the options of one of our commands."""
    command: click.Command = main
    context = click.Context(main, **main.context_settings)
    try:
        while isinstance(command, click.Group):
            name, found, arguments = command.resolve_command(context, arguments)
            assert found is not None
            context = click.Context(found, parent=context, info_name=name)
            command = found
        with root_logger_as_before():
            command.make_context(command.name, arguments, parent=context)
    except click.ClickException as error:
        return error.format_message()
    return ""


@pytest.mark.parametrize("block", NEEDS_SPARK, ids=str)
def test_python_that_needs_spark_calls_what_is_there(block: Block) -> None:
    """Each name that is imported exists, and each call of ours takes the given keywords."""
    pytest.importorskip("pyspark")
    ours = vars(importlib.import_module("oncelog.spark"))
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("oncelog"):
            module = importlib.import_module(node.module)
            assert not [name.name for name in node.names if not hasattr(module, name.name)]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ours:
            keywords = {word.arg: None for word in node.keywords if word.arg is not None}
            inspect.signature(ours[node.func.id]).bind(*node.args, **keywords)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a  1\n", "a 1\n", True),
        ("a 1\n", "a 2\n", False),
        ("took 3 ms\n", "took 4.5 ms\n", True),
        ("a\n...\nz\n", "a\nb\nc\nz\n", True),
        ("a\n...\nz\n", "a\nz\n", True),
        ("a\n...\nz\n", "a\nb\n", False),
        ("rate 1,...\n", "rate 1,234 a second\n", True),
        ("a\n", "a\nb\n", False),
        ("127.0.0.1:9092\n", "127.0.0.1:40001\n", True),
    ],
)
def test_only_what_varies_may_differ(shown: str, printed: str, same: bool) -> None:
    assert matches(shown, printed) is same
