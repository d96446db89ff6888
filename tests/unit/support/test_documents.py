"""What the documents on the code name is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "src/oncelog"
DOCUMENTS = ("ARCHITECTURE.md", "docs/decisions.md")

_PATH = re.compile(r"`((?:[\w-]+/)+(?:[\w-]+\.(?:py|md|toml|json))?)`")
_METHOD = re.compile(r"`((?:[\w-]+/)+[\w-]+\.py)` `(\w+)(?:\.(\w+))?")
_CITED = re.compile(r"\b(D\d{1,2}|INV-\d{1,2})\b")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_that_is_named_exists(document: str) -> None:
    named = set(_PATH.findall((ROOT / document).read_text()))
    assert len(named) > 20
    assert not [path for path in named if not found(path)]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_function_that_is_named_with_its_file_exists(document: str) -> None:
    for path, name, method in _METHOD.findall((ROOT / document).read_text()):
        file = found(path)
        assert file is not None, path
        source = file.read_text()
        for wanted in filter(None, (name, method)):
            assert re.search(rf"\b(?:class|def) {wanted}\b", source), f"{path}: {wanted}"


def test_every_decision_and_invariant_that_the_code_cites_is_explained() -> None:
    explained = set(_CITED.findall((ROOT / "docs/decisions.md").read_text()))
    cited = {name for file in PACKAGE.rglob("*.py") for name in _CITED.findall(file.read_text())}
    assert cited
    assert not cited - explained


def found(path: str) -> Path | None:
    """A path as the documents write it: from the root, or from the package."""
    return next((base / path for base in (ROOT, PACKAGE) if (base / path).exists()), None)
