"""`oncelog transactions list` against a broker in this process."""

import pytest

from oncelog.cli.transactions.common import now_ms
from oncelog.cli.transactions.listing import warn_of_expiry
from oncelog.client import TransactionListing
from tests.unit.cli.test_completion import completed
from tests.unit.cli.transactions.scene import Oncelog, error_line, open_transaction, rows, some_id


def test_filters_choose_among_the_ids(oncelog: Oncelog, bootstrap_server: str, topic: str) -> None:
    id_ = some_id()
    producer_id = open_transaction(bootstrap_server, id_, topic)
    line = {"transactional_id": id_, "coordinator": 1, "producer_id": producer_id}
    for filters in (
        (),
        ("--state", "ongoing"),
        ("--producer-id", str(producer_id)),
        ("--transactional-id-pattern", f"{id_[:-1]}."),
        ("--duration-filter", "0"),
    ):
        listed = rows(oncelog("transactions", "list", "--json", *filters))
        assert {**line, "state": "Ongoing", "expires_at_ms": None} in listed, filters
    for filters in (
        ("--state", "Empty"),
        ("--producer-id", str(producer_id + 1000)),
        ("--transactional-id-pattern", id_[:-1]),
        ("--duration-filter", "60000"),
    ):
        listed = rows(oncelog("transactions", "list", "--json", *filters))
        assert id_ not in [one["transactional_id"] for one in listed], filters


def test_a_pattern_that_is_none_is_named(oncelog: Oncelog) -> None:
    """Also by a broker that coordinates nothing yet."""
    line = error_line(oncelog("transactions", "list", "--transactional-id-pattern", "("))
    assert line.startswith("--transactional-id-pattern '(' is no regular expression")


def test_piped_lines_have_tabs(oncelog: Oncelog, bootstrap_server: str, topic: str) -> None:
    id_ = some_id()
    producer_id = open_transaction(bootstrap_server, id_, topic)
    assert f"{id_}\t1\t{producer_id}\tOngoing\t-" in oncelog("transactions", "list").stdout


def test_ids_that_expire_within_a_day_are_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    now = now_ms()
    later, open_one = now + 2 * 86_400_000, None
    names = {"a": later, "b": now + 3 * 3_600_000, "c": now + 7_000_000, "d": open_one}
    warn_of_expiry([TransactionListing(name, 1, 7, "Empty", at) for name, at in names.items()])
    told = capsys.readouterr().err
    assert "2 of these expire within a day unless they are used, the first is c, in 1.9 h" in told
    warn_of_expiry([TransactionListing("a", 1, 7, "Empty", later)])
    assert capsys.readouterr().err == ""


def test_the_shell_completes_ids(
    bootstrap_server: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONCELOG_BOOTSTRAP_SERVER", bootstrap_server)
    id_ = some_id()
    open_transaction(bootstrap_server, id_, topic)
    assert completed("transactions", "show", id_[:-1]) == [id_]
    assert completed("transactions", "abort", "--transactional-id", id_[:-1]) == [id_]
    assert completed("transactions", "watch", "--topic", topic[:-1]) == [topic]
