"""TLS and SASL against Apache Kafka: every mechanism, and what it says to those it does not let in.

One broker with a listener per way in. Needs its jars.
"""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from oncelog.cli.main import main
from oncelog.client import (
    Admin,
    AuthenticationError,
    ClientError,
    Consumer,
    NewTopic,
    Producer,
    TopicPartition,
    TransactionDriver,
)
from tests.support.certificates import Authority
from tests.support.secure_kafka import MECHANISMS, PASSWORD, SESSION_MS, SecureKafka, login_of

pytestmark = [pytest.mark.interop, pytest.mark.soak]

WAYS_IN = [
    ("TLS", None),
    ("MTLS", None),
    *(("SASLTLS", mechanism) for mechanism in MECHANISMS),
    *(("SASL", mechanism) for mechanism in MECHANISMS),
]


@pytest.fixture(scope="module")
def kafka(java_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    with SecureKafka(tmp_path_factory.mktemp("secure") / "kafka") as peer:
        yield peer


async def read(address: str, given: dict[str, Any], topic: str) -> list[bytes | None]:
    async with Consumer(address, **given) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        return [record.value for record in await consumer.poll(10_000)]


@pytest.mark.parametrize(("listener", "mechanism"), WAYS_IN)
async def test_a_transaction_is_written_and_read_by_every_way_in(
    kafka: SecureKafka, listener: str, mechanism: str | None
) -> None:
    address, given = kafka.address(listener), kafka.settings_for(listener, mechanism)
    topic = f"t-{uuid.uuid4().hex[:8]}"
    async with Admin(address, **given) as admin:
        await admin.create_topics([NewTopic(topic, 1)])
    async with TransactionDriver(address, topic, **given) as driver:
        await driver.open()
        identity = await driver.new_epoch()
        async with Producer.attach(address, topic, *identity, **given) as producer:
            await producer.send(topic, b"once")
        await driver.end(commit=True)
    assert await read(address, given, topic) == [b"once"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_wrong_password_is_final(kafka: SecureKafka, mechanism: str) -> None:
    wrong = login_of(mechanism, "wrong-geheim")
    if mechanism == "OAUTHBEARER":
        wrong = {"sasl.oauthbearer.token": "wrong-geheim"}
    given = {**kafka.settings_for("SASLTLS", mechanism), **wrong}
    with pytest.raises(AuthenticationError) as raised:
        await Admin(kafka.address("SASLTLS"), **given).start()
    assert f"SASL {mechanism} as" in str(raised.value)
    assert "wrong-geheim" not in str(raised.value)


async def test_a_session_is_renewed_on_the_connection(kafka: SecureKafka) -> None:
    address, given = kafka.address("SASL"), kafka.settings_for("SASL", "PLAIN")
    async with Admin(address, **given) as admin:
        connection = await admin._cluster.any_connection()
        clock = admin._cluster.clock
        begun_ms = clock.monotonic_ms()
        while clock.monotonic_ms() - begun_ms < 2.5 * SESSION_MS:
            await admin.describe_cluster()
        assert not connection.is_closed
        assert connection._reauthentication is not None


async def test_a_producer_loses_and_repeats_nothing_while_its_session_is_renewed(
    kafka: SecureKafka,
) -> None:
    address, given = kafka.address("SASL"), kafka.settings_for("SASL", "PLAIN")
    topic = f"t-{uuid.uuid4().hex[:8]}"
    async with Admin(address, **given) as admin:
        await admin.create_topics([NewTopic(topic, 1)])
    sent: list[bytes] = []
    async with Producer(address, batch_size=200, **given) as producer:
        clock = producer._cluster.clock
        begun_ms = clock.monotonic_ms()
        while clock.monotonic_ms() - begun_ms < 2.5 * SESSION_MS:
            futures = []
            for _ in range(100):
                sent.append(b"%d" % len(sent))
                futures.append(producer.send(topic, sent[-1]))
            await futures[0]
        await producer.flush()
        (connection,) = producer._cluster._connections.values()
        assert connection._reauthentication is not None
    found: list[bytes | None] = []
    async with Consumer(address, **given) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while records := await consumer.poll(1_000, 10_000):
            found += [record.value for record in records]
    assert found == sent


async def refusal(address: str, given: dict[str, Any]) -> ClientError:
    with pytest.raises(ClientError) as raised:
        async with Admin(address, timeout_ms=1_000, **given) as admin:
            await admin.list_topics()
    return raised.value


async def test_what_does_not_fit_the_listener_is_said(kafka: SecureKafka, tmp_path: Path) -> None:
    tls = kafka.settings_for("TLS")
    foreign = Authority.make("stranger").sign("client").write(tmp_path / "foreign.pem")
    sasl = kafka.settings_for("SASL", "PLAIN")
    cases: list[tuple[str, dict[str, Any], str, bool]] = [
        (kafka.address("TLS"), {}, "it speaks TLS; set security.protocol=SSL", True),
        (kafka.bootstrap_servers, tls, "a port without TLS does that", False),
        (kafka.address("SASL"), {}, "a listener with SASL does that", False),
        (kafka.bootstrap_servers, sasl, "this listener knows no SASL", True),
        (kafka.address("MTLS"), tls, "ssl.keystore", True),
        (kafka.address("MTLS"), {**tls, "ssl.keystore.location": foreign}, "ssl.keystore", True),
        (
            kafka.address("SASL"),
            {**sasl, "sasl.mechanism": "SCRAM-SHA-256", **login_of("SCRAM-SHA-256", "no")},
            "Authentication failed",
            True,
        ),
    ]
    for address, given, what, is_final in cases:
        error = await refusal(address, given)
        assert what in str(error)
        assert isinstance(error, AuthenticationError) == is_final, error
        assert PASSWORD not in str(error)


def test_the_commands_take_a_file_of_settings(kafka: SecureKafka, tmp_path: Path) -> None:
    given = kafka.settings_for("SASLTLS", "SCRAM-SHA-512")
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    reach = ("--bootstrap-server", kafka.address("SASLTLS"), "--command-config", str(path))

    def call(*arguments: str, stdin: str = "") -> str:
        result = CliRunner().invoke(main, [*arguments, *reach], input=stdin)
        assert result.exit_code == 0, result.stderr
        assert PASSWORD not in result.output
        return result.stdout

    topic = f"t-{uuid.uuid4().hex[:8]}"
    call("topics", "create", topic)
    call("produce", topic, stdin="one\n")
    assert call("consume", topic, "--until-end") == "one\n"
