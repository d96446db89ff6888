"""`oncelog transactions find-hanging` against a broker in this process."""

from oncelog import EmbeddedBroker
from tests.unit.cli.transactions.scene import Oncelog, hang, open_transaction, rows, some_id

NOW = ("--max-transaction-timeout", "0", "--json")


def test_what_no_coordinator_knows_hangs(
    oncelog: Oncelog, embedded: EmbeddedBroker, topic: str
) -> None:
    hang(embedded, topic, producer_id=10000001)
    (found,) = rows(oncelog("transactions", "find-hanging", "--topic", topic, *NOW))
    assert (found["topic"], found["partition"], found["start_offset"]) == (topic, 0, 0)
    assert (found["producer_id"], found["producer_epoch"]) == (10000001, 3)
    everywhere = rows(oncelog("transactions", "find-hanging", *NOW))
    assert topic in [one["topic"] for one in everywhere]


def test_a_young_transaction_and_one_with_a_coordinator_do_not_hang(
    oncelog: Oncelog, embedded: EmbeddedBroker, topic: str
) -> None:
    open_transaction(embedded.bootstrap_servers, some_id(), topic, partition=1)
    assert rows(oncelog("transactions", "find-hanging", "--topic", topic, *NOW)) == []
    hang(embedded, topic, producer_id=20000002)
    assert rows(oncelog("transactions", "find-hanging", "--topic", topic, "--json")) == []


def test_a_producer_that_is_in_another_partition_hangs_in_this_one(
    oncelog: Oncelog, embedded: EmbeddedBroker, topic: str
) -> None:
    producer_id = open_transaction(embedded.bootstrap_servers, some_id(), topic, partition=1)
    hang(embedded, topic, producer_id)
    (found,) = rows(oncelog("transactions", "find-hanging", "--topic", topic, *NOW))
    assert (found["partition"], found["producer_id"]) == (0, producer_id)
    only_the_other = ("--topic", topic, "--partition", "1")
    assert rows(oncelog("transactions", "find-hanging", *only_the_other, *NOW)) == []


def test_a_partition_needs_its_topic(oncelog: Oncelog) -> None:
    result = oncelog("transactions", "find-hanging", "--partition", "1")
    assert result.exit_code == 2
    assert "--partition needs --topic" in result.stderr
