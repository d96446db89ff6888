"""A secure broker of the test kit: its users, its faults, and what it says without them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog import EmbeddedBroker, EmbeddedCluster
from oncelog.client import (
    Admin,
    AuthenticationError,
    Consumer,
    FatalError,
    Producer,
    TopicPartition,
)
from oncelog.core.config_definition import ConfigError
from oncelog.core.errors import ErrorCode, OncelogError
from oncelog.peer.connection import Connection
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.runtime import installation
from oncelog.runtime.installation import ExtraMissing
from oncelog.testing import ArmedFault, ControlledBroker, ControlledCluster
from tests.unit.testing.test_plugin import run

pytest_plugins = ["pytester"]


@pytest.fixture(scope="module")
def shared() -> Iterator[ControlledBroker]:
    with ControlledBroker(secure=True) as broker:
        yield broker


@pytest.fixture
def broker(shared: ControlledBroker) -> Iterator[ControlledBroker]:
    yield shared
    shared.faults.clear()


def settings(broker: EmbeddedBroker | EmbeddedCluster, user: str = "app") -> dict[str, Any]:
    return broker.client_config(user, for_="oncelog")


async def enter(given: dict[str, Any]) -> None:
    async with Admin(**given) as admin:
        await admin.list_topics()


@pytest.mark.parametrize("user", ["admin", "app", "reader"])
async def test_each_user_logs_in_by_its_own_password(broker: ControlledBroker, user: str) -> None:
    await enter(settings(broker, user))
    with pytest.raises(AuthenticationError):
        await enter(settings(broker, user) | {"sasl.password": "falsch"})


async def test_there_is_no_other_way_in(broker: ControlledBroker) -> None:
    (listener,) = broker.broker.server.listeners
    assert listener.given.protocol == "SASL_SSL"
    assert settings(broker)["bootstrap_servers"] == broker.bootstrap_servers
    assert settings(broker)["sasl.password"] not in repr(broker.broker.config.listeners)


def test_unknown_users_and_clients_are_named(broker: ControlledBroker) -> None:
    with pytest.raises(ValueError, match="no user 'eve': the users are admin, app, reader"):
        broker.client_config("eve", for_="java")
    with pytest.raises(ValueError, match="for_='ruby' is none of confluent, aiokafka, kafka-p"):
        broker.client_config("app", for_="ruby")


async def test_what_java_and_spark_are_given_is_what_our_clients_take_too(
    broker: ControlledBroker,
) -> None:
    java = broker.client_config("reader", for_="java")
    spark = broker.client_config("reader", for_="spark")
    assert {name.removeprefix("kafka."): value for name, value in spark.items()} == java
    async with Admin(java.pop("bootstrap.servers"), **java) as admin:
        await admin.list_topics()


def test_a_plain_broker_has_no_users() -> None:
    with ControlledBroker() as plain:
        with pytest.raises(RuntimeError, match="make it with secure=True"):
            plain.client_config("app", for_="java")
        with pytest.raises(RuntimeError, match="make it with secure=True"):
            plain.faults.expire_certificate()
        with pytest.raises(ValueError, match="no listener of this broker has SASL"):
            plain.faults.refuse_login()


def test_the_listener_of_a_secure_broker_is_its_own() -> None:
    given = {"listeners": "PLAINTEXT://127.0.0.1:0"}
    with (
        pytest.raises(ConfigError, match="secure=True sets listeners: leave it out of config"),
        EmbeddedBroker(secure=True, config=given),
    ):
        pass


def test_without_cryptography_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "find_spec", lambda package: None)
    with pytest.raises(ExtraMissing, match=r"secure=True needs cryptography, .*\[secure\]"):
        EmbeddedBroker(secure=True)


@pytest.mark.parametrize("word", ["tls", "sasl", "security"])
def test_other_words_for_it_are_understood(word: str) -> None:
    with pytest.raises(TypeError, match="secure=True has it speak TLS"):
        EmbeddedBroker(**{word: True})  # type: ignore[arg-type]


async def test_the_next_life_has_the_same_users_and_writes_none(tmp_path: Path) -> None:
    kept = ControlledBroker(tmp_path, secure=True)
    with kept:
        await enter(settings(kept))
        before = kept.call(lambda inside: dict(inside.image.scram_credentials))
        kept.faults.kill()
        await enter(settings(kept))
        assert kept.call(lambda inside: dict(inside.image.scram_credentials)) == before
    with EmbeddedBroker(tmp_path, secure=True) as another:
        await enter(settings(another))
        stranger = settings(another) | {"sasl.password": "falsch"}
        with pytest.raises(AuthenticationError):
            await enter(stranger)


# --- faults


async def test_logins_are_refused_as_often_as_they_shall_be(broker: ControlledBroker) -> None:
    fault = broker.faults.refuse_login(2, nth=2)
    await enter(settings(broker))
    for _ in range(2):
        with pytest.raises(AuthenticationError, match="invalid credentials"):
            await enter(settings(broker))
    fault.wait()
    await enter(settings(broker))
    assert fault.hits_count == 2


async def test_logins_of_one_user_are_refused_until_the_fault_is_cancelled(
    broker: ControlledBroker,
) -> None:
    fault = broker.faults.refuse_login(100, user="reader")
    await enter(settings(broker))
    with pytest.raises(AuthenticationError):
        await enter(settings(broker, "reader"))
    fault.cancel()
    await enter(settings(broker, "reader"))
    broker.faults.refuse_login()
    broker.faults.clear()
    await enter(settings(broker))


async def test_a_certificate_expires_and_is_renewed(broker: ControlledBroker) -> None:
    async with Producer(**settings(broker)) as before:
        await before.send("certificates", b"1")
        broker.faults.expire_certificate()
        with pytest.raises(AuthenticationError, match="certificate has expired"):
            await enter(settings(broker))
        await before.send("certificates", b"2")
        broker.faults.renew_certificate()
        await enter(settings(broker))
        broker.faults.expire_certificate()
        broker.faults.clear()
        await enter(settings(broker))


async def test_a_certificate_that_has_expired_is_that_of_the_next_life_too() -> None:
    with ControlledBroker(secure=True) as broker:
        broker.faults.expire_certificate()
        broker.faults.kill()
        with pytest.raises(AuthenticationError, match="certificate has expired"):
            await enter(settings(broker))


async def test_a_session_that_cannot_be_renewed_ends_with_its_connection() -> None:
    with ControlledBroker(secure=True, config={"connections.max.reauth.ms": 200}) as broker:
        fault = broker.faults.drop_reauthentication()
        async with Admin(**settings(broker)) as admin:
            connection = await admin._cluster.any_connection()
            with pytest.raises(OncelogError):
                await asked_until_it_strikes(connection, fault)
            assert connection.is_closed
            await admin.list_topics()
        fault.wait()


async def asked_until_it_strikes(connection: Connection, fault: ArmedFault) -> None:
    while not fault.hits_count:
        await connection.request(ApiKey.METADATA, MetadataRequest(topics=()))


# --- who may do what


async def write(broker: ControlledBroker, topic: str, user: str = "app") -> ErrorCode:
    """What a producer is told."""
    try:
        async with Producer(**settings(broker, user)) as producer:
            await producer.send(topic, b"x")
    except FatalError as error:
        return error.code
    return ErrorCode.none


async def test_who_may_do_what_is_open_until_there_is_a_first_acl(broker: ControlledBroker) -> None:
    refused = ErrorCode.topic_authorization_failed
    broker.create_topic("orders")
    broker.create_topic("orders-eu")
    assert await write(broker, "orders", "reader") is ErrorCode.none
    broker.allow("app", "write,describe", topic="orders")
    assert await write(broker, "orders") is ErrorCode.none
    assert await write(broker, "orders", "reader") is refused
    assert await write(broker, "orders-eu", "reader") is ErrorCode.none
    broker.deny("app", "write", topic="orders*")
    assert await write(broker, "orders") is refused
    assert await write(broker, "orders", "admin") is ErrorCode.none
    broker.clear_acls()
    broker.allow("reader", "all")
    assert await write(broker, "orders", "reader") is ErrorCode.none
    assert await write(broker, "orders") is not ErrorCode.none
    broker.clear_acls()
    assert await write(broker, "orders") is ErrorCode.none


def test_an_operation_that_does_not_exist_is_named(broker: ControlledBroker) -> None:
    with pytest.raises(ValueError, match="the operation 'wirte' is none of all, read, write"):
        broker.allow("app", "wirte", topic="orders")
    with ControlledBroker() as plain, pytest.raises(RuntimeError, match="secure=True"):
        plain.allow("app", "write", topic="orders")


async def test_requests_are_denied_as_often_as_they_shall_be() -> None:
    with ControlledBroker() as broker:
        broker.create_topic("orders")
        broker.create_topic("other")
        fault = broker.faults.deny("write", topic="orders", times=2)
        for _ in range(2):
            async with Producer(broker.bootstrap_servers) as producer:
                await producer.send("other", b"x")
                with pytest.raises(FatalError) as raised:
                    await producer.send("orders", b"x")
                assert raised.value.code is ErrorCode.topic_authorization_failed
        fault.wait()
        async with Producer(broker.bootstrap_servers) as producer:
            await producer.send("orders", b"x")
        assert fault.hits_count == 2


async def test_only_one_user_is_denied_until_the_fault_is_cancelled(
    broker: ControlledBroker,
) -> None:
    fault = broker.faults.deny("write", topic="mine", user="app", times=100)
    broker.create_topic("mine")
    assert await write(broker, "mine", "reader") is ErrorCode.none
    assert await write(broker, "mine") is ErrorCode.topic_authorization_failed
    fault.cancel()
    assert await write(broker, "mine") is ErrorCode.none


# --- clusters and fixtures


async def test_brokers_of_a_secure_cluster_log_in_at_each_other_and_can_be_cut() -> None:
    soon = {"replica.lag.time.max.ms": 500, "replica.fetch.wait.max.ms": 100}
    with ControlledCluster(secure=True, config=soon) as cluster:
        cluster.create_topic("t")
        leader = cluster.leader_of("t")
        assert leader is not None
        follower = 1 + leader % 3
        # No fault is for the logins of brokers.
        refusal = cluster.broker(leader).faults.refuse_login(user="broker")
        cluster.allow("app", "all", topic="t")
        cluster.allow("reader", "read", topic="t")
        async with Producer(**settings(cluster)) as producer:
            with cluster.isolate(follower):
                await producer.send("t", b"1")
                assert follower not in cluster.in_sync("t")
            cluster.wait_until(lambda: len(cluster.in_sync("t")) == 3)
            cluster.kill(follower)
            cluster.restart(follower)
            cluster.wait_until(lambda: len(cluster.in_sync("t")) == 3)
        assert refusal.hits_count == 0
        users = cluster.broker(leader).call(
            lambda inside: {each.principal for each in inside.server.connections}
        )
        assert "broker" in users
        async with Consumer(**settings(cluster, "reader")) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            assert [record.value for record in await consumer.poll(10_000)] == [b"1"]


def test_a_fixture_and_a_marker_have_secure_brokers(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest
        from oncelog import sync

        def test_shared(oncelog_secure_broker, oncelog_topic):
            settings = oncelog_secure_broker.client_config("app", for_="oncelog")
            with sync.Producer(**settings) as producer:
                producer.send(oncelog_topic, b"x").result()

        @pytest.mark.oncelog(secure=True)
        def test_own(oncelog_own_broker):
            assert oncelog_own_broker.client_config("app", for_="java")

        @pytest.mark.oncelog(secure=True)
        def test_not_own(oncelog_broker):
            pass
        """,
    )
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*a marker with secure= needs a broker of its own*"])
