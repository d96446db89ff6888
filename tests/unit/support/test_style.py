"""The one limit on the length of files and functions, and the names of classes."""

import re

from tests.support.style import (
    BLOCKING,
    FILE_LINES_MAX,
    FUNCTION_LINES_MAX,
    ROOT,
    findings_in,
    repeated_class_names,
)


def function_of(line_count: int, docstring: str = "") -> str:
    body = ["def long():", *docstring.splitlines()]
    return "\n".join(body + ["    step()"] * (line_count - 1)) + "\n"


def test_a_file_and_a_function_may_be_as_long_as_the_limit() -> None:
    assert findings_in("a.py", "x = 1\n" * FILE_LINES_MAX) == []
    assert findings_in("a.py", function_of(FUNCTION_LINES_MAX)) == []


def test_one_line_more_is_found() -> None:
    (long_file,) = findings_in("a.py", "x = 1\n" * (FILE_LINES_MAX + 1))
    assert long_file.startswith(f"a.py: {FILE_LINES_MAX + 1} lines")
    (long_function,) = findings_in("a.py", function_of(FUNCTION_LINES_MAX + 1))
    assert long_function.startswith(f"a.py:1: long has {FUNCTION_LINES_MAX + 1} lines")


def test_a_docstring_does_not_make_a_function_long() -> None:
    docstring = '    """Text.\n' + "    More.\n" * 40 + '    """'
    assert findings_in("a.py", function_of(FUNCTION_LINES_MAX, docstring)) == []


def test_two_modules_may_not_have_a_class_of_one_name() -> None:
    texts = {"src/a.py": "class Batch: ...\n", "src/b.py": "x = 1\nclass Batch: ...\n"}
    (found,) = repeated_class_names(texts)
    assert found == "class Batch is there more than once: src/a.py:1, src/b.py:2"


def test_a_class_in_a_class_or_a_function_has_a_name_of_its_own() -> None:
    inner = "class A:\n    class Batch: ...\n\ndef f():\n    class Batch: ...\n"
    assert repeated_class_names({"src/a.py": inner, "src/b.py": "class Batch: ...\n"}) == []


def test_blocking_clients_are_named_as_the_clients_that_they_wrap() -> None:
    text = "class Producer: ...\n"
    assert repeated_class_names({"src/oncelog/client/producer.py": text, BLOCKING: text}) == []


def test_no_test_but_those_of_benches_imports_them() -> None:
    importing = re.compile(r"^\s*(from|import) bench\b", re.MULTILINE)
    found = [path for path in (ROOT / "tests").rglob("*.py") if importing.search(path.read_text())]
    assert {path.parent for path in found} == {ROOT / "tests" / "unit" / "bench"}
