"""`oncelog transactions watch` against a broker in this process."""

import re

from oncelog import EmbeddedBroker
from tests.support.documents.terminal import Terminal
from tests.unit.cli.transactions.scene import Oncelog, hang, open_transaction, rows, some_id


def test_the_oldest_open_transaction_holds_the_last_stable_offset(
    oncelog: Oncelog, embedded: EmbeddedBroker, topic: str
) -> None:
    id_, later = some_id(), some_id()
    oncelog("produce", topic, "--partition", "1", stdin="stable\n")
    producer_id = open_transaction(embedded.bootstrap_servers, id_, topic, partition=1)
    open_transaction(embedded.bootstrap_servers, later, topic, partition=1)
    hang(embedded, topic, producer_id=50000005)
    looks = rows(oncelog("transactions", "watch", "--topic", topic, "--count", "1", "--json"))
    hanging, held = sorted(looks, key=lambda one: str(one["partition"]))
    assert (held["last_stable_offset"], held["offsets_held"], held["open_count"]) == (1, 2, 2)
    assert (held["transactional_id"], held["producer_id"]) == (id_, producer_id)
    assert (hanging["transactional_id"], hanging["offsets_held"]) == (None, 2)
    assert hanging["state"] == "unknown to every coordinator"
    assert isinstance(held["open_ms"], int)


def test_each_look_is_printed(oncelog: Oncelog, bootstrap_server: str, topic: str) -> None:
    open_transaction(bootstrap_server, some_id(), topic)
    every = ("--interval-ms", "100", "--count", "2")
    looks = rows(oncelog("transactions", "watch", "--topic", topic, *every, "--json"))
    assert len(looks) == 2


def test_a_person_reads_a_duration_with_its_unit(bootstrap_server: str, topic: str) -> None:
    open_transaction(bootstrap_server, some_id(), topic)
    terminal = Terminal({"ONCELOG_BOOTSTRAP_SERVER": bootstrap_server})
    printed = terminal.run(f"oncelog transactions watch --topic {topic} --count 1")
    assert re.search(r"Ongoing +[0-9.]+ m?s$", printed.text, re.MULTILINE)
