"""What a program, and what a person at a terminal, reads of a command's rows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from rich.console import Console

from oncelog.cli import brokers, configs, groups, topics
from oncelog.cli.output import Cell, Column, fitted, left_out, print_rows
from oncelog.cli.transactions import hanging, listing, show, watch

COLUMNS = (Column("name", "Name"), Column("note", "Note"), Column("at", "At", numeric=True))

TOPIC = "customer-address-changes"
GROUP = "fraud-detection-of-the-shop"
CLIENT = f"{GROUP}-worker-17"
TABLES: dict[str, tuple[Sequence[Column], Sequence[Cell]]] = {
    "topics list": (topics._LIST_COLUMNS, (TOPIC, 100, 3, "5400b0ad-1ad2-4b6f-a09b-8cd83a2edbfa")),
    "topics describe": (
        topics._PARTITION_COLUMNS,
        (100, 1001, "1001,1002,1003", "1001,1002,1003", 10**9, 10**9, 10**9, 10**11),
    ),
    "topics describe, settings": (
        topics._CONFIG_COLUMNS,
        ("follower.replication.throttled.replicas", "0:1,1:2," * 20, "topic"),
    ),
    "groups list": (groups._LIST_COLUMNS, (GROUP, "consumer", "Stable", "consumer", 1001)),
    "groups show": (
        groups._MEMBER_COLUMNS,
        (GROUP, "Stable", "classic", "cooperative-sticky", f"{CLIENT}-689633ad-ced6-49a0-a80c-6af0",
         None, CLIENT, "/192.168.100.200", ", ".join(f"{TOPIC}-{n}" for n in range(9))),
    ),
    "groups lag": (
        groups._LAG_COLUMNS, (GROUP, TOPIC, 11, 10**6, 10**6, 10**6, 10**6, 10**6, CLIENT),
    ),
    "groups reset": (groups._RESET_COLUMNS, (GROUP, TOPIC, 11, 10**9, 10**9)),
    "brokers list": (
        brokers._LIST_COLUMNS,
        (1001, "broker-1001.kafka.example.internal:9092", "controller", 1000, 3000, "270.6 GB"),
    ),
    "brokers describe": (
        brokers._FOLDER_COLUMNS,
        (1001, "/var/lib/oncelog/first", "on line", 3000, "270.6 GB", "270.6 GB", "270.6 GB"),
    ),
    "configs describe": (
        configs._COLUMNS, ("topic", TOPIC, "message.timestamp.type", "LogAppendTime", "topic"),
    ),
    "transactions list": (listing._COLUMNS, (CLIENT, 1001, 10**6, "PrepareCommit", "in 6.9 d")),
    "transactions show, partitions": (show._PARTITIONS, (TOPIC, 100, 10**9)),
    "transactions show, life": (
        show._LIFE,
        ("2026-11-26 19:48:20.566", "prepare epoch fence", "1000000, epoch 17",
         ", ".join(f"{TOPIC}-{n}" for n in range(9)), "a producer with this id started"),
    ),
    "transactions watch": (
        watch._COLUMNS, (TOPIC, 100, 10**9, 10**6, 3, CLIENT, 10**6, 17, "Ongoing", "3.2 min"),
    ),
    "transactions find-hanging": (
        hanging._COLUMNS, (TOPIC, 100, 10**6, 17, 42, 10**9, 1795181039500, 10**4),
    ),
}  # fmt: skip


def shown(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], room: int) -> list[str]:
    """The lines on a terminal that is `room` characters wide."""
    screen = Console(width=room, color_system=None)
    with screen.capture() as captured:
        screen.print(fitted(columns, rows, room))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_a_cell_ends_neither_its_column_nor_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(COLUMNS, [("a\tb", "one\r\ntwo \\n", None)], as_json=False)
    assert capsys.readouterr().out == "a\\tb\tone\\r\\ntwo \\\\n\t-\n"


@pytest.mark.parametrize("name", TABLES)
def test_a_commands_table_fits_80_columns(name: str) -> None:
    columns, row = TABLES[name]
    lines = shown(columns, [row, row], 80)
    assert max(map(len, lines)) <= 80
    assert lines[1] == "─" * len(lines[1]), "one record below the other"
    assert lines[0].split("   ")[0] in {column.heading for column in columns}


WIDE = (
    Column("a", "A"),
    Column("b", "B", spare=1),
    Column("c", "C", spare=2),
    Column("d", "D", wraps=True),
)


def test_spare_columns_are_left_out_and_named() -> None:
    row = ("a" * 10, "b" * 10, "c" * 10, "d")
    assert shown(WIDE, [row], 40)[0].split() == ["A", "B", "C", "D"]
    assert shown(WIDE, [row], 39 - 2 * 3)[0].split() == ["A", "B", "D"]
    assert shown(WIDE, [row], 20)[0].split() == ["A", "D"]
    assert left_out(WIDE, [row], 40) == []
    assert left_out(WIDE, [row], 20) == ["B", "C"]


def test_a_column_without_values_is_left_out_first_and_not_named() -> None:
    rows = [("a" * 10, None, "c" * 10, "d")]
    assert shown(WIDE, rows, 40)[0].split() == ["A", "B", "C", "D"]
    assert shown(WIDE, rows, 28)[0].split() == ["A", "C", "D"]
    assert left_out(WIDE, rows, 28) == []


def test_a_value_that_all_rows_share_is_left_out_before_words_are_cut() -> None:
    rows = [("a" * 10, None, None, "d" * 20), ("a" * 10, None, None, "e" * 20)]
    assert shown(WIDE, rows, 25) == ["D", "─" * 20, "d" * 20, "e" * 20]
    assert left_out(WIDE, rows, 25) == ["A"]


def test_a_word_stays_whole_while_another_column_can_wrap_between_words() -> None:
    columns = (Column("a", "A", wraps=True), Column("b", "B", wraps=True))
    lines = shown(columns, [("a" * 30, "bb, " * 20)], 50)
    assert lines[2:4] == ["a" * 30 + "   bb, bb, bb, bb,", " " * 33 + "bb, bb, bb, bb,"]


def test_words_are_cut_where_nothing_can_be_left_out() -> None:
    rows = [("a" * 10, None, None, "d" * 20), ("b" * 10, None, None, "e" * 20)]
    assert shown(WIDE, rows, 29)[2:4] == ["a" * 10 + "   " + "d" * 16, " " * 13 + "dddd"]


def test_rows_that_are_too_wide_stand_below_each_other() -> None:
    columns = (Column("topic", "Topic"), Column("x", "None"), Column("offset", "Offset"))
    rows: list[Sequence[Cell]] = [("orders", None, 1000000), ("flights", None, "later")]
    assert shown(columns, rows, 15) == [
        "Topic   orders",
        "Offset  1,000,0",
        "        00",
        "",
        "Topic   flights",
        "Offset  later",
    ]
