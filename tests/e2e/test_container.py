"""deploy/container: its steps fit the broker, and the brokers of its compose file are a cluster."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from oncelog import NewTopic, TopicPartition
from oncelog.cli.properties import parse_properties
from oncelog.core.config import BrokerConfig
from oncelog.sync import Admin, Consumer, Producer
from tests.support.container import FOLDER, instructions, services, settings_of, three_brokers
from tests.support.install_size import ROOT

STEPS = dict(instructions())
"""The last one of each name."""


def test_what_is_copied_is_there() -> None:
    wheel, file = [text.split()[0] for name, text in instructions() if name == "COPY"]
    assert wheel == "dist/oncelog-*.whl"
    assert (ROOT / file).is_file()


def test_a_lone_broker_takes_its_settings_and_listens_where_the_container_says() -> None:
    config = BrokerConfig(parse_properties((FOLDER / "lone.properties").read_text()))
    assert str(config.listeners[0].bound.port) in STEPS["EXPOSE"].split()
    assert STEPS["VOLUME"] == "/var/lib/oncelog/data"
    assert int(STEPS["USER"]) > 0


@pytest.mark.parametrize("file", ["lone.properties", "cluster.properties"])
def test_the_health_check_asks_where_the_broker_answers(file: str) -> None:
    address = parse_properties((FOLDER / file).read_text())["oncelog.metrics.address"]
    host, _, port = address.rpartition(":")
    assert host == "0.0.0.0", "which is 127.0.0.1 too"
    assert f"http://127.0.0.1:{port}/readyz" in STEPS["HEALTHCHECK"]


@pytest.mark.parametrize(("name", "service"), services().items(), ids=services())
def test_a_broker_of_the_compose_file_takes_its_settings(
    name: str, service: dict[str, Any]
) -> None:
    config = BrokerConfig(settings_of(service))
    assert config.listeners[0].advertised is not None
    assert config.listeners[0].advertised.host == name
    port = config.listeners[0].bound.port
    assert service["ports"] == [f"127.0.0.1:{port}:{port}"]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_brokers_of_the_compose_file_go_on_without_one(tmp_path: Path) -> None:
    with ExitStack() as exits:
        brokers = [exits.enter_context(broker) for broker in three_brokers(tmp_path)]
        servers = ",".join(broker.bootstrap_servers for broker in brokers)
        with Admin(servers) as admin:
            admin.create_topics([NewTopic("t", 1)])
        with Producer(servers) as producer:
            producer.send("t", b"before").result()
            brokers[0].kill()
            producer.send("t", b"after").result()
        with Consumer(servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("t", 0)])
            values: list[bytes | None] = []
            while len(values) < 2:
                values += [record.value for record in consumer.poll()]
        assert values == [b"before", b"after"]
