"""Stock clients on a listener with SASL: with the right password, and with wrong ones.

After Apache's SaslClientsWithInvalidCredentialsTest.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka.admin import AdminClient

from oncelog import EmbeddedBroker
from oncelog.client import ScramCredentialInfo, UserScramCredentialUpsertion
from oncelog.sync import Admin

pytestmark = [pytest.mark.interop, pytest.mark.slow]

USER, PASSWORD = "alice", "alice-geheim"
LINE = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
CONFIG = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl.plain.sasl.jaas.config": LINE,
    # Each client authenticates again more than once while a test writes.
    "connections.max.reauth.ms": "3000",
}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
BAD = [(USER, "falsch"), ("mallory", PASSWORD)]
WAIT_S = 20


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with EmbeddedBroker(config=CONFIG) as broker:
        with Admin(broker.bootstrap_servers) as admin:
            for mechanism in MECHANISMS[1:]:
                info = ScramCredentialInfo(mechanism)
                admin.alter_user_scram_credentials(
                    [UserScramCredentialUpsertion(USER, info, PASSWORD)]
                )
        inner = broker._broker
        assert inner is not None
        yield str(inner.server.listeners[1].address)


def confluent(address: str, mechanism: str, user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def python(address: str, mechanism: str, user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_logs_in(address: str, mechanism: str) -> None:
    settings = confluent(address, mechanism, USER, PASSWORD)
    producer = confluent_kafka.Producer(settings)
    producer.produce("librdkafka", b"v")
    assert producer.flush(WAIT_S) == 0
    assert "librdkafka" in AdminClient(settings).list_topics(timeout=WAIT_S).topics


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), BAD)
def test_librdkafka_is_told_that_it_is_refused(
    address: str, mechanism: str, user: str, password: str
) -> None:
    errors: list[confluent_kafka.KafkaError] = []
    settings = confluent(address, mechanism, user, password)
    client = confluent_kafka.Producer({**settings, "error_cb": errors.append})
    for _ in range(WAIT_S * 10):
        client.poll(0.1)
        if any(error.code() == confluent_kafka.KafkaError._AUTHENTICATION for error in errors):
            return
    pytest.fail(f"no error of authentication among {errors}")


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_aiokafka_logs_in_and_is_refused(address: str, mechanism: str) -> None:
    async with AIOKafkaProducer(**python(address, mechanism, USER, PASSWORD)) as producer:
        await producer.send_and_wait("aiokafka", b"v")
    for user, password in BAD:
        refused = AIOKafkaProducer(**python(address, mechanism, user, password))
        with pytest.raises(AioKafkaError):
            await refused.start()
        await refused.stop()


KAFKA_PYTHON = """
import json, sys
import kafka
from kafka.errors import KafkaError
try:
    kafka.KafkaProducer(**json.loads(sys.argv[1]))
except KafkaError as error:
    print("refused:", error)
"""


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_logs_in_and_is_refused(address: str, mechanism: str) -> None:
    producer = kafka.KafkaProducer(**python(address, mechanism, USER, PASSWORD))
    producer.send("kafka-python", b"v").get(WAIT_S)
    producer.close()
    for user, password in BAD:
        settings = {**python(address, mechanism, user, password), "bootstrap_timeout_ms": 1_000}
        # One that fails leaves its sockets to the garbage collection.
        command = [sys.executable, "-W", "ignore", "-c", KAFKA_PYTHON, json.dumps(settings)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.stdout.startswith("refused:"), done.stderr


@pytest.mark.soak
def test_librdkafka_authenticates_again_while_it_writes(address: str) -> None:
    errors: list[confluent_kafka.KafkaError] = []
    settings = confluent(address, "SCRAM-SHA-256", USER, PASSWORD)
    producer = confluent_kafka.Producer({**settings, "error_cb": errors.append})
    for number in range(80):
        producer.produce("again", str(number).encode())
        assert producer.flush(WAIT_S) == 0
        producer.poll(0.1)
    assert errors == []
