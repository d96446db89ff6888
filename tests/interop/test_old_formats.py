"""Logs from before Kafka 0.11: Apache Kafka serves them, our clients read them, we keep them."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as TheirTopic

from oncelog import Consumer, TopicPartition
from oncelog.cli.main import main
from oncelog.client import Admin, NewTopic, RetriableError
from tests.interop.test_data_folders import CLEAN_MARKER, KAFKA
from tests.support.java_tools import run_tool
from tests.support.logged import said_by
from tests.support.old_formats import TIME_MS, fields, message_set, stamped
from tests.support.peer.kafka import KafkaPeer, PeerUnavailable, jars
from tests.unit.broker.context import running
from tests.unit.storage.context import batch

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.damages]

TOPIC = "old"
SETS = [
    (0, 3, "none"), (0, 3, "gzip"), (0, 2, "snappy"), (0, 3, "lz4"),
    (1, 3, "none"), (1, 4, "gzip"), (1, 3, "snappy"), (1, 2, "lz4"),
]  # fmt: skip
STAMP_MS = TIME_MS + 12345

Row = tuple[int, int, bytes | None, bytes | None]


def old_log() -> tuple[bytes, list[Row]]:
    """A log as it grew: v0, then v1, one wrapper with LogAppendTime, and v2; and its records."""
    data, rows = b"", list[Row]()
    for magic, count, codec in SETS:
        first = len(rows)
        data += message_set(magic, first, count, codec)
        rows += [fields(first + index, magic) for index in range(count)]
    first = len(rows)
    data += stamped(message_set(1, first, 2, "gzip"), STAMP_MS)
    rows += [
        (o, STAMP_MS, key, value) for o, _, key, value in map(fields, (first, first + 1), (1, 1))
    ]
    new = batch(2, timestamp_ms=TIME_MS)
    new[:8] = len(rows).to_bytes(8, "big")
    rows += [(len(rows) + i, TIME_MS + i, b"key", b"value") for i in range(2)]
    return data + bytes(new), rows


def put(folder: Path, data: bytes) -> None:
    for path in folder.glob("*.*index"):
        path.unlink()
    (folder / f"{0:020d}.log").write_bytes(data)


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> KafkaPeer:
    try:
        jars()
    except PeerUnavailable as reason:
        pytest.skip(f"Apache Kafka cannot be had: {reason}")
    return KafkaPeer(tmp_path_factory.mktemp("old") / "kafka", KAFKA)


async def read_all(servers: str, seek: int = 0) -> list[Row]:
    async with Consumer(servers) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        consumer.seek(TopicPartition(TOPIC, 0), seek)
        found: list[Row] = []
        while records := await consumer.poll(2_000):
            found += [(r.offset, r.timestamp_ms, r.key, r.value) for r in records]
        return found


def java_reads(servers: str, count: int) -> list[str]:
    shown = [f"--formatter-property=print.{each}=true" for each in ("timestamp", "offset", "key")]
    done = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", servers, "--topic", TOPIC, "--from-beginning"),
        *("--max-messages", str(count), "--timeout-ms", "20000", *shown),
    )
    return done.stdout.splitlines()


def as_java_prints(row: Row) -> str:
    offset, time_ms, key, value = row
    time = f"CreateTime:{time_ms}" if time_ms >= 0 else "NO_TIMESTAMP"
    time = f"LogAppendTime:{time_ms}" if time_ms == STAMP_MS else time
    texts = ["null" if each is None else each.decode() for each in (key, value)]
    return "\t".join([time, f"Offset:{offset}", *texts])


@pytest.mark.soak
def test_our_clients_read_from_apache_kafka_what_its_own_read(peer: KafkaPeer) -> None:
    data, rows = old_log()
    with peer:
        servers = peer.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        for future in admin.create_topics([TheirTopic(TOPIC, 1, 1)]).values():
            future.result(30)
        del admin
        peer.stop()
        put(peer.folder / "data" / f"{TOPIC}-0", data)
        (peer.folder / "data" / CLEAN_MARKER).unlink()
        peer.start()
        assert java_reads(servers, len(rows)) == [as_java_prints(row) for row in rows]
        assert asyncio.run(read_all(servers)) == rows
        assert asyncio.run(read_all(servers, 13)) == rows[13:]
        asked = ("--bootstrap-server", servers, "--until-end", "--format", "json")
        printed = CliRunner().invoke(main, ["consume", TOPIC, *asked])
        assert printed.exit_code == 0, printed.output
        lines = [line for line in printed.stdout.splitlines() if line.startswith("{")]
        assert [json.loads(line)["offset"] for line in lines] == [row[0] for row in rows]


async def test_our_broker_refuses_them_and_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, _ = old_log()
    async with running(tmp_path) as context, Admin(context.broker.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(TOPIC, 1, 1, {})])
    folder = tmp_path / f"{TOPIC}-0"
    put(folder, data)
    (tmp_path / CLEAN_MARKER).unlink()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for _ in range(2):
        caplog.clear()
        async with (
            running(tmp_path) as context,
            Consumer(context.broker.bootstrap_servers, retry_timeout_ms=200) as consumer,
        ):
            consumer.assign([TopicPartition(TOPIC, 0)])
            with pytest.raises(RetriableError, match=f"{TOPIC}-0"):
                await consumer.poll(60_000)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
        (said,) = [each for each in said_by(caplog) if each.levelno == logging.ERROR]
        assert "copy the topic there to a new one" in said.getMessage()
