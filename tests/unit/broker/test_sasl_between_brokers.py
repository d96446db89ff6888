"""Brokers that authenticate to each other by SASL, with and without TLS."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from oncelog.broker.apis.alter_user_scram_credentials import event_of
from oncelog.broker.controller.stopped import decide_stopped
from oncelog.broker.net.sasl import SaslGate
from oncelog.client import ScramCredentialInfo, UserScramCredentialUpsertion
from oncelog.client.user_admin import alteration_request
from oncelog.controller.topics import TopicToCreate
from tests.support.certificates import Authority
from tests.support.logged import said_by
from tests.support.members import Cluster, members
from tests.unit.broker.test_several_brokers import controller_of

HOST = "127.0.0.1"
MODULES = "org.apache.kafka.common.security"
PLAIN = {
    "listeners": f"SASL_PLAINTEXT://{HOST}:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "connection.failed.authentication.delay.ms": 0,
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{MODULES}.plain.PlainLoginModule required username="broker" password="geheim" '
        'user_broker="geheim" user_app="app-geheim";'
    ),
}


def scram(folder: Path) -> dict[str, object]:
    """The configs of brokers with SCRAM over TLS."""
    authority = Authority.make()
    return {
        "listeners": f"SASL_SSL://{HOST}:0",
        "ssl.keystore.location": authority.sign("broker", HOST).write(folder / "broker.pem"),
        "ssl.truststore.certificates": authority.pem,
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": (
            f'{MODULES}.scram.ScramLoginModule required username="broker" password="geheim";'
        ),
    }


@asynccontextmanager
async def three(config: Mapping[str, object]) -> AsyncIterator[Cluster]:
    """A cluster whose store has the user that the brokers are by SCRAM."""
    async with members(3, starts=False) as cluster:
        for broker_id in (1, 2, 3):
            cluster[broker_id].config |= config
        info = ScramCredentialInfo("SCRAM-SHA-256", 4096)
        alterations = [UserScramCredentialUpsertion("broker", info, "geheim")]
        await decide_stopped(
            cluster.store, None, event_of(alteration_request(alterations), random.Random(1))
        )
        yield cluster


def gates(cluster: Cluster) -> list[SaslGate]:
    return [gate for each in (1, 2, 3) for gate in cluster[each].broker.server.gates.values()]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_three_brokers_replicate_and_renew_their_sessions(
    tmp_path: Path, mechanism: str
) -> None:
    config = PLAIN if mechanism == "PLAIN" else scram(tmp_path)
    async with three({**config, "connections.max.reauth.ms": 300}) as cluster:
        await cluster.start(1, 2, 3)
        await controller_of(cluster).create_topics([TopicToCreate("t", 3, 3)])
        await cluster.agreed()
        for gate in gates(cluster):
            await cluster.until(lambda gate=gate: gate.successes_again_count > 0)  # type: ignore[misc]
            assert not gate.failures_count
        for each in (1, 2, 3):
            broker = cluster[each].broker
            assert {peer.principal for peer in broker.server.connections} == {"broker"}
            partition = broker.partitions.get("t", each - 1)
            assert partition is not None


async def test_a_broker_with_a_wrong_password_is_told_so_once_and_gets_in_with_the_right_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    key = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    wrong = str(PLAIN[key]).replace('password="geheim"', 'password="falsch"')
    async with three(PLAIN) as cluster:
        await cluster.start(1)
        cluster[2].config |= {key: wrong}
        with caplog.at_level(logging.WARNING):
            starting = asyncio.create_task(cluster[2].start())
            await cluster.until(lambda: gates_of(cluster, 1).failures_count > 2)
        lines = [one.getMessage() for one in said_by(caplog) if "let this one in" in one.message]
        assert len(lines) == 1
        assert "SASL PLAIN as user broker: Authentication failed" in lines[0]
        assert "falsch" not in caplog.text
        starting.cancel()
        await asyncio.wait([starting])
        cluster[2].config |= PLAIN
        await cluster.start(2)


def gates_of(cluster: Cluster, broker_id: int) -> SaslGate:
    (gate,) = cluster[broker_id].broker.server.gates.values()
    return gate
