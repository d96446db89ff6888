"""`oncelog transactions abort` against a broker in this process."""

import logging

import pytest

from oncelog import EmbeddedBroker
from tests.unit.cli.transactions.scene import (
    Oncelog,
    error_line,
    hang,
    open_transaction,
    rows,
    some_id,
)


def held(oncelog: Oncelog, topic: str) -> list[dict[str, object]]:
    return rows(oncelog("transactions", "watch", "--topic", topic, "--count", "1", "--json"))


def test_a_hanging_transaction_ends_and_the_log_says_by_whom(
    oncelog: Oncelog, embedded: EmbeddedBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    hang(embedded, topic, producer_id=30000003)
    where = ("--topic", topic, "--partition", "0")
    with caplog.at_level(logging.WARNING):
        result = oncelog("transactions", "abort", *where, "--start-offset", "0")
    assert (result.exit_code, result.stderr) == (0, "")
    assert held(oncelog, topic) == []
    (line,) = [text for text in caplog.messages if "WriteTxnMarkers" in text]
    assert line == (
        "WriteTxnMarkers from client 'oncelog-transactions' at 127.0.0.1: abort producer 30000003,"
        f" epoch 3, coordinator epoch 0, past its coordinator: {topic}-0 NONE"
    )
    again = error_line(oncelog("transactions", "abort", *where, "--start-offset", "0"))
    assert again.startswith(f"{topic}-0 has no open transaction from offset 0")


def test_a_transaction_of_a_coordinator_is_not_torn(
    oncelog: Oncelog, bootstrap_server: str, topic: str
) -> None:
    id_ = some_id()
    producer_id = open_transaction(bootstrap_server, id_, topic)
    where = ("--topic", topic, "--partition", "0", "--producer-id", str(producer_id))
    line = error_line(oncelog("transactions", "abort", *where))
    assert line.startswith(f"this transaction does not hang: {topic}-0 belongs to {id_}, which is ")
    assert f"`oncelog transactions abort --transactional-id {id_}`" in line
    assert len(held(oncelog, topic)) == 1
    assert oncelog("transactions", "abort", *where, "--force").exit_code == 0
    assert held(oncelog, topic) == []


def test_a_transactional_id_is_aborted_everywhere_and_fenced(
    oncelog: Oncelog, bootstrap_server: str, topic: str
) -> None:
    id_ = some_id()
    open_transaction(bootstrap_server, id_, topic)
    assert oncelog("transactions", "abort", "--transactional-id", id_).exit_code == 0
    assert held(oncelog, topic) == []
    line = error_line(oncelog("transactions", "abort", "--transactional-id", id_))
    assert line == f"{id_} has no open transaction, it is Empty"


def test_what_is_to_be_aborted_must_be_named(oncelog: Oncelog, topic: str) -> None:
    for arguments in (
        (),
        ("--topic", topic),
        ("--topic", topic, "--partition", "0"),
        ("--transactional-id", "x", "--topic", topic),
    ):
        assert oncelog("transactions", "abort", *arguments).exit_code == 2, arguments
    line = error_line(oncelog("transactions", "abort", "--transactional-id", "no-such-id"))
    assert line.startswith("no transactional id no-such-id")


def test_what_a_coordinator_decided_is_written_only_where_it_has_decided(
    oncelog: Oncelog, embedded: EmbeddedBroker, topic: str
) -> None:
    id_ = some_id()
    producer_id = open_transaction(embedded.bootstrap_servers, id_, topic)
    where = ("--topic", topic, "--partition", "0", "--as-decided")
    line = error_line(oncelog("transactions", "abort", *where, "--producer-id", str(producer_id)))
    assert line.startswith(f"{id_} is Ongoing: nothing is decided yet")
    hang(embedded, topic, producer_id=40000004)
    line = error_line(oncelog("transactions", "abort", *where, "--producer-id", "40000004"))
    assert line.startswith(f"no coordinator has decided about this transaction of {topic}-0")
    both = oncelog("transactions", "abort", *where, "--producer-id", "40000004", "--force")
    assert both.exit_code == 2
