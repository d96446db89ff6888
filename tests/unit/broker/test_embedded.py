"""The broker inside a Python process, with and without a loop of the caller's."""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

import oncelog
from oncelog.broker import apis
from oncelog.broker.broker import Broker
from oncelog.broker.embedded import EmbeddedBroker
from oncelog.broker.net.request import Api
from oncelog.controller import layout
from oncelog.controller.topics import TopicToCreate
from oncelog.core.config import BrokerConfig
from oncelog.core.config_definition import ConfigError
from oncelog.core.errors import ErrorCode, InvariantViolation
from oncelog.core.pending import Pending, unchanged
from oncelog.metadata import MemoryStore, Write
from oncelog.protocol import codec
from oncelog.protocol.api import ApiKey
from oncelog.runtime.disk import FolderInUse
from oncelog.storage import FolderMismatch
from oncelog.testing import ControlledBroker
from tests.support.logged import said_by
from tests.unit.broker.context import Running, running


def reachable(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def test_with_runs_a_broker_in_a_thread_and_stops_it() -> None:
    with EmbeddedBroker() as broker:
        address = broker.bootstrap_servers
        folder = Path(broker.broker.config.data_dirs[0])
        assert reachable(address)
        assert folder.exists()
    assert not reachable(address)
    assert not folder.exists()
    with pytest.raises(RuntimeError, match="not running"):
        _ = broker.bootstrap_servers


@pytest.mark.parametrize("kind", [EmbeddedBroker, ControlledBroker])
def test_only_a_broker_on_a_folder_of_yours_syncs(
    tmp_path: Path, kind: type[EmbeddedBroker]
) -> None:
    def syncs(broker: Broker) -> tuple[object, object]:
        return broker.disk.syncs, broker.store._syncs  # type: ignore[attr-defined]

    config = {"log.dirs": tmp_path / "b"}
    for own in (kind(tmp_path / "a"), kind(config=config)):
        with own as broker:
            assert broker.call(syncs) == (True, True)
    with kind() as broker:
        assert broker.call(syncs) == (False, False)


def test_the_data_folder_may_be_a_path_object(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        assert broker.data_dir == str(tmp_path)
        assert (tmp_path / "meta.properties").exists()


def test_a_comma_in_the_data_folder_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(oncelog.ConfigError, match="comma"), EmbeddedBroker(tmp_path / "a,b"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("key", ["log.dir", "log.dirs"])
def test_folders_of_the_config_are_those_of_the_broker(tmp_path: Path, key: str) -> None:
    first, other = tmp_path / "first", tmp_path / "other"
    with EmbeddedBroker(config={key: f"{first},{other}" if key == "log.dirs" else first}) as broker:
        assert broker.data_dir == str(first)
        assert broker.call(lambda inside: inside.config.data_dirs)[0] == str(first)
    assert (first / "meta.properties").exists()


def test_a_data_folder_that_is_given_twice_or_has_no_name_is_refused(tmp_path: Path) -> None:
    twice = EmbeddedBroker(tmp_path / "a", config={"log.dirs": tmp_path / "b"})
    with pytest.raises(oncelog.ConfigError, match="given twice"), twice:
        pass
    with pytest.raises(oncelog.ConfigError, match="no name"), EmbeddedBroker(""):
        pass
    assert list(tmp_path.iterdir()) == []


def test_entering_twice_is_refused_and_the_running_broker_stays() -> None:
    with EmbeddedBroker() as broker:
        folder = Path(broker.data_dir)
        with pytest.raises(RuntimeError, match="running already"):
            broker.__enter__()
        assert (folder / "meta.properties").exists()
        assert reachable(broker.bootstrap_servers)
    assert not folder.exists()


async def test_entering_twice_is_refused_in_a_loop_too() -> None:
    async with EmbeddedBroker() as broker:
        with pytest.raises(RuntimeError, match="running already"):
            await broker.__aenter__()
        with pytest.raises(RuntimeError, match="running already"):
            broker.__enter__()
        assert (Path(broker.data_dir) / "meta.properties").exists()
        assert reachable(broker.bootstrap_servers)


async def test_a_blocking_client_works_in_the_loop_that_entered_the_broker() -> None:
    async with EmbeddedBroker() as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=5) as client:
            request = codec.encode_request(
                ApiKey.METADATA, 12, 1, "test", codec.request_class(ApiKey.METADATA)(topics=())
            )
            client.sendall(len(request).to_bytes(4, "big") + request)
            assert client.recv(4)


def test_what_went_wrong_is_a_public_error_of_one_sentence(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        with (
            pytest.raises(oncelog.FolderInUse, match=r"^the log directory .* is in use by another"),
            EmbeddedBroker(tmp_path),
        ):
            pass
        sentence = rf"^cannot listen on 127\.0\.0\.1:{port}: the address is in use by another"
        with pytest.raises(oncelog.AddressUnavailable, match=sentence), EmbeddedBroker(port=port):
            pass
    with pytest.raises(oncelog.ConfigError), EmbeddedBroker(config={"num.partitions": "many"}):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(oncelog.StorageFailure), EmbeddedBroker(tmp_path / "file"):
        pass
    for error in ("AddressUnavailable", "ConfigError", "FolderInUse", "StorageFailure"):
        assert issubclass(getattr(oncelog, error), oncelog.OncelogError)


def test_defaults_for_tests_hold_until_they_are_set() -> None:
    with EmbeddedBroker() as broker:
        config = broker.broker.config
        assert config.get_int("group.initial.rebalance.delay.ms") == 0
    with EmbeddedBroker(config={"group.initial.rebalance.delay.ms": 500}) as broker:
        config = broker.broker.config
        assert config.get_int("group.initial.rebalance.delay.ms") == 500


def test_entered_again_it_takes_its_port_again(tmp_path: Path) -> None:
    embedded = EmbeddedBroker(str(tmp_path))
    with embedded as broker:
        address = broker.bootstrap_servers
    with embedded as broker:
        assert broker.bootstrap_servers == address


def test_what_keeps_it_from_starting_is_raised_where_it_was_started(tmp_path: Path) -> None:
    with EmbeddedBroker(str(tmp_path)) as running_broker:
        with pytest.raises(FolderInUse), EmbeddedBroker(str(tmp_path)):
            pass
        port = int(running_broker.bootstrap_servers.rpartition(":")[2])
        with pytest.raises(OSError, match="in use"), EmbeddedBroker(port=port):
            pass
    with pytest.raises(ConfigError, match=r"foo\.bar"), EmbeddedBroker(config={"foo.bar": 1}):
        pass


async def test_async_with_runs_it_in_the_callers_loop(tmp_path: Path) -> None:
    async with EmbeddedBroker(str(tmp_path), config={"num.partitions": 4}) as broker:
        assert reachable(broker.bootstrap_servers)
        assert broker.broker.config.get_int("num.partitions") == 4
    assert (tmp_path / ".kafka_cleanshutdown").exists()


async def test_clients_are_told_the_advertised_address_with_the_real_port(tmp_path: Path) -> None:
    config = {"advertised.listeners": "PLAINTEXT://example.org:0"}
    async with EmbeddedBroker(str(tmp_path), config=config) as broker:
        assert broker.bootstrap_servers == f"example.org:{broker.broker.server.port}"


@pytest.mark.damages
async def test_a_folder_whose_metadata_is_gone_is_not_served(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        await client.ask(ApiKey.FIND_COORDINATOR, coordinator_keys=("g",), key_type=0)
    (tmp_path / "metadata.sqlite").unlink()
    with pytest.raises(FolderMismatch, match="metadata"):
        async with running(tmp_path):
            pass


async def test_without_the_first_folder_which_holds_the_metadata_the_others_stay_as_they_are(
    tmp_path: Path,
) -> None:
    folders = {"log.dirs": f"{tmp_path}/a,{tmp_path}/b"}
    async with running(tmp_path, folders) as context:
        await context.broker.controller.create_topics([TopicToCreate("t"), TopicToCreate("u")])
    kept = {path: path.read_bytes() for path in (tmp_path / "b").rglob("*") if path.is_file()}
    assert any(path.suffix == ".log" for path in kept)
    shutil.rmtree(tmp_path / "a")
    for _ in range(2):
        (tmp_path / "a").mkdir(exist_ok=True)
        with pytest.raises(FolderMismatch, match="metadata that names their topics is gone"):
            async with running(tmp_path, folders):
                pass
        assert {path: path.read_bytes() for path in kept} == kept


@pytest.mark.parametrize("name", ["cluster.sqlite", ":memory:"])
async def test_the_metadata_is_where_the_setting_says(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = {"log.dirs": str(tmp_path / "data"), "oncelog.metadata.file": name}
    for is_first in (True, False):
        async with running(tmp_path, settings) as context:
            if is_first:
                await context.broker.controller.create_topics([TopicToCreate("t")])
            assert context.broker.image.topic("t") is not None
    assert (tmp_path / name).exists()
    assert not (tmp_path / "data" / "metadata.sqlite").exists()
    with pytest.raises(FolderMismatch, match="metadata that names their topics is gone"):
        async with running(tmp_path, settings | {"oncelog.metadata.file": ""}):
            pass


async def test_a_new_folder_joins_the_stores_cluster_and_no_other_later(tmp_path: Path) -> None:
    settings = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
    for cluster_id in ("one", "another"):
        store = MemoryStore()
        value = layout.encode_cluster_id(cluster_id)
        await store.write_all([Write(layout.CLUSTER_PATH, value, 0)])
        broker = Broker(BrokerConfig(settings), store=store)
        if cluster_id == "one":
            await broker.start()
            assert broker.image.cluster_id == "one"
            await broker.stop()
        else:
            with pytest.raises(FolderMismatch, match="belongs to cluster one, the metadata to an"):
                await broker.start()
    assert "cluster.id=one" in (tmp_path / "meta.properties").read_text()


async def test_a_broken_invariant_stops_the_broker_without_a_clean_mark(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        with caplog.at_level(logging.CRITICAL):
            context.broker.stop_because(InvariantViolation("INV-1: for the test"))
        assert await client.receive() is None
        await context.broker.wait_until_stop_is_requested()
        assert "INV-1: for the test" in caplog.text
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def replace_handler(context: Running, monkeypatch: pytest.MonkeyPatch, handle: Any) -> None:
    """Have DescribeCluster handled by the test, also where it was asked for before."""
    api = Api(ApiKey.DESCRIBE_CLUSTER, handle, reads_bytes=False)
    monkeypatch.setitem(apis._found, ApiKey.DESCRIBE_CLUSTER, api)
    context.broker.dispatcher.meters.clear()


async def test_a_handler_that_breaks_an_invariant_stops_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()

        async def broken(_context: object, _request: object) -> None:
            raise InvariantViolation("INV-7: for the test")

        replace_handler(context, monkeypatch, broken)
        with pytest.raises(AssertionError, match="closed"):
            await client.ask(ApiKey.DESCRIBE_CLUSTER, endpoint_type=1)
        await context.broker.wait_until_stop_is_requested()
        assert isinstance(context.broker.stopped_because, InvariantViolation)


async def test_a_pending_reply_that_cannot_be_encoded_costs_its_connection_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        parked: list[Pending[object]] = []

        def park(_context: object, _request: object) -> Pending[object]:
            parked.append(Pending(unchanged, holds_back=False))
            return parked[0]

        replace_handler(context, monkeypatch, park)
        asking = asyncio.create_task(client.ask(ApiKey.DESCRIBE_CLUSTER, endpoint_type=1))
        while not parked:  # noqa: ASYNC110 - nobody announces it
            await asyncio.sleep(0)
        parked[0].complete(object())
        with pytest.raises(AssertionError, match="closed"):
            await asking
        assert await (await context.connect()).ask(ApiKey.METADATA, topics=())


async def test_a_failing_handler_costs_its_connection_and_one_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        assert (await client.ask(ApiKey.DESCRIBE_CLUSTER, endpoint_type=1)).error_code is (
            ErrorCode.none
        )

        def broken(_context: object, _request: object) -> None:
            raise KeyError("our bug")

        replace_handler(context, monkeypatch, broken)
        with caplog.at_level(logging.ERROR), pytest.raises(AssertionError, match="closed"):
            await client.ask(ApiKey.DESCRIBE_CLUSTER, endpoint_type=1)
        (record,) = said_by(caplog)
        assert record.exc_info is not None
        assert "DESCRIBE_CLUSTER" in record.getMessage()
        assert await (await context.connect()).ask(ApiKey.METADATA, topics=())
