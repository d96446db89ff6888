"""What a program reads of a command's rows."""

import pytest

from oncelog.cli.output import Column, print_rows

COLUMNS = (Column("name", "Name"), Column("note", "Note"), Column("at", "At", numeric=True))


def test_a_cell_ends_neither_its_column_nor_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(COLUMNS, [("a\tb", "one\r\ntwo \\n", None)], as_json=False)
    assert capsys.readouterr().out == "a\\tb\tone\\r\\ntwo \\\\n\t-\n"
