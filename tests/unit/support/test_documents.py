"""The documents on the code name files and functions that exist, in every statement."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "src/oncelog"
DOCUMENTS = ("ARCHITECTURE.md", "docs/decisions.md")

FOREIGN = frozenset({"__transaction_state", "__consumer_offsets"})
"""Names between backticks that are Kafka's, not of this code."""

_QUOTED = re.compile(r"`([^`]+)`")
_PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*(?:/|\.(?:py|md|toml|json|svg))|[\w-]+(?:/[\w-]+)+")
_NAME = re.compile(r"(_*[A-Za-z]\w*)(?:\.(\w+))?")
_METHOD = re.compile(r"`((?:[\w-]+/)+[\w-]+\.py)` `(\w+)(?:\.(\w+))?")
_CITED = re.compile(r"\b(D\d{1,2}|INV-\d{1,2})\b")
_NEXT_ITEM = re.compile(r"\n(?=- |\d+\. |\| )")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_that_is_named_exists(document: str) -> None:
    named = set(paths_in((ROOT / document).read_text()))
    assert len(named) > 20
    assert not [path for path in named if found(path) is None]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_function_that_is_named_with_its_file_exists(document: str) -> None:
    for path, name, method in _METHOD.findall((ROOT / document).read_text()):
        file = found(path)
        assert file is not None, path
        source = file.read_text()
        for wanted in filter(None, (name, method)):
            assert defines(source, wanted), f"{path}: {wanted}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_class_and_function_is_in_a_file_that_its_section_names(document: str) -> None:
    for section in sections((ROOT / document).read_text()):
        sources = "\n".join(sources_of(section))
        missing = {
            quoted
            for quoted in _QUOTED.findall(section)
            for name in names_in(quoted)
            if not defines(sources, name)
        }
        assert not missing, f"{section.splitlines()[0]}: {sorted(missing)}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_statement_names_the_file_that_holds_it(document: str) -> None:
    without = [
        statement.splitlines()[0]
        for section in sections((ROOT / document).read_text())
        for statement in statements(section)
        if not any(found(path) for path in paths_in(statement))
    ]
    assert not without


def test_a_name_that_no_file_of_its_section_defines_is_found() -> None:
    section = "## Time\n\n`runtime/clock.py` has `SteadyClock` and `SteadyClock.no_such_method`."
    sources = "\n".join(sources_of(section))
    assert defines(sources, "SteadyClock")
    assert not defines(sources, "no_such_method")
    assert names_in("SteadyClock.no_such_method") == ["SteadyClock", "no_such_method"]


def test_every_decision_and_invariant_that_the_code_cites_is_explained() -> None:
    explained = set(_CITED.findall((ROOT / "docs/decisions.md").read_text()))
    cited = {name for file in PACKAGE.rglob("*.py") for name in _CITED.findall(file.read_text())}
    assert cited
    assert not cited - explained


def found(path: str) -> Path | None:
    """A path as the documents write it: from the root, or from the package."""
    return next((base / path for base in (ROOT, PACKAGE) if (base / path).exists()), None)


def paths_in(text: str) -> Iterator[str]:
    """The paths between backticks and in links."""
    for quoted in _QUOTED.findall(text):
        if _PATH.fullmatch(quoted):
            yield quoted
    for target in re.findall(r"\]\(([^)#:]+)", text):
        yield (
            target.removeprefix("../")
            if (ROOT / target.removeprefix("../")).exists()
            else (f"docs/{target}")
        )


def names_in(quoted: str) -> list[str]:
    """The class, function and method of this code that a text between backticks names."""
    match = _NAME.fullmatch(quoted.removesuffix("()"))
    if match is None or quoted in FOREIGN or "_" not in quoted.lower() + _humps(quoted):
        return []
    return [name for name in match.groups() if name is not None]


def _humps(name: str) -> str:
    """An underscore if the name is a class's: it has a capital letter and a small one."""
    return "_" if re.match(r"_*[A-Z]", name) and not name.isupper() else ""


def defines(source: str, name: str) -> bool:
    """Whether a class, a function, an attribute or a constant of that name is in the source."""
    # Each begins with plain letters: so it is found some ten times faster.
    patterns = (rf"{name}(?<!\w{name}) *(?::[^=\n]+)?=", rf"{name}:")
    return any(
        re.search(each, source) for each in (rf"def {name}\b", rf"class {name}\b", *patterns)
    )


def sections(text: str) -> list[str]:
    """The parts between headings, without pictures."""
    parts = re.split(r"^(?=#+ )", text, flags=re.MULTILINE)
    return [part for part in parts if part.strip()]


def sources_of(section: str) -> Iterator[str]:
    """The sources of the files and folders that a section names."""
    for path in paths_in(section):
        file = found(path)
        if file is not None and file.is_dir():
            yield from (each.read_text() for each in sorted(file.rglob("*.py")))
        elif file is not None and file.suffix == ".py":
            yield file.read_text()


def statements(section: str) -> Iterator[str]:
    """The paragraphs, list items and table rows of a section, but introductions of lists."""
    _, _, body = section.partition("\n")
    for block in re.split(r"\n{2,}", body.strip()):
        for statement in _NEXT_ITEM.split(block):
            text = statement.strip()
            is_head = text.startswith("|") and not re.search(r"\w{3}", text.split("|")[1])
            is_heading = text.endswith(":") or re.fullmatch(r"\*\*[\w ()-]+\*\*", text)
            if text and not is_head and not is_heading and not text.startswith("!["):
                yield text
