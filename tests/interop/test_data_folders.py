"""Outside judges of whole log directories.

Apache's DumpLogSegments reads every kind of file that we leave, indexes against logs, after rolls,
DeleteRecords, retention, recovery, repair and compaction. Apache Kafka started on our folders
serves what we serve, and we serve what it left, after a clean stop and after SIGKILL.

What ties a partition's folder to a cluster is put right by hand: the topics are made in the cluster
that takes the files over, and its `partition.metadata` stays.
"""

import asyncio
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from oncelog.cli.main import main
from oncelog.client import Admin
from oncelog.client import NewTopic as OwnTopic
from oncelog.core.ids import TopicPartition
from oncelog.runtime.disk import SystemDisk
from oncelog.storage import LogConfig, PartitionLog
from oncelog.storage.checkpoints import format_offsets, parse_offsets
from oncelog.storage.cleaner.offline import clean_log
from tests.corruption.reader import Fields, Served, read_partition
from tests.interop.test_dump_log import dump
from tests.support import data_folder
from tests.support.data_folder import MIXED, PLAIN, SETTINGS, TRIMMED
from tests.support.peer.kafka import KafkaPeer, PeerUnavailable, jars
from tests.unit.broker.context import Client, running

pytestmark = [pytest.mark.interop, pytest.mark.slow]

KAFKA = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "auto.create.topics.enable": "false",
    "log.cleaner.enable": "false",
}
THEIRS = TopicPartition("theirs", 0)
READY_TIMEOUT_S = 20
CLEAN_MARKER = ".kafka_cleanshutdown"
STATE_FILES = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint")

Records = dict[int, Fields]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our folders: `clean`, `killed`, `recovered` (with retention), `compacted`, `repaired`."""
    try:
        jars()
    except PeerUnavailable as reason:
        pytest.skip(f"Apache Kafka's tools cannot be had: {reason}")
    folder = tmp_path_factory.mktemp("folders")
    data_folder.make(folder / "clean", folder / "killed")
    shutil.copytree(folder / "killed", folder / "recovered")
    asyncio.run(recover_and_retain(folder / "recovered"))
    shutil.copytree(folder / "clean", folder / "compacted")
    for partition in (MIXED, PLAIN):
        compact(folder / "compacted", partition)
    shutil.copytree(folder / "clean", folder / "repaired")
    repair(folder / "repaired")
    return folder


async def recover_and_retain(folder: Path) -> None:
    """Start on what a killed broker left, and let retention take a segment."""
    async with running(folder, SETTINGS) as context:
        trimmed = context.broker.partitions.get(*TRIMMED)
        assert trimmed is not None
        now_ms = context.broker.clock.now_ms()
        assert trimmed.log.delete_old_segments(now_ms, trimmed.state.high_watermark) == 1


def repair(folder: Path) -> None:
    """Damage a batch of each segment of `plain`, and mend it."""
    for path in (folder / str(PLAIN)).glob("*.log"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    done = CliRunner().invoke(main, ["log", "repair", str(folder), "--yes"])
    assert done.exit_code == 0, done.output


def compact(folder: Path, partition: TopicPartition) -> None:
    """Clean a log whose broker was stopped in order, as the broker's cleaner does."""
    now_ms = int(time.time() * 1000)
    config = LogConfig(cleanup_policy=frozenset({"compact"}))
    path = str(folder / str(partition))
    log = PartitionLog.open(SystemDisk(), path, partition, config, now_ms, clean=True)
    clean_log(SystemDisk(), log, now_ms)
    log.close()


async def everything(address: str, partitions: list[TopicPartition]) -> list[Records]:
    """What a broker serves of each partition to read_committed.

    Asks again while a log seems empty: Kafka answers before its high watermarks are there.
    """
    host, _, port = address.rpartition(":")
    client = Client(*await asyncio.open_connection(host, int(port)))
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            found = [await until_served(client, partition) for partition in partitions]
    finally:
        client.writer.close()
    assert not any(served.refused for served in found), [served.refused for served in found]
    return [served.records for served in found]


async def until_served(client: Client, partition: TopicPartition) -> Served:
    while True:
        served = await read_partition(client, partition, 1)
        if served.records:
            return served
        await asyncio.sleep(0.1)  # Kafka tells nobody when a partition is ready.


async def ours(folder: Path, partitions: list[TopicPartition]) -> list[Records]:
    """What our broker serves from a folder."""
    async with running(folder, SETTINGS) as context:
        return await everything(context.broker.bootstrap_servers, partitions)


def files_of(folder: Path) -> list[Path]:
    suffixes = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    return [p for p in sorted(folder.rglob("*")) if p.suffix in suffixes and p.stat().st_size]


@pytest.mark.parametrize("stage", ["clean", "recovered", "compacted", "repaired"])
def test_every_file_is_read_and_indexes_fit_their_logs(made: Path, stage: str) -> None:
    paths = files_of(made / stage)
    assert {path.suffix for path in paths} >= {".log", ".index", ".timeindex", ".txnindex"}
    text = dump(paths, "--deep-iteration", "--verify-index-only")
    assert text.count("Dumping ") == len(paths)
    for complaint in ("isvalid: false", "Mismatches in", "Found timestamp mismatch",
                      "Found out of order", "Could not find"):  # fmt: skip
        assert complaint not in text, text
    indexes = [path for path in paths if path.suffix in (".index", ".timeindex")]
    assert dump(indexes, "--index-sanity-check").count("passed sanity check") == len(indexes)


def put(source: Path, partition: TopicPartition, target: Path, name: str) -> None:
    """Put a partition's files into the folder that another broker made for a topic `name`."""
    place = target / f"{name}-0"
    metadata = (place / "partition.metadata").read_bytes()
    shutil.rmtree(place)
    shutil.copytree(source / str(partition), place)
    (place / "partition.metadata").write_bytes(metadata)
    for checkpoint in STATE_FILES:
        offsets = parse_offsets((target / checkpoint).read_bytes()) or {}
        found = parse_offsets((source / checkpoint).read_bytes()) or {}
        offsets.pop(TopicPartition(name, 0), None)
        if partition in found:
            offsets[TopicPartition(name, 0)] = found[partition]
        (target / checkpoint).write_bytes(format_offsets(offsets))


def transact(servers: str) -> None:
    """Three transactions to `theirs`, the second one aborted, and records without one."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "theirs"})
    producer.init_transactions(30)
    for number in range(3):
        producer.begin_transaction()
        for part in range(5):
            producer.produce(THEIRS.topic, b"%d.%d" % (number, part), b"key")
        producer.flush(30)
        (producer.abort_transaction if number == 1 else producer.commit_transaction)(30)
    plain = Producer({"bootstrap.servers": servers})
    plain.produce(THEIRS.topic, b"plain", b"key")
    plain.flush(30)


@pytest.fixture(scope="module")
def peer(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaPeer]:
    """Apache Kafka with a topic of its own and one for each of ours; it is not running."""
    kafka = KafkaPeer(tmp_path_factory.mktemp("peer") / "kafka", KAFKA)
    names = [f"{stage}-{p.topic}" for stage, p in OUR_FOLDERS]
    with kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        made_topics = admin.create_topics([NewTopic(n, 1, 1) for n in (THEIRS.topic, *names)])
        for future in made_topics.values():
            future.result(30)
        transact(kafka.bootstrap_servers)
        theirs = asyncio.run(everything(kafka.bootstrap_servers, [THEIRS]))
        assert len(theirs[0]) == 11
        shutil.copytree(kafka.folder / "data", made / "theirs-killed")
        kafka.stop()
    shutil.copytree(kafka.folder / "data", made / "theirs-clean")
    yield kafka
    if kafka.process is not None and kafka.process.poll() is None:
        kafka.kill()


OUR_FOLDERS = [
    ("clean", MIXED),
    ("clean", PLAIN),
    ("clean", TRIMMED),
    ("compacted", MIXED),
    ("compacted", PLAIN),
    ("recovered", MIXED),
    ("repaired", PLAIN),
]
KILLED_FOLDERS = [("clean", MIXED), ("clean", PLAIN), ("clean", TRIMMED)]
"""Topics that get the folders of the killed broker when Kafka itself was killed."""


@pytest.mark.soak
def test_apache_kafka_serves_our_folders_and_we_serve_its_folders(
    made: Path, peer: KafkaPeer, tmp_path: Path
) -> None:
    data = peer.folder / "data"
    for stage, partition in OUR_FOLDERS:
        put(made / stage, partition, data, f"{stage}-{partition.topic}")
    assert (data / CLEAN_MARKER).exists()
    peer.start()
    check(made, peer, OUR_FOLDERS, tmp_path / "after-clean")
    peer.kill()
    for stage, partition in KILLED_FOLDERS:
        put(made / "killed", partition, data, f"{stage}-{partition.topic}")
    assert not (data / CLEAN_MARKER).exists()
    peer.start()
    killed = [("killed", partition) for _, partition in KILLED_FOLDERS]
    check(made, peer, killed, tmp_path / "after-kill", as_stage="clean")
    peer.kill()


def check(
    made: Path,
    peer: KafkaPeer,
    folders: list[tuple[str, TopicPartition]],
    scratch: Path,
    as_stage: str | None = None,
) -> None:
    """Kafka serves of each topic what our broker serves of the folder."""
    names = [TopicPartition(f"{as_stage or stage}-{p.topic}", 0) for stage, p in folders]
    served = asyncio.run(everything(peer.bootstrap_servers, names))
    for (stage, partition), records in zip(folders, served, strict=True):
        copy = scratch / stage
        if not copy.exists():
            shutil.copytree(made / stage, copy)
        (expected,) = asyncio.run(ours(copy, [partition]))
        assert expected
        assert records == expected, (stage, partition)


@pytest.mark.soak
@pytest.mark.parametrize("stage", ["theirs-clean", "theirs-killed"])
def test_we_serve_what_apache_kafka_left(
    made: Path, peer: KafkaPeer, tmp_path: Path, stage: str
) -> None:
    folder = tmp_path / "data"

    async def make_topic() -> None:
        async with (
            running(folder, SETTINGS) as context,
            Admin(context.broker.bootstrap_servers) as admin,
        ):
            await admin.create_topics([OwnTopic(THEIRS.topic, 1, 1, {})])

    asyncio.run(make_topic())
    put(made / stage, THEIRS, folder, THEIRS.topic)
    if stage == "theirs-killed":
        (folder / CLEAN_MARKER).unlink()
    (records,) = asyncio.run(ours(folder, [THEIRS]))
    values = [value for _, value, _ in records.values()]
    assert values == [b"%d.%d" % (n, part) for n in (0, 2) for part in range(5)] + [b"plain"]
