"""Stock clients on listeners with SASL, with and without TLS: they log in, and write.

Who is refused is in `test_logins`.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka.admin import AdminClient

from oncelog import EmbeddedBroker
from oncelog.client import ScramCredentialInfo, UserScramCredentialUpsertion
from oncelog.sync import Admin
from tests.support.certificates import Authority

pytestmark = [pytest.mark.interop, pytest.mark.slow]

HOST = "127.0.0.1"
USER, PASSWORD = "alice", "alice-geheim"
LINE = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
PROTOCOLS = {"SASL": "SASL_PLAINTEXT", "SASLTLS": "SASL_SSL"}
LISTENERS = {"PLAINTEXT": "PLAINTEXT", **PROTOCOLS}
CONFIG = {
    "listeners": ",".join(f"{name}://{HOST}:0" for name in LISTENERS),
    "listener.security.protocol.map": ",".join(map(":".join, LISTENERS.items())),
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl.plain.sasl.jaas.config": LINE,
    "listener.name.sasltls.plain.sasl.jaas.config": LINE,
    # Each client authenticates again more than once while a test writes.
    "connections.max.reauth.ms": "3000",
}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
WAIT_S = 20


class Way(NamedTuple):
    """How a client reaches a listener, by which mechanism and as whom."""

    address: str
    protocol: str
    authority: str
    mechanism: str
    user: str = USER
    password: str = PASSWORD

    @property
    def has_tls(self) -> bool:
        return self.protocol == "SASL_SSL"


Find = Callable[[str, str], Way]


@pytest.fixture(scope="module")
def find(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Find]:
    """Finds the way to a listener with a mechanism."""
    folder = tmp_path_factory.mktemp("sasl")
    authority = Authority.make()
    trusted = folder / "authority.pem"
    trusted.write_text(authority.pem)
    own = {"ssl.keystore.location": authority.sign("broker", HOST).write(folder / "broker.pem")}
    with EmbeddedBroker(config={**CONFIG, **own}) as broker:
        with Admin(broker.bootstrap_servers) as admin:
            for mechanism in MECHANISMS[1:]:
                info = ScramCredentialInfo(mechanism)
                admin.alter_user_scram_credentials(
                    [UserScramCredentialUpsertion(USER, info, PASSWORD)]
                )
        addresses = {each.name: str(each.address) for each in broker.broker.server.listeners}
        yield lambda name, mechanism: Way(addresses[name], PROTOCOLS[name], str(trusted), mechanism)


def confluent(way: Way) -> dict[str, Any]:
    given = {
        "bootstrap.servers": way.address,
        "security.protocol": way.protocol,
        "sasl.mechanisms": way.mechanism,
        "sasl.username": way.user,
        "sasl.password": way.password,
    }
    return given | ({"ssl.ca.location": way.authority} if way.has_tls else {})


def python(way: Way) -> dict[str, Any]:
    return {
        "bootstrap_servers": way.address,
        "security_protocol": way.protocol,
        "sasl_mechanism": way.mechanism,
        "sasl_plain_username": way.user,
        "sasl_plain_password": way.password,
    }


def kafka_python(way: Way) -> dict[str, Any]:
    return python(way) | ({"ssl_cafile": way.authority} if way.has_tls else {})


def aio(way: Way) -> dict[str, Any]:
    context = ssl.create_default_context(cafile=way.authority) if way.has_tls else None
    return python(way) | {"ssl_context": context}


WITHOUT_TLS = [("SASL", mechanism) for mechanism in MECHANISMS]
WAYS = pytest.mark.parametrize(
    ("listener", "mechanism"), [*WITHOUT_TLS, *(("SASLTLS", each) for each in MECHANISMS)]
)


@WAYS
def test_librdkafka_logs_in(find: Find, listener: str, mechanism: str) -> None:
    settings = confluent(find(listener, mechanism))
    producer = confluent_kafka.Producer(settings)
    producer.produce("librdkafka", b"v")
    assert producer.flush(WAIT_S) == 0
    assert "librdkafka" in AdminClient(settings).list_topics(timeout=WAIT_S).topics


@WAYS
async def test_aiokafka_logs_in(find: Find, listener: str, mechanism: str) -> None:
    async with AIOKafkaProducer(**aio(find(listener, mechanism))) as producer:
        await producer.send_and_wait("aiokafka", b"v")


@WAYS
def test_kafka_python_logs_in(find: Find, listener: str, mechanism: str) -> None:
    producer = kafka.KafkaProducer(**kafka_python(find(listener, mechanism)))
    producer.send("kafka-python", b"v").get(WAIT_S)
    producer.close()


@pytest.mark.soak
def test_librdkafka_authenticates_again_while_it_writes(find: Find) -> None:
    errors: list[confluent_kafka.KafkaError] = []
    settings = confluent(find("SASL", "SCRAM-SHA-256"))
    producer = confluent_kafka.Producer({**settings, "error_cb": errors.append})
    for number in range(80):
        producer.produce("again", str(number).encode())
        assert producer.flush(WAIT_S) == 0
        producer.poll(0.1)
    assert errors == []
