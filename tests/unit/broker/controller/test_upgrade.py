"""Stores of earlier versions: what they said stays true, wherever the upgrade was cut."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from oncelog.broker.controller.cluster import find_cluster
from oncelog.broker.controller.upgrade import upgrade_store
from oncelog.broker.membership.known_metadata import KnownMetadata
from oncelog.cli.log.check_folder import FolderCheck
from oncelog.controller import layout
from oncelog.controller.image import MetadataImage
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode, OncelogError
from oncelog.metadata.memory import MemoryStore
from oncelog.metadata.sqlite import SqliteStore
from oncelog.metadata.store import MetadataStore, StoreFailure, Write
from oncelog.storage.files import CLEAN_SHUTDOWN_NAME, LIFE_NAME
from oncelog.storage.identity import FolderMismatch
from oncelog.storage.lives import format_clean_shutdown
from tests.unit.broker.context import running
from tests.unit.broker.controller.earlier import (
    COMMITS,
    STORES,
    value_of,
    write_rows,
    write_store,
)
from tests.unit.broker.raw import fetch, produce
from tests.unit.broker.support import batch

NEWEST = "7d979bc7"


async def image_of(store: MetadataStore) -> MetadataImage:
    known = KnownMetadata(store, 1)
    await known.read()
    return known.image


async def opened(path: Path) -> MetadataImage:
    """What a broker of this version reads of the store at its start."""
    store = SqliteStore(str(path))
    try:
        await upgrade_store(store)
        return await image_of(store)
    finally:
        await store.close()


def told(image: MetadataImage) -> dict[str, Any]:
    """What an image says, in the words of the earlier format."""
    return {
        topic.name: {
            "topic_id": str(topic.topic_id),
            "config": dict(topic.config),
            "partitions": [
                {
                    "leader": partition.leader,
                    "leader_epoch": partition.leader_epoch,
                    "isr": list(partition.isr),
                    "replicas": list(partition.replicas),
                }
                for partition in topic.partitions
            ],
        }
        for topic in image.topics.values()
    }


def topics_of(commit: str) -> dict[str, Any]:
    return {
        path.removeprefix("/topics/"): json.loads(value)
        for path, value, *_ in STORES[commit]
        if path.startswith("/topics/") and value is not None
    }


@pytest.mark.parametrize("commit", COMMITS)
async def test_topics_of_an_earlier_version_stay_as_they_were(commit: str, tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    write_store(commit, path)
    image = await opened(path)
    assert told(image) == topics_of(commit)
    assert len(image.topics) == 4
    assert image.topics["plain"].config == {"retention.ms": "86400000"}
    assert await opened(path) is not image


async def test_a_store_of_another_cluster_is_refused_before_it_is_upgraded(
    tmp_path: Path,
) -> None:
    path = tmp_path / "metadata.sqlite"
    write_store(NEWEST, path)
    store = SqliteStore(str(path))
    before = await store.list("")
    with pytest.raises(FolderMismatch, match="belongs to cluster other, the metadata to "):
        await find_cluster(store, "other", "fresh", has_logs=True)
    assert await store.list("") == before
    cluster_id = value_of(NEWEST, "/cluster")
    assert await find_cluster(store, cluster_id, "fresh", has_logs=True) == cluster_id
    await store.close()


async def test_all_else_in_a_store_of_an_earlier_version_stays(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    write_store(NEWEST, path)
    image = await opened(path)
    (deleted,) = json.loads(value_of(NEWEST, "/deleted-topics/gone"))
    assert image.deleted == {"gone": {UUID(deleted): ()}}
    assert image.directories == {1: frozenset(json.loads(value_of(NEWEST, "/directories/1")))}
    assert image.chosen_features == {"transaction.version": 1}
    assert image.group_configs == {"a/b": {"consumer.session.timeout.ms": "50000"}}
    store = SqliteStore(str(path))
    found = await store.list("")
    await store.close()
    cluster_id = layout.decode_cluster_id(found[layout.CLUSTER_PATH].value)
    assert cluster_id == value_of(NEWEST, "/cluster")
    assert found[layout.PRODUCER_IDS_PATH].value == b"1000"
    epoch = value_of(NEWEST, "/controller/epoch").encode()
    assert found[layout.CONTROLLER_EPOCH_PATH].value == epoch
    assert found[layout.FORMAT_PATH].value == b"2"
    assert all(path.startswith(("/oncelog/", "/brokers/", "/c")) for path in found)


async def test_an_upgraded_store_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    write_store(NEWEST, path)
    first, second = [await opened(path) for _ in range(2)]
    assert first.revision == second.revision
    assert told(first) == told(second)


class Raced(MemoryStore):
    """Another broker does something right after the first look at what there is."""

    def __init__(self, act: Callable[[MemoryStore, dict[str, Any]], Awaitable[None]]) -> None:
        super().__init__()
        self._act = act
        self._is_first = True

    async def list(self, prefix: str) -> dict[str, Any]:
        found = await super().list(prefix)
        if self._is_first:
            self._is_first = False
            await self._act(self, found)
        return found


async def upgrades(store: MemoryStore, _: dict[str, Any]) -> None:
    """What another broker of this version does."""
    await upgrade_store(store)


async def writes(store: MemoryStore, found: dict[str, Any]) -> None:
    """What a broker of the earlier version does."""
    path, stored = next(iter(found.items()))
    await store.write_all([Write(path, stored.value, stored.version)])


@pytest.mark.parametrize(("act", "revision"), [(upgrades, 2), (writes, 3)])
async def test_an_upgrade_that_another_broker_comes_before_is_made_once(
    act: Callable[[MemoryStore, dict[str, Any]], Awaitable[None]], revision: int
) -> None:
    store = Raced(act)
    rows = [(path, value) for path, value, *_ in STORES[NEWEST] if value is not None]
    await store.write_all([Write(path, value.encode(), 0) for path, value in rows])
    await upgrade_store(store)
    assert told(await image_of(store)) == topics_of(NEWEST)
    assert (await store.changes(0)).revision == revision


@pytest.mark.parametrize("commit", COMMITS)
async def test_a_kill_at_any_statement_of_the_upgrade_loses_nothing(
    commit: str, tmp_path: Path
) -> None:
    """The files before each statement are what a process killed there leaves."""
    path = tmp_path / "metadata.sqlite"
    write_store(commit, path)
    killed: list[Path] = []

    def keep(_statement: str) -> None:
        killed.append(tmp_path / str(len(killed)))
        killed[-1].mkdir()
        for file in tmp_path.glob("metadata.sqlite*"):
            shutil.copy(file, killed[-1])

    store = SqliteStore(str(path))
    await store._run(lambda db: db.set_trace_callback(keep))
    await upgrade_store(store)
    await store._run(lambda db: db.set_trace_callback(None))
    keep("")
    await store.close()
    assert len(killed) > 20
    for left in killed:
        assert told(await opened(left / "metadata.sqlite")) == topics_of(commit)


@pytest.mark.parametrize("commit", COMMITS)
async def test_a_kill_at_any_write_of_the_upgrade_loses_nothing(
    commit: str, tmp_path: Path
) -> None:
    """SQLite appends its pages to the log beside the file, one write after the other."""
    path = tmp_path / "metadata.sqlite"
    write_store(commit, path)
    log = path.with_name("metadata.sqlite-wal")
    store = SqliteStore(str(path))
    await store.get("/")  # Its own marks of the schema are another step.
    before_size = log.stat().st_size if log.exists() else 0
    await upgrade_store(store)
    main, written = path.read_bytes(), log.read_bytes()
    await store.close()
    page_size = int.from_bytes(main[16:18], "big")
    ends = range(before_size, len(written) + 1, (24 + page_size) // 2)
    assert len(ends) >= 4
    formats = set()
    for end in (*ends, len(written)):
        left = tmp_path / str(end) / "metadata.sqlite"
        left.parent.mkdir(exist_ok=True)
        left.write_bytes(main)
        left.with_name(log.name).write_bytes(written[:end])
        database = sqlite3.connect(left)
        query = "SELECT count(*) FROM node WHERE path = ?"
        formats.add(database.execute(query, (layout.FORMAT_PATH,)).fetchone())
        database.close()
        left.write_bytes(main)
        left.with_name(log.name).write_bytes(written[:end])
        assert told(await opened(left)) == topics_of(commit)
    assert len(formats) == 2, "both what was before the upgrade and what is after it"


async def test_a_store_of_a_newer_version_is_refused_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    write_store(NEWEST, path)
    await opened(path)
    store = SqliteStore(str(path))
    await store.write_all([Write(layout.FORMAT_PATH, b"3", 1)])
    with pytest.raises(OncelogError, match=r"has format 3 of a newer Oncelog; .* 1 to 2: use"):
        await upgrade_store(store)
    await store.write_all([Write(layout.FORMAT_PATH, b"two", 2)])
    with pytest.raises(OncelogError, match=f"{layout.FORMAT_PATH} is damaged"):
        await upgrade_store(store)
    await store.close()


async def test_an_earlier_version_refuses_an_upgraded_store(tmp_path: Path) -> None:
    """It refuses a file whose `user_version` is above 1, before it reads anything else."""
    path = tmp_path / "metadata.sqlite"
    write_store(NEWEST, path)
    await opened(path)
    database = sqlite3.connect(path)
    assert database.execute("PRAGMA user_version").fetchone() == (3,)
    database.execute("PRAGMA user_version=4")
    database.close()
    with pytest.raises(StoreFailure, match="was written by a newer Oncelog"):
        await opened(path)


@pytest.mark.parametrize("value", [b"", b"{}", b'{"topic_id":"x"}', b"\xff", b"[]"])
async def test_damage_in_an_earlier_store_is_refused_and_stays_as_it_is(value: bytes) -> None:
    store = MemoryStore()
    await store.write_all([Write("/cluster", b"c", 0), Write("/topics/t", value, 0)])
    with pytest.raises(OncelogError, match="the metadata at /topics/t is damaged"):
        await upgrade_store(store)
    assert list(await store.list("")) == ["/cluster", "/topics/t"]


async def test_what_no_version_knows_stays_where_it_is() -> None:
    store = MemoryStore()
    await store.write_all([Write("/cluster", b"c", 0), Write("/else/x", b"1", 0)])
    await upgrade_store(store)
    assert list(await store.list("")) == [layout.CLUSTER_PATH, "/else/x", layout.FORMAT_PATH]


@pytest.mark.parametrize("is_upgraded", [False, True])
async def test_a_check_of_a_folder_knows_the_topics_of_either_format(
    tmp_path: Path, is_upgraded: bool
) -> None:
    path = tmp_path / "metadata.sqlite"
    write_store(NEWEST, path)
    if is_upgraded:
        await opened(path)
    (tmp_path / "plain-0").mkdir()
    (tmp_path / "unknown-0").mkdir()
    said = [finding.text for finding in FolderCheck(str(tmp_path)).run()]
    assert "the metadata knows no topic unknown" in said
    assert "the metadata knows no topic plain" not in said


async def test_a_broker_serves_what_it_had_before_the_upgrade(tmp_path: Path) -> None:
    """Ids and records are the same, and what was deleted stays so."""
    async with running(tmp_path) as context:
        controller = context.broker.controller
        await controller.create_topics([TopicToCreate("t"), TopicToCreate("gone")])
        client = await context.connect()
        assert (await produce(client, 9, batch(3))).error == ErrorCode.none
        before = (await fetch(client)).records
        gone = context.broker.image.topics["gone"].topic_id
        assert await controller.delete_topic(gone) is ErrorCode.none
        image = context.broker.image
    write_earlier(image, tmp_path / "metadata.sqlite")
    # An earlier version numbered no lives.
    (tmp_path / CLEAN_SHUTDOWN_NAME).write_bytes(format_clean_shutdown(-1))
    (tmp_path / LIFE_NAME).unlink(missing_ok=True)
    async with running(tmp_path) as context:
        assert context.broker.image.topics == image.topics
        assert set(context.broker.image.deleted["gone"]) == {gone}
        client = await context.connect()
        assert bytes((await fetch(client)).records) == bytes(before)
        assert (await produce(client, 9, batch(1))).error == ErrorCode.none


def write_earlier(image: MetadataImage, path: Path) -> None:
    """Replace a store by one that says the same in format 1."""
    rows: dict[str, str] = {
        "/cluster": image.cluster_id,
        "/controller/epoch": "1",
        "/directories/1": json.dumps(sorted(image.directories[1])),
    }
    for name, topic in told(image).items():
        rows[f"/topics/{name}"] = json.dumps(topic)
    for name, ids in image.deleted.items():
        rows[f"/deleted-topics/{name}"] = json.dumps([str(topic_id) for topic_id in ids])
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
    write_rows([(name, value, 1, index) for index, (name, value) in enumerate(rows.items())], path)


async def test_a_check_says_that_a_store_has_no_entries(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "metadata.sqlite"))
    assert await store.get("/") is None
    await store.close()
    said = [finding.text for finding in FolderCheck(str(tmp_path)).run()]
    assert any(text.startswith("has no entries: oncelog.metadata.file") for text in said)
