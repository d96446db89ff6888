"""The commands while a coordinator's partition is away: what is unknown is not taken for hanging.

A marker past a coordinator that is away would tear what it commits once it is back (INV-4).
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from oncelog import EmbeddedBroker
from oncelog.broker.broker import Broker
from oncelog.broker.coordination.runtime import CoordinatorRuntime
from oncelog.cli.main import main
from oncelog.core.ids import TRANSACTION_STATE_TOPIC
from oncelog.runtime.disk import StorageFailure
from tests.unit.broker.raw import until
from tests.unit.cli.transactions.scene import error_line, open_transaction, rows

TOPIC = "orders"


def folder_of(broker: Broker, topic: str, index: int) -> str:
    partition = broker.partitions.get(topic, index)
    assert partition is not None
    return partition.log.directory.rpartition("/")[0]


async def lose_the_coordinator_of_another_folder(broker: Broker) -> None:
    """Take the folder off line that does not have the topic."""
    kept = folder_of(broker, TOPIC, 0)
    folders = [folder_of(broker, TRANSACTION_STATE_TOPIC, index) for index in range(2)]
    (lost,) = set(folders) - {kept}
    broker.partitions.folder_failed(StorageFailure("write", f"{lost}/x", "for the test"))
    index = folders.index(lost)

    def is_away() -> bool:
        """The image names no leader at once; the coordinator resigns a little later."""
        topic = broker.image.topics[TRANSACTION_STATE_TOPIC]
        (broker_id,) = topic.partitions[index].replicas
        is_led = topic.partitions[index].leader >= 0
        return not is_led and not broker.transactions.has_shards_of(topic, broker_id)

    await until(is_away)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[str]:
    """A broker with an open transaction, whose coordinator's folder is off line."""
    config = {
        "log.dirs": f"{tmp_path}/a,{tmp_path}/b",
        "transaction.state.log.num.partitions": 2,
        "offsets.topic.num.partitions": 1,
    }
    with EmbeddedBroker(config=config) as broker:
        servers = broker.bootstrap_servers
        assert oncelog(servers, "topics", "create", TOPIC).exit_code == 0
        # One id in each partition of the coordinators: so one of them is lost.
        for id_ in broker.call(one_id_per_partition):
            open_transaction(servers, id_, TOPIC)
        broker.run(lose_the_coordinator_of_another_folder(broker.broker))
        yield servers


def one_id_per_partition(broker: Broker) -> list[str]:
    found = {broker.transactions.partition_of(f"id-{n}"): f"id-{n}" for n in range(20)}
    return [found[0], found[1]]


def oncelog(servers: str, *arguments: str) -> Result:
    environment = {"ONCELOG_BOOTSTRAP_SERVER": servers}
    return CliRunner().invoke(main, list(arguments), env=environment)


@pytest.mark.parametrize("lists_the_rest", [False, True], ids=["oncelog", "as Kafka"])
def test_inv4_a_transaction_of_a_coordinator_that_is_away_is_not_torn(
    servers: str, monkeypatch: pytest.MonkeyPatch, lists_the_rest: bool
) -> None:
    """Also where a broker lists the ids of the other partitions without an error, as Kafka does."""
    if lists_the_rest:
        monkeypatch.setattr(CoordinatorRuntime, "has_shards_of", lambda *_: True)
    watch = ("transactions", "watch", "--topic", TOPIC, "--count", "1", "--json")
    (before,) = rows(oncelog(servers, *watch))
    where = ("--topic", TOPIC, "--partition", "0")
    for producer_id in ("0", "1"):
        result = oncelog(servers, "transactions", "abort", *where, "--producer-id", producer_id)
        assert re.search("does not hang|COORDINATOR_NOT_AVAILABLE", error_line(result))
    now = ("--max-transaction-timeout", "0")
    line = error_line(oncelog(servers, "transactions", "find-hanging", "--topic", TOPIC, *now))
    assert f"{TRANSACTION_STATE_TOPIC}" in line
    assert line.endswith("(COORDINATOR_NOT_AVAILABLE)")
    (after,) = rows(oncelog(servers, *watch))
    assert (after["last_stable_offset"], after["open_count"]) == (0, before["open_count"]) == (0, 2)


def test_a_list_without_the_ids_of_a_partition_is_an_error(servers: str) -> None:
    line = error_line(oncelog(servers, "transactions", "list"))
    assert line == (
        "broker 1 cannot list all its transactional ids, as a partition of __transaction_state is"
        " not available (its log names the reason) (COORDINATOR_NOT_AVAILABLE)"
    )


def test_who_holds_a_partition_is_said_to_be_unknown(servers: str) -> None:
    watch = ("transactions", "watch", "--topic", TOPIC, "--count", "1", "--json")
    (look,) = rows(oncelog(servers, *watch))
    assert (look["transactional_id"], look["state"]) == (None, "its coordinator is not available")
