"""The pictures of the documentation are what the code makes."""

import re

import pytest

from tests.support.pictures import crash_table, house, transaction
from tests.support.pictures.__main__ import FOLDER

HINT = "run: python -m tests.support.pictures"


def test_the_house_has_the_rooms_of_the_contracts() -> None:
    drawn = house.draw()
    assert (FOLDER / "house.svg").read_text() == drawn, HINT
    for layer in house.layers("oncelog"):
        for room in layer:
            assert f">{room}</text>" in drawn


def test_the_crash_table_has_each_row_of_the_guide() -> None:
    assert (FOLDER / "crash_table.svg").read_text() == crash_table.draw(), HINT
    assert len(crash_table.rows()) == 8


@pytest.mark.slow
def test_the_transaction_is_one_of_a_broker() -> None:
    drawn = transaction.draw()
    assert (FOLDER / "transaction.svg").read_text() == drawn, HINT
    told = re.findall(r">([^<]+)</text>", drawn)
    assert told.index("EndTxn") < told.index("PREPARE_COMMIT, epoch 1")
    assert told.count("marker: commit") == 3
