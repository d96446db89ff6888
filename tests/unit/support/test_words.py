"""Docstrings and comments without the words to avoid."""

import pytest

from tests.support.words import AVOIDED, words_to_avoid


def test_an_avoided_word_is_found_in_a_docstring() -> None:
    (found,) = words_to_avoid("a.py", '"""Good.\n\nNobody waits."""\n')
    assert found == f"a.py:1: write {AVOIDED['nobody']} instead of 'nobody'"


def test_an_avoided_word_is_found_below_a_variable_and_in_a_comment() -> None:
    text = 'x = 1\n"""Made anew."""\ny = 2  # It lies there.\n'
    assert [found.split(":")[1] for found in words_to_avoid("a.py", text)] == ["2", "3"]


@pytest.mark.parametrize("text", ['"""It was thrown\nout."""\n', "# It was thrown\n# out.\n"])
def test_a_phrase_is_found_across_lines(text: str) -> None:
    (found,) = words_to_avoid("a.py", text)
    assert found.endswith("'thrown out'")


def test_messages_and_names_are_not_judged() -> None:
    assert words_to_avoid("a.py", 'nobody = "nobody"\nrenewed = 1  # Renewed.\n') == []
