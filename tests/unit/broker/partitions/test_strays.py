"""Folders at the start, held against the metadata: deletions are finished, strays kept (D14)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from oncelog.controller import layout
from oncelog.controller.image import ImageDelta
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.metadata.sqlite import SqliteStore
from oncelog.metadata.store import Stored, StoreFailure, Write
from oncelog.protocol.api import ApiKey
from oncelog.storage.checkpoints import format_partition_metadata
from tests.support.logged import said_by
from tests.unit.broker.context import Running, running
from tests.unit.broker.raw import fetch, produce, until, values
from tests.unit.broker.support import batch

Damage = Callable[[Path], None]


async def fill(folder: Path) -> UUID:
    """A topic `t` with three acknowledged records in a folder that was closed in order."""
    async with running(folder) as context:
        (made,) = await context.broker.controller.create_topics([TopicToCreate("t")])
        client = await context.connect()
        for _ in range(3):
            await produce(client, 9, batch(1))
        assert made.topic is not None
        return made.topic.topic_id


def log_bytes(folder: Path) -> bytes:
    (path,) = folder.glob("*.log")
    return path.read_bytes()


def named(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern))


async def test_a_flipped_bit_in_partition_metadata_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic_id = await fill(tmp_path)
    before = log_bytes(tmp_path / "t-0")
    flipped = UUID(int=topic_id.int ^ 1 << 60)
    metadata = tmp_path / "t-0" / "partition.metadata"
    metadata.write_bytes(format_partition_metadata(flipped))
    for _ in range(2):
        async with running(tmp_path) as context:
            assert (await fetch(await context.connect(), offset=0)).high_watermark == 0
    (stray,) = named(tmp_path, "t-0.*-stray")
    assert log_bytes(stray) == before
    (error,) = [record for record in said_by(caplog) if record.levelno == logging.ERROR]
    assert f"{tmp_path / 't-0'} is kept aside as {stray}: it is of topic id" in error.getMessage()
    assert f"the topic t has the id {topic_id}" in error.getMessage()


async def test_a_topic_that_the_metadata_lost_is_kept_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic_id = await fill(tmp_path)
    before = log_bytes(tmp_path / "t-0")
    async with running(tmp_path / "other") as context:
        cluster = context.broker.image.cluster_id
    meta = (tmp_path / "meta.properties").read_text().splitlines()
    meta[1] = f"cluster.id={cluster}"
    (tmp_path / "meta.properties").write_text("\n".join(meta) + "\n")
    for path in named(tmp_path, "metadata.sqlite*"):
        path.unlink()
    (tmp_path / "other" / "metadata.sqlite").rename(tmp_path / "metadata.sqlite")
    async with running(tmp_path):
        pass
    assert log_bytes(tmp_path / f"t-0.{topic_id.hex}-stray") == before
    assert "the metadata knows no topic t" in caplog.text


async def test_a_partition_beyond_the_topics_count_is_kept_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic_id = await fill(tmp_path)
    (tmp_path / "t-0").rename(tmp_path / "t-7")
    async with running(tmp_path):
        pass
    assert (tmp_path / f"t-7.{topic_id.hex}-stray").exists()
    assert "the topic t has 1 partitions" in caplog.text


async def test_a_note_that_power_took_does_not_make_a_stray(tmp_path: Path) -> None:
    await fill(tmp_path)
    (tmp_path / "t-0" / "partition.metadata").write_bytes(b"")
    async with running(tmp_path) as context:
        found = await fetch(await context.connect(), offset=0)
        assert len(values(found.records)) == 3
    assert named(tmp_path, "*-stray") == []


async def nobody_follows(delta: ImageDelta) -> None:
    return None


async def delete_without_folders(context: Running, topic_id: UUID) -> None:
    """Record the deletion, and die before anything is done about the folders."""
    context.broker.feed._apply = nobody_follows
    assert await context.broker.controller.delete_topic(topic_id) is ErrorCode.none
    context.broker.logs.close = context.broker.logs.abandon  # type: ignore[assignment]


async def test_a_recorded_deletion_is_finished_after_a_crash(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic_id = await fill(tmp_path)
    async with running(tmp_path) as context:
        await delete_without_folders(context, topic_id)
    assert (tmp_path / "t-0").exists()
    async with running(tmp_path) as context:
        await until(lambda: named(tmp_path, "t-0*") == [])
        while context.broker.image.deleted:
            await context.broker.clock.sleep(1)
        assert await context.broker.store.list("/oncelog/deleted-topics/") == {}
    assert "kept aside" not in caplog.text


async def test_a_recorded_deletion_spares_the_topic_made_again_under_the_name(
    tmp_path: Path,
) -> None:
    topic_id = await fill(tmp_path)
    async with running(tmp_path) as context:
        await delete_without_folders(context, topic_id)
        (made,) = await context.broker.controller.create_topics([TopicToCreate("t")])
    async with running(tmp_path) as context:
        assert (await fetch(await context.connect(), offset=0)).high_watermark == 0
        held = context.broker.partitions.get("t", 0)
        assert held is not None
        assert made.topic is not None
        assert held.state.topic_id == made.topic.topic_id


@pytest.mark.damages
async def test_a_deletion_is_remembered_until_its_folders_are_gone(tmp_path: Path) -> None:
    topic_id = await fill(tmp_path)
    async with running(tmp_path) as context:
        client = await context.connect()
        logs = context.broker.logs
        context.broker.partitions._logs.delete = lambda topic_partition: None  # type: ignore[method-assign]
        assert await context.broker.controller.delete_topic(topic_id) is ErrorCode.none
        stored = await context.broker.store.list("/oncelog/deleted-topics/")
        assert stored == {"/oncelog/deleted-topics/t": Stored(f'{{"{topic_id}":[1]}}'.encode(), 1)}
        assert len(logs) == 1
        response = await client.ask(ApiKey.METADATA, topics=None)
        assert [topic.name for topic in response.topics] == []


@pytest.mark.damages
@pytest.mark.parametrize("value", [b"", b"{}", b'{"topic_id":"x"}', b"\xff"])
@pytest.mark.parametrize("path", [layout.topic_path("t"), layout.state_path("t", 0)])
async def test_damaged_metadata_of_a_topic_is_refused_in_one_sentence(
    tmp_path: Path, path: str, value: bytes
) -> None:
    await fill(tmp_path)
    await check_refusal(tmp_path, path, value)


@pytest.mark.damages
async def test_a_partition_whose_state_is_gone_is_refused_and_not_deleted(tmp_path: Path) -> None:
    """Absence is no deletion (D14): the topic is named, so its state is lost."""
    await fill(tmp_path)
    await check_refusal(tmp_path, layout.state_path("t", 0), None)


async def check_refusal(folder: Path, path: str, value: bytes | None) -> None:
    before = log_bytes(folder / "t-0")
    store = SqliteStore(str(folder / "metadata.sqlite"))
    stored = await store.get(path)
    assert stored is not None
    await store.write_all([Write(path, value, stored.version)])
    await store.close()
    with pytest.raises(StoreFailure, match=rf"the metadata.*{path}.*put back a copy"):
        async with running(folder):
            pass
    assert log_bytes(folder / "t-0") == before
