"""`oncelog transactions` against whichever cluster the suite speaks to, Apache Kafka too."""

import json

import pytest
from click.testing import CliRunner

from oncelog.cli.main import main
from tests.interop.confluent import create_topic, fresh, send, transactional

pytestmark = [pytest.mark.interop, pytest.mark.slow]

Rows = list[dict[str, object]]


def rows(servers: str, *arguments: str) -> Rows:
    environment = {"ONCELOG_BOOTSTRAP_SERVER": servers}
    result = CliRunner().invoke(main, ["transactions", *arguments, "--json"], env=environment)
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_transaction_is_listed_watched_aborted_and_told(bootstrap_servers: str) -> None:
    topic, id_ = create_topic(bootstrap_servers), fresh("tx")
    client = transactional(bootstrap_servers, id_)
    client.begin_transaction()
    send(client, topic, [b"1", b"2"])
    (listed,) = rows(bootstrap_servers, "list", "--state", "Ongoing", "--duration-filter", "0",
                     "--transactional-id-pattern", f"{id_}.*")  # fmt: skip
    assert listed["transactional_id"] == id_
    (held,) = rows(bootstrap_servers, "watch", "--topic", topic, "--count", "1")
    assert (held["transactional_id"], held["last_stable_offset"]) == (id_, 0)
    assert (held["offsets_held"], held["producer_id"]) == (2, listed["producer_id"])
    now = ("--topic", topic, "--max-transaction-timeout", "0")
    assert rows(bootstrap_servers, "find-hanging", *now) == []
    environment = {"ONCELOG_BOOTSTRAP_SERVER": bootstrap_servers}
    abort = ["transactions", "abort", "--transactional-id", id_]
    assert CliRunner().invoke(main, abort, env=environment).exit_code == 0
    assert rows(bootstrap_servers, "watch", "--topic", topic, "--count", "1") == []
    for arguments in ((), ("--from-log",)):
        (shown,) = rows(bootstrap_servers, "show", id_, *arguments)
        assert isinstance(shown["life"], list)
        steps = [step["step"] for step in shown["life"] if step["step"] != "marker"]
        # librdkafka speaks TV1: its partitions are added apart.
        assert steps[:2] == ["producer", "partitions added"]
        assert steps[-3:] == ["prepare abort", "complete abort", "producer"]
