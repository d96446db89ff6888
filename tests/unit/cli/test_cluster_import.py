"""`oncelog cluster import`: a broker that was alone goes on with its topics on ZooKeeper."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from click.testing import CliRunner
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

import oncelog
from oncelog.broker.broker import Broker
from oncelog.cli.main import main
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import OncelogError
from oncelog.metadata.sqlite import SqliteStore
from oncelog.metadata.zookeeper import ZooKeeperStore
from oncelog.storage.identity import FolderMismatch
from tests.support.zookeeper import chroot, one_server, shared_server
from tests.unit.metadata.contract import put

pytestmark = pytest.mark.slow

SETTINGS = {"listeners": "PLAINTEXT://127.0.0.1:0", "offsets.topic.num.partitions": "1"}


class Running:
    """A broker on a folder while the block runs."""

    def __init__(self, folder: Path, **settings: str) -> None:
        given = {key.replace("_", "."): value for key, value in settings.items()}
        self.broker = Broker(BrokerConfig({**SETTINGS, "log.dirs": str(folder), **given}))

    async def __aenter__(self) -> Broker:
        await self.broker.start()
        return self.broker

    async def __aexit__(self, *error: object) -> None:
        await self.broker.stop()


async def produce(broker: Broker, value: bytes) -> None:
    async with oncelog.Producer(broker.bootstrap_servers) as producer:
        await producer.send("orders", value)


async def values(broker: Broker, count: int) -> list[bytes | None]:
    async with oncelog.Consumer(broker.bootstrap_servers) as consumer:
        orders = oncelog.TopicPartition("orders", 0)
        consumer.assign([orders])
        consumer.seek(orders, 0)
        found: list[bytes | None] = []
        while len(found) < count:
            found += [record.value for record in await consumer.poll(1_000)]
        return found[:count]


def test_metadata_is_moved_to_nodes_for_brokers_alone(tmp_path: Path) -> None:
    folder, connect = tmp_path / "data", chroot()
    properties = tmp_path / "server.properties"
    properties.write_text("zookeeper.set.acl=true\n")

    async def alone() -> None:
        async with Running(folder):
            pass

    asyncio.run(alone())
    options = ("--data-dir", str(folder), "--zookeeper", connect, "--config", str(properties))
    code, said = moved(*options)
    assert code == 1
    assert "zookeeper.set.acl needs oncelog.zookeeper.digest=USER:PASSWORD" in said
    assert moved(*options, "--set", "oncelog.zookeeper.digest=brokers:geheim")[0] == 0
    stranger = KazooClient(shared_server().bootstrap_servers)
    stranger.start()
    with pytest.raises(NoAuthError):
        stranger.get_children(f"/{connect.partition('/')[2]}/oncelog")
    stranger.stop()
    stranger.close()


def moved(*options: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["cluster", "import", *options])
    return result.exit_code, result.output


def test_a_broker_goes_on_with_its_topics_and_records_on_zookeeper(tmp_path: Path) -> None:
    folder, connect = tmp_path / "data", chroot()

    async def alone() -> None:
        async with Running(folder) as broker:
            await produce(broker, b"before")

    async def with_zookeeper() -> None:
        async with Running(folder, zookeeper_connect=connect) as broker:
            await produce(broker, b"after")
            assert await values(broker, 2) == [b"before", b"after"]

    asyncio.run(alone())
    options = ("--data-dir", str(folder), "--zookeeper", connect)
    code, said = moved(*options)
    assert (code, said.splitlines()) == (
        0,
        [
            f"moved the metadata to {connect}; {folder}/metadata.sqlite is "
            f"{folder}/metadata.sqlite.imported now",
            f"start the broker with zookeeper.connect={connect}",
        ],
    )
    assert not list(folder.glob("metadata.sqlite-wal"))
    for _ in range(2):
        asyncio.run(with_zookeeper())
        code, said = moved(*options)
        assert code == 1
        assert "its metadata was moved to ZooKeeper already" in said


def test_a_move_whose_last_step_was_lost_is_ended_by_the_next(tmp_path: Path) -> None:
    folder, connect = tmp_path / "data", chroot()

    async def alone() -> None:
        async with Running(folder):
            pass

    async def refused() -> None:
        with pytest.raises(OncelogError, match="move it there by `oncelog cluster import"):
            async with Running(folder, zookeeper_connect=connect):
                pass

    asyncio.run(alone())
    options = ("--data-dir", str(folder), "--zookeeper", connect)
    assert moved(*options)[0] == 0
    # As if it had been killed before it renamed the file.
    (folder / "metadata.sqlite.imported").rename(folder / "metadata.sqlite")
    asyncio.run(refused())
    code, said = moved(*options)
    assert code == 0
    assert said.startswith(f"{connect} has all of it since an import that was interrupted\n")
    assert not (folder / "metadata.sqlite").exists()


async def test_the_metadata_of_a_broker_that_runs_is_not_moved(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    command = [sys.executable, "-m", "oncelog", "cluster", "import"]
    options = ["--data-dir", str(folder), "--zookeeper", chroot()]
    async with Running(folder):
        process = await asyncio.create_subprocess_exec(*command, *options, stderr=PIPE)
        _, said = await process.communicate()
    assert process.returncode == 1
    assert b"is in use by another broker" in said
    assert (folder / "metadata.sqlite").exists()


def test_a_chroot_with_a_cluster_in_it_takes_no_other(tmp_path: Path) -> None:
    folder, connect = tmp_path / "data", chroot()

    async def prepare() -> None:
        async with Running(folder):
            pass
        store = ZooKeeperStore(connect)
        await put(store, "/oncelog/format", b"2")
        await store.close()

    asyncio.run(prepare())
    code, said = moved("--data-dir", str(folder), "--zookeeper", connect)
    assert code == 1
    assert "has a cluster's metadata there already" in said
    assert (folder / "metadata.sqlite").exists()


@pytest.mark.damages
def test_metadata_that_another_broker_uses_is_not_moved(tmp_path: Path) -> None:
    folder = tmp_path / "data"

    async def prepare() -> None:
        async with Running(folder):
            pass
        store = SqliteStore(str(folder / "metadata.sqlite"))
        await put(store, "/brokers/ids/7", b"{}")
        await store.close()

    asyncio.run(prepare())
    code, said = moved("--data-dir", str(folder), "--zookeeper", chroot())
    assert code == 1
    assert f"broker 7 is registered in {folder}/metadata.sqlite: stop it in order first" in said
    assert (folder / "metadata.sqlite").exists()


def test_folders_without_metadata_are_refused(tmp_path: Path) -> None:
    code, said = moved("--data-dir", str(tmp_path), "--zookeeper", "127.0.0.1:1")
    assert code == 1
    assert "not the log directories of one broker" in said


async def test_a_zookeeper_that_lost_its_data_takes_no_topic_from_a_broker(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with one_server() as server:
        async with Running(folder, zookeeper_connect=server.bootstrap_servers) as broker:
            await produce(broker, b"kept")
        server.kill()
        server.lose_data()
        server.start()
        with pytest.raises(FolderMismatch, match="the metadata that names their topics is gone"):
            async with Running(folder, zookeeper_connect=server.bootstrap_servers):
                pass
    assert list(folder.glob("orders-0/*.log"))
