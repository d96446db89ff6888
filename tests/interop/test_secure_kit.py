"""The settings that a secure broker of the test kit has for each stock client, as they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaProducer

from oncelog import EmbeddedBroker
from oncelog.client import TopicPartition
from oncelog.sync import Consumer, Producer
from tests.support.java_tools import run_tool

pytestmark = [pytest.mark.interop, pytest.mark.slow]

WAIT_S = 20


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(secure=True) as broker:
        yield broker


def value_in(broker: EmbeddedBroker, topic: str) -> bytes | None:
    """What a reader finds first."""
    with Consumer(**broker.client_config("reader", for_="oncelog")) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        return next(record.value for record in consumer.poll(10_000))


def test_confluent_kafka(broker: EmbeddedBroker) -> None:
    producer = confluent_kafka.Producer(broker.client_config("app", for_="confluent"))
    producer.produce("confluent", b"v")
    assert producer.flush(WAIT_S) == 0
    assert value_in(broker, "confluent") == b"v"


async def test_aiokafka(broker: EmbeddedBroker) -> None:
    async with AIOKafkaProducer(**broker.client_config("app", for_="aiokafka")) as producer:
        await producer.send_and_wait("aiokafka", b"v")


def test_kafka_python(broker: EmbeddedBroker) -> None:
    producer = kafka.KafkaProducer(**broker.client_config("app", for_="kafka-python"))
    producer.send("kafka-python", b"v").get(WAIT_S)
    producer.close()
    assert value_in(broker, "kafka-python") == b"v"


def test_our_blocking_clients(broker: EmbeddedBroker) -> None:
    with Producer(**broker.client_config("app", for_="oncelog")) as producer:
        producer.send("blocking", b"v").result()
    assert value_in(broker, "blocking") == b"v"


@pytest.mark.usefixtures("java_class_path")
def test_java(broker: EmbeddedBroker, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    given = broker.client_config("admin", for_="java")
    file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    reach = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", str(file))
    done = run_tool("org.apache.kafka.tools.TopicCommand", *reach, "--create", "--topic", "java")
    assert "Created topic java." in done.stdout, done.stderr
    wrong = file.read_text().replace('password="', 'password="falsch')
    file.write_text(wrong)
    done = run_tool("org.apache.kafka.tools.TopicCommand", *reach, "--list")
    assert "Authentication failed" in done.stdout + done.stderr
