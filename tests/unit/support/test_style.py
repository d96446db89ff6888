"""The one limit on the length of files and functions."""

from tests.support.style import FILE_LINES_MAX, FUNCTION_LINES_MAX, findings_in


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
