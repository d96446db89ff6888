"""`oncelog transactions show` against a broker in this process."""

import asyncio
import logging
import re
from dataclasses import replace

import pytest
from click.testing import CliRunner, Result

from oncelog import EmbeddedBroker, Producer
from oncelog.broker.broker import Broker
from oncelog.cli.main import main
from tests.unit.broker.raw import until
from tests.unit.cli.transactions.scene import Oncelog, error_line, open_transaction, rows, some_id


def test_an_open_transaction_names_its_partitions_and_where_it_begins(
    oncelog: Oncelog, bootstrap_server: str, topic: str
) -> None:
    id_ = some_id()
    oncelog("produce", topic, "--partition", "1", stdin="before\n")
    producer_id = open_transaction(bootstrap_server, id_, topic, partition=1)
    (found,) = rows(oncelog("transactions", "show", id_, "--json"))
    assert (found["state"], found["producer_id"]) == ("Ongoing", producer_id)
    assert found["partitions"] == [{"topic": topic, "partition": 1, "start_offset": 1}]
    text = oncelog("transactions", "show", id_).stdout
    assert f"{id_} is Ongoing" in text
    assert f"{topic}\t1\t1" in text


def test_an_unknown_id_brings_the_nearest(
    oncelog: Oncelog, bootstrap_server: str, topic: str
) -> None:
    id_ = some_id()
    open_transaction(bootstrap_server, id_, topic)
    line = error_line(oncelog("transactions", "show", f"{id_}x"))
    assert line.startswith(f"no transactional id {id_}x: did you mean {id_}")


def test_the_life_of_an_id_is_told_with_its_causes(
    oncelog: Oncelog, bootstrap_server: str, topic: str
) -> None:
    id_ = some_id()
    open_transaction(bootstrap_server, id_, topic)
    oncelog("transactions", "abort", "--transactional-id", id_)
    (found,) = rows(oncelog("transactions", "show", id_, "--json"))
    life = found["life"]
    assert isinstance(life, list)
    assert [step["step"] for step in life] == [
        "producer",
        "partitions added",
        "prepare abort",
        "marker",
        "complete abort",
        "producer",
    ]
    cause = "an administrator's command, client 'oncelog-transactions' at 127.0.0.1"
    assert [step["cause"] for step in life] == [None, None, cause, None, None, cause]
    assert found["trouble"] is None
    lines = oncelog("transactions", "show", id_).stdout.splitlines()
    (aborted,) = [line for line in lines if "\tprepare abort\t" in line]
    assert aborted.split("\t")[3:] == [f"{topic}-0", cause]


def test_an_id_that_expired_is_explained_and_the_log_has_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = {
        "transaction.remove.expired.transaction.cleanup.interval.ms": 50,
        "transaction.state.log.num.partitions": 1,
    }
    with EmbeddedBroker(config=config) as embedded, caplog.at_level(logging.INFO):
        servers = embedded.bootstrap_servers
        environment = {"ONCELOG_BOOTSTRAP_SERVER": servers}

        def oncelog(*arguments: str) -> Result:
            return CliRunner().invoke(main, list(arguments), env=environment)

        assert oncelog("topics", "create", "t").exit_code == 0
        open_transaction(servers, "orders", "t")
        assert oncelog("transactions", "abort", "--transactional-id", "orders").exit_code == 0
        embedded.call(let_ids_expire_at_once)
        embedded.run(until(lambda: any(" expired, " in text for text in caplog.messages)))
        line = error_line(oncelog("transactions", "show", "orders"))
        told = r"no transactional id orders: expired at [-0-9: ]+ UTC after 0.0 days without use"
        assert re.fullmatch(told, line)
        again = oncelog("transactions", "abort", "--transactional-id", "orders")
        assert error_line(again) == line
        (logged,) = [text for text in caplog.messages if " expired, " in text]
        assert logged.startswith("1 transactional ids expired, not used for 1 ms")
        assert logged.endswith(": orders")


def test_an_administrators_marker_is_part_of_the_life(
    oncelog: Oncelog, bootstrap_server: str, topic: str
) -> None:
    id_ = some_id()
    producer_id = open_transaction(bootstrap_server, id_, topic)
    where = ("--topic", topic, "--partition", "0", "--producer-id", str(producer_id), "--force")
    assert oncelog("transactions", "abort", *where).exit_code == 0
    oncelog("transactions", "abort", "--transactional-id", id_)
    (found,) = rows(oncelog("transactions", "show", id_, "--json"))
    assert isinstance(found["life"], list)
    place = [{"topic": topic, "partition": 0}]
    by_whom = "abort past the coordinator, client 'oncelog-transactions' at 127.0.0.1"
    markers = [step for step in found["life"] if step["step"] == "marker"]
    assert [(step["partitions"], step["cause"]) for step in markers] == [
        (place, by_whom),
        (place, None),
    ]


def let_ids_expire_at_once(broker: Broker) -> None:
    (shard,) = broker.transactions.shards()
    store = shard._store  # type: ignore[attr-defined]
    store.config = replace(store.config, id_expiration_ms=1)


def test_why_a_producer_was_fenced_is_told_though_the_history_is_forgotten(
    oncelog: Oncelog, embedded: EmbeddedBroker, topic: str
) -> None:
    id_ = some_id()
    open_transaction(embedded.bootstrap_servers, id_, topic)
    open_transaction(embedded.bootstrap_servers, id_, topic)
    line = "a producer was last fenced because of InitProducerId of another producer"
    assert line not in oncelog("transactions", "show", id_).stdout

    def forget(broker: Broker) -> None:
        for shard in broker.transactions.shards():
            shard._store.lives.by_id.clear()  # type: ignore[attr-defined]

    embedded.call(forget)
    assert line in oncelog("transactions", "show", id_).stdout
    (found,) = rows(oncelog("transactions", "show", id_, "--json"))
    assert str(found["fenced_because"]).startswith("InitProducerId of another producer, client ")


def test_the_moves_can_be_read_from_the_coordinators_log(
    oncelog: Oncelog, bootstrap_server: str, topic: str
) -> None:
    """As they are of Apache Kafka, which does not tell the life of an id."""
    id_ = some_id()
    open_transaction(bootstrap_server, some_id(), topic)
    open_transaction(bootstrap_server, id_, topic)
    oncelog("transactions", "abort", "--transactional-id", id_)
    (told,) = rows(oncelog("transactions", "show", id_, "--json"))
    (read,) = rows(oncelog("transactions", "show", id_, "--json", "--from-log"))
    assert isinstance(told["life"], list)
    assert isinstance(read["life"], list)
    without_markers = [{**step, "cause": None} for step in told["life"] if step["step"] != "marker"]
    assert read["life"] == without_markers


def test_of_many_partitions_a_few_are_named_and_the_others_counted(
    oncelog: Oncelog, bootstrap_server: str, topic: str
) -> None:
    wide = f"{topic}-wide"
    assert oncelog("topics", "create", wide, "--partitions", "12").exit_code == 0

    async def work() -> None:
        async with Producer(bootstrap_server, transactional_id=wide) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            for index in range(12):
                await producer.send(wide, b"x", partition=index)
            await producer.flush()
            await producer.commit_transaction()

    asyncio.run(work())
    lines = oncelog("transactions", "show", wide).stdout.splitlines()
    (prepared,) = [line for line in lines if "\tprepare commit\t" in line]
    named = ", ".join(f"{wide}-{index}" for index in (0, 1, 2, 3, 4, 5, 6, 7))
    assert prepared.split("\t")[3] == f"{named} and 4 more"
    (found,) = rows(oncelog("transactions", "show", wide, "--json"))
    assert isinstance(found["life"], list)
    (step,) = [step for step in found["life"] if step["step"] == "prepare commit"]
    assert (len(step["partitions"]), step["more_partitions_count"]) == (8, 4)
