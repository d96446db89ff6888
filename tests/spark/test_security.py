"""Pipelines with TLS and SASL at both ends, against Apache Kafka and the kit's secure broker."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.client import Admin, Consumer, NewTopic, Producer, TopicPartition
from oncelog.testing.broker import ControlledBroker
from tests.spark.support import JOB_TIMEOUT_S
from tests.support.peer import PeerUnavailable, jars
from tests.support.peer.connector import connector
from tests.support.secure_kafka import PASSWORD, SecureKafka

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
VALUES = [b"%d" % number for number in range(500)]


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[SecureKafka]:
    try:
        jars()
    except PeerUnavailable as reason:
        pytest.skip(f"Apache Kafka's jars cannot be had: {reason}")
    with SecureKafka(tmp_path / "kafka") as peer:
        yield peer


async def fill(servers: str, given: dict[str, Any]) -> None:
    async with Admin(servers, **given) as admin:
        await admin.create_topics([NewTopic("in", 2), NewTopic("out", 1)])
    async with Producer(servers, **given) as producer:
        for value in VALUES:
            producer.send("in", value)
        await producer.flush()


async def make(servers: str, given: dict[str, Any], topics: list[str]) -> None:
    async with Admin(servers, **given) as admin:
        await admin.create_topics([NewTopic(topic, 1) for topic in topics])


async def written(servers: str, given: dict[str, Any], topic: str = "out") -> list[bytes]:
    async with Consumer(servers, **given) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found: list[bytes] = []
        while records := await consumer.poll(500 if len(found) >= len(VALUES) else 10_000):
            found += [record.value or b"" for record in records]
    return found


def run_job(program: str, told: dict[str, Any], tmp_path: Path, output: Path) -> None:
    # What it is told stands outside the folder that is searched for secrets.
    path = tmp_path / "told.json"
    path.write_text(json.dumps(told))
    command = [sys.executable, "-m", f"tests.spark.{program}", str(path)]
    with output.open("wb") as stream:
        done = subprocess.run(
            command, stdout=stream, stderr=stream, cwd=ROOT, timeout=2 * JOB_TIMEOUT_S, check=False
        )
    assert done.returncode == 0, output.read_text()[-3000:]


def test_a_pipeline_over_tls_and_sasl_is_exact_and_shows_no_secret(
    kafka: SecureKafka, tmp_path: Path
) -> None:
    own = kafka.authority.sign("client")
    servers = kafka.address("SASLTLS")
    given = {
        **kafka.settings_for("SASLTLS", "SCRAM-SHA-512"),
        "ssl.keystore.certificate.chain": own.pem,
        "ssl.keystore.key": own.key_pem(),
    }
    asyncio.run(fill(servers, given))
    folder = tmp_path / "job"
    (folder / "events").mkdir(parents=True)
    told = {
        "servers": servers,
        "settings": given,
        "input": "in",
        "output": "out",
        "events": f"file://{folder / 'events'}",
        "checkpoint": str(folder / "checkpoint"),
        "progress": str(folder / "progress"),
    }
    run_job("secure_job", told, tmp_path, folder / "output")
    assert sorted(asyncio.run(written(servers, given))) == sorted(VALUES)
    searched = [path for path in folder.rglob("*") if path.is_file()]
    assert {path.name for path in searched} >= {"output", "progress", "metadata"}
    assert any(path.is_relative_to(folder / "events") for path in searched)
    for secret in (PASSWORD, own.key_pem().splitlines()[1]):
        assert [path for path in searched if secret.encode() in path.read_bytes()] == []


def test_what_the_kit_gives_for_spark_leads_each_source_and_sink_in(tmp_path: Path) -> None:
    try:
        jars_of_spark = ",".join(map(str, connector()))
    except PeerUnavailable as reason:
        pytest.skip(f"the jars of Spark's connector cannot be had: {reason}")
    outputs = [f"{source}{sink}" for source in ("oncelog", "kafka") for sink in ("", "-once")]
    with ControlledBroker(secure=True) as broker:
        admin = broker.client_config("admin", for_="oncelog")
        servers = admin.pop("bootstrap_servers")
        asyncio.run(fill(servers, admin))
        asyncio.run(make(servers, admin, outputs))
        told = {
            "options": broker.client_config("app", for_="spark"),
            "jars": jars_of_spark,
            "folder": str(tmp_path),
        }
        run_job("kit_job", told, tmp_path, tmp_path / "output")
        for topic in outputs:
            assert sorted(asyncio.run(written(servers, admin, topic))) == sorted(VALUES), topic
