"""A pipeline with TLS and SASL at both ends, against Apache Kafka; its secrets show nowhere."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.client import Admin, Consumer, NewTopic, Producer, TopicPartition
from tests.spark.support import JOB_TIMEOUT_S
from tests.support.peer import PeerUnavailable, jars
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


async def written(servers: str, given: dict[str, Any]) -> list[bytes]:
    async with Consumer(servers, **given) as consumer:
        consumer.assign([TopicPartition("out", 0)])
        found: list[bytes] = []
        while records := await consumer.poll(500 if len(found) >= len(VALUES) else 10_000):
            found += [record.value or b"" for record in records]
    return found


def run_job(told: dict[str, Any], tmp_path: Path, output: Path) -> None:
    # What it is told stands outside the folder that is searched for secrets.
    path = tmp_path / "told.json"
    path.write_text(json.dumps(told))
    command = [sys.executable, "-m", "tests.spark.secure_job", str(path)]
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
    run_job(told, tmp_path, folder / "output")
    assert sorted(asyncio.run(written(servers, given))) == sorted(VALUES)
    searched = [path for path in folder.rglob("*") if path.is_file()]
    assert {path.name for path in searched} >= {"output", "progress", "metadata"}
    assert any(path.is_relative_to(folder / "events") for path in searched)
    for secret in (PASSWORD, own.key_pem().splitlines()[1]):
        assert [path for path in searched if secret.encode() in path.read_bytes()] == []
