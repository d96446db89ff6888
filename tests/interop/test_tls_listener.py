"""Stock clients at a listener with TLS: who gets in, and what is logged of who does not.

How each client is told is in `test_logins`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from oncelog import EmbeddedBroker
from tests.support.certificates import Authority
from tests.support.logged import said_by

pytestmark = [pytest.mark.interop, pytest.mark.slow]

TIMEOUT_S = 10
HOST = "localhost"
WRONG_HOST = "127.0.0.1"
"""The broker's certificate does not name it."""


class Way(NamedTuple):
    """How a client comes: to which port, whom it trusts, and with which certificate."""

    server: str
    authority: str | None
    """A file of whom it trusts; None: it speaks plain text."""
    own: str | None = None

    def context(self) -> ssl.SSLContext:
        found = ssl.create_default_context(cafile=self.authority)
        if self.own is not None:
            found.load_cert_chain(self.own)
        return found


class Secured:
    """A broker with a listener in plain text and two with TLS: one asks for certificates."""

    def __init__(self, folder: Path, *, days: int = 365) -> None:
        authority = Authority.make()
        self.trusted = str(folder / "authority.pem")
        Path(self.trusted).write_text(authority.pem)
        self.stranger = str(folder / "stranger.pem")
        Path(self.stranger).write_text(Authority.make("stranger").pem)
        self.own = authority.sign("app").write(folder / "app.pem")
        self.expired = authority.sign("app", days=-1).write(folder / "expired.pem")
        names = ("PLAIN", "TLS", "MTLS")
        self.broker = EmbeddedBroker(
            config={
                "listeners": ",".join(f"{name}://127.0.0.1:0" for name in names),
                "advertised.listeners": ",".join(f"{name}://{HOST}:0" for name in names),
                "listener.security.protocol.map": "PLAIN:PLAINTEXT,TLS:SSL,MTLS:SSL",
                "inter.broker.listener.name": "PLAIN",
                "ssl.keystore.location": authority.sign("broker", HOST, days=days).write(
                    folder / "broker.pem"
                ),
                "ssl.truststore.location": self.trusted,
                "listener.name.mtls.ssl.client.auth": "required",
            }
        )

    def port(self, listener: str) -> int:
        listeners = self.broker.broker.server.listeners
        return next(each.address.port for each in listeners if each.name == listener)

    def way(self, listener: str, host: str = HOST, **changed: Any) -> Way:
        return Way(f"{host}:{self.port(listener)}", **{"authority": self.trusted, **changed})


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("tls"))
    with made.broker:
        yield made


def librdkafka(way: Way) -> dict[str, Any]:
    given: dict[str, Any] = {"bootstrap.servers": way.server}
    if way.authority is not None:
        given |= {"security.protocol": "ssl", "ssl.ca.location": way.authority}
    if way.own is not None:
        given |= {"ssl.certificate.location": way.own, "ssl.key.location": way.own}
    return given


def kafka_python(way: Way) -> dict[str, Any]:
    given: dict[str, Any] = {"bootstrap_servers": way.server}
    if way.authority is not None:
        given |= {"security_protocol": "SSL", "ssl_cafile": way.authority}
    if way.own is not None:
        given |= {"ssl_certfile": way.own, "ssl_keyfile": way.own}
    return given


def aio(way: Way) -> dict[str, Any]:
    given: dict[str, Any] = {"bootstrap_servers": way.server}
    if way.authority is not None:
        given |= {"security_protocol": "SSL", "ssl_context": way.context()}
    return given


def copied_by_librdkafka(way: Way, topic: str) -> list[bytes | None]:
    producer = confluent_kafka.Producer(librdkafka(way))
    producer.produce(topic, b"x")
    assert producer.flush(TIMEOUT_S) == 0
    consumer = confluent_kafka.Consumer({**librdkafka(way), "group.id": topic})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    try:
        return [message.value() for message in consumer.consume(1, TIMEOUT_S)]
    finally:
        consumer.close()


def copied_by_kafka_python(way: Way, topic: str) -> list[bytes | None]:
    producer = KafkaProducer(**kafka_python(way))
    producer.send(topic, b"x").get(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer(**kafka_python(way))
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek(place, 0)
    try:
        return [next(consumer).value]
    finally:
        consumer.close()


@asynccontextmanager
async def aio_producer(way: Way) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(**aio(way))
    try:
        await producer.start()
        yield producer
    finally:
        await producer.stop()


def copied_by_aiokafka(way: Way, topic: str) -> list[bytes | None]:
    async def copied() -> list[bytes | None]:
        async with aio_producer(way) as producer:
            await producer.send_and_wait(topic, b"x")
        consumer = AIOKafkaConsumer(topic, auto_offset_reset="earliest", **aio(way))
        await consumer.start()
        try:
            return [(await consumer.getone()).value]
        finally:
            await consumer.stop()

    return asyncio.run(copied())


COPIES = {
    "confluent-kafka": copied_by_librdkafka,
    "kafka-python": copied_by_kafka_python,
    "aiokafka": copied_by_aiokafka,
}


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("listener", ["PLAIN", "TLS", "MTLS"])
def test_a_client_writes_and_reads_by_every_listener(
    secured: Secured, name: str, listener: str
) -> None:
    authority = None if listener == "PLAIN" else secured.trusted
    own = secured.own if listener == "MTLS" else None
    way = secured.way(listener, authority=authority, own=own)
    assert COPIES[name](way, f"{name}-{listener}") == [b"x"]


def refused_by_aiokafka(way: Way) -> str:
    async def refused() -> str:
        with pytest.raises((KafkaConnectionError, ssl.SSLError)) as caught:
            async with aio_producer(way):
                raise AssertionError("it got in")
        return str(caught.value)

    return asyncio.run(refused())


def broker_records(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [each for each in said_by(caplog) if each.name.startswith("oncelog.broker")]


CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "wrong host": ("TLS", {"host": WRONG_HOST}, ""),
    "untrusted": ("TLS", {"authority": "stranger"}, ""),
    "no certificate": ("MTLS", {}, "it shows no certificate"),
    "expired certificate": ("MTLS", {"own": "expired"}, "certificate has expired"),
    "plain text to TLS": ("TLS", {"authority": None}, "it does not speak TLS"),
    "TLS to plain text": ("PLAIN", {}, "it speaks TLS, and this listener does not"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_client_that_must_not_get_in_is_one_line_in_the_log(
    secured: Secured, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    listener, changed, reason = CASES[case]
    named = {key: getattr(secured, str(value), value) for key, value in changed.items()}
    refused_by_aiokafka(secured.way(listener, **named))
    until = time.monotonic() + TIMEOUT_S
    # The broker closes the connection before it says why, in its own thread.
    while not (records := broker_records(caplog)) and reason and time.monotonic() < until:
        time.sleep(0.01)
    lines = {record.getMessage().partition(": ")[2] for record in records}
    assert all(record.exc_info is None for record in records)
    assert len(lines) <= 1 or not reason
    assert not reason or any(reason in line for line in lines)
