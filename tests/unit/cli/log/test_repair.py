"""`oncelog log repair`: what it says, what it does, what it keeps, and a crash within it."""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from oncelog import EmbeddedBroker
from oncelog.cli.log.findings import ERROR
from oncelog.cli.log.reading import IntactBatch, read_log
from oncelog.cli.log.replacing import empty_batch
from oncelog.cli.log.verify import verify_path
from oncelog.client import Consumer
from oncelog.core.ids import TopicId, TopicPartition
from oncelog.protocol.record import Record, iter_records
from oncelog.runtime.disk import SystemDisk
from oncelog.storage import CorruptBatch, LogConfig
from tests.support import data_folder
from tests.support.folders import open_logs
from tests.unit.cli.log.conftest import Oncelog
from tests.unit.storage.context import NOW_MS, batch

FIRST = "00000000000000000000"
SECOND = "00000000000000000025"


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def errors(folder: Path) -> list[str]:
    return [
        f"{Path(finding.path).name} {finding.where} {finding.text}"
        for finding in verify_path(str(folder))
        if finding.severity == ERROR
    ]


def batches(path: Path) -> list[IntactBatch]:
    return [
        found for found in read_log(str(path), int(path.stem)) if isinstance(found, IntactBatch)
    ]


def records(folder: Path, partition: str = "plain-0") -> list[Record]:
    return [
        record
        for path in sorted((folder / partition).glob("*.log"))
        for batch in batches(path)
        if not batch.header.is_control
        for record in iter_records(batch.data, 0, batch.header)
    ]


def flip(path: Path, byte: int) -> None:
    data = bytearray(path.read_bytes())
    data[byte] ^= 1
    path.write_bytes(data)


def repair(log: Oncelog, folder: Path) -> list[dict[str, Any]]:
    result = log("repair", folder, "--yes", "--json")
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.damages
def test_without_yes_it_says_what_it_would_do_and_changes_nothing(
    log: Oncelog, folder: Path
) -> None:
    path = folder / "plain-0" / f"{FIRST}.log"
    flip(path, batches(path)[7].position + 65)
    before = contents(folder)
    result = log("repair", folder)
    assert result.exit_code == 0, result.stderr
    assert "replace it by an empty batch\toffset 7" in result.stdout
    assert contents(folder) == before


def test_a_damaged_batch_becomes_an_empty_one_and_its_offsets_are_named(
    log: Oncelog, folder: Path
) -> None:
    path = folder / "plain-0" / f"{FIRST}.log"
    sound = records(folder)
    damaged_at = [batch.position for batch in batches(path)[7:9]]
    for position in damaged_at:
        flip(path, position + 65)
    damaged = path.read_bytes()
    rows = repair(log, folder)
    (mended,) = [row for row in rows if row["lost"]]
    assert mended["lost"] == "offsets 7 to 8"
    assert records(folder) == [*sound[:7], *sound[9:]]
    assert (folder / "plain-0" / f"{FIRST}.log.damaged").read_bytes() == damaged
    assert not errors(folder)
    assert not repair(log, folder)


def test_a_wrong_offset_is_put_right_without_loss(log: Oncelog, folder: Path) -> None:
    path = folder / "plain-0" / f"{FIRST}.log"
    sound, found = path.read_bytes(), batches(path)
    for number, byte in ((7, 7), (11, 5), (16, 0)):
        flip(path, found[number].position + byte)
    rows = repair(log, folder)
    assert [row["lost"] for row in rows if row["file"].endswith(".log")] == ["", "", ""]
    assert path.read_bytes() == sound
    assert not errors(folder)


@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("reach", [1, 2])
def test_transactions_end_as_they_did_though_their_markers_are_lost(
    log: Oncelog, folder: Path, number: int, reach: int
) -> None:
    """INV-3: the `.txnindex` tells which ended, and how."""
    path = folder / "mixed-0" / f"{FIRST}.log"
    index = path.with_suffix(".txnindex")
    sound, found = index.read_bytes(), batches(path)
    marker = [n for n, batch in enumerate(found) if batch.header.is_control][number]
    for damaged in found[marker - reach + 1 : marker + 1]:
        flip(path, damaged.position + 65)
    repair(log, folder)
    assert index.read_bytes() == sound
    assert not errors(folder)
    markers = [batch for batch in batches(path) if batch.header.is_control]
    assert len(markers) == 8


def test_a_damaged_end_of_a_sealed_segment_keeps_the_next_ones_offsets(
    log: Oncelog, folder: Path
) -> None:
    path = folder / "plain-0" / f"{FIRST}.log"
    os.truncate(path, batches(path)[22].position + 10)
    repair(log, folder)
    assert [record.offset for record in records(folder)] == [*range(22), *range(25, 40)]
    assert not errors(folder)


@pytest.mark.damages
def test_a_cut_end_of_the_active_segment_is_cut_at_a_batch(log: Oncelog, folder: Path) -> None:
    path = folder / "plain-0" / f"{SECOND}.log"
    os.truncate(path, batches(path)[10].position + 10)
    rows = repair(log, folder)
    assert "cut it out" in [row["deed"] for row in rows]
    assert [record.offset for record in records(folder)] == [*range(35)]


def test_the_offset_of_a_damaged_last_batch_is_not_given_out_again(
    log: Oncelog, folder: Path
) -> None:
    path = folder / "plain-0" / f"{SECOND}.log"
    flip(path, batches(path)[-1].position + 65)
    (mended,) = [row for row in repair(log, folder) if row["lost"]]
    assert mended["lost"] == "offset 39"
    assert batches(path)[-1].header.next_offset == 40


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (f"mixed-0/{FIRST}.index", b"1234567"),
        (f"mixed-0/{FIRST}.index", None),
        (f"mixed-0/{FIRST}.timeindex", b""),
        (f"mixed-0/{FIRST}.txnindex", b"garbage"),
        (f"mixed-0/{SECOND}.txnindex", None),
        (f"mixed-0/{SECOND}.snapshot", b"garbage"),
        (f"mixed-0/{SECOND}.batches", b"garbage"),
        ("mixed-0/leader-epoch-checkpoint", b"0\n1\n5 7\n"),
        ("mixed-0/leader-epoch-checkpoint", None),
        ("recovery-point-offset-checkpoint", b"garbage"),
    ],
)
def test_what_follows_from_the_log_is_built_again(
    log: Oncelog, folder: Path, name: str, content: bytes | None
) -> None:
    logs = {name: data for name, data in contents(folder).items() if name.endswith(".log")}
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    repair(log, folder)
    assert not errors(folder)
    assert (folder / ".kafka_cleanshutdown").exists()
    if content is not None:
        assert (folder / f"{name}.damaged").read_bytes() == content
    after = contents(folder)
    assert logs == {name: after[name] for name in logs}


@pytest.mark.damages
def test_what_cannot_be_mended_is_said_and_left(log: Oncelog, folder: Path) -> None:
    (folder / "meta.properties").write_bytes(b"")
    before = contents(folder)
    result = log("repair", folder, "--yes")
    assert result.exit_code == 1
    assert "put back meta.properties" in result.stdout
    assert contents(folder) == before


async def test_a_running_broker_keeps_its_folder(log: Oncelog, folder: Path) -> None:
    async with EmbeddedBroker(str(folder), config=data_folder.SETTINGS):
        result = log("repair", folder, "--yes")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "stop it first" in result.stderr


@pytest.mark.parametrize(
    ("is_closed", "has_checkpoint"), [(True, True), (True, False), (False, True)]
)
@pytest.mark.parametrize("lost", ["segment", "its last batch"])
def test_what_lies_behind_a_gap_stays_when_another_file_is_repaired(
    log: Oncelog, tmp_path: Path, lost: str, is_closed: bool, has_checkpoint: bool
) -> None:
    """A start serves such a log around the gap, and gives none of its offsets out again."""
    data, partition = tmp_path / "data", TopicPartition("flights", 0)
    config = LogConfig(segment_bytes=200)
    manager = open_logs(data, config=config)
    held = manager.create(partition, TopicId(int=7), config, NOW_MS)
    for _ in range(9):
        held.append(batch(), leader_epoch=0, now_ms=NOW_MS)
    second = data / "flights-0" / f"{held.segment_base_offsets[1]:020d}.log"
    manager.close()
    if not is_closed:
        (data / ".kafka_cleanshutdown").unlink()
    if not has_checkpoint:
        (data / "recovery-point-offset-checkpoint").unlink()
    if lost == "segment":
        for suffix in (".log", ".index", ".timeindex"):
            second.with_suffix(suffix).unlink()
    else:
        os.truncate(second, second.stat().st_size // 2)

    def offsets() -> tuple[int, list[int], list[int]]:
        manager = open_logs(shutil.copytree(data, tmp_path / "look"), config=config)
        held = manager.get(partition)
        assert held is not None
        readable, refused = [], []
        for offset in range(held.log_end_offset):
            try:
                assert held.read(offset, 1, upper_bound=held.log_end_offset)
                readable.append(offset)
            except CorruptBatch:
                refused.append(offset)
        manager.abandon()
        shutil.rmtree(tmp_path / "look")
        return held.log_end_offset, readable, refused

    before = offsets()
    assert before[0] == 9
    assert before[2]
    with (data / "flights-0" / f"{FIRST}.timeindex").open("ab") as file:
        file.write(b"xyz")
    log("repair", data / "flights-0", "--yes")
    assert offsets() == before
    assert not list(data.rglob("*.cut"))


def test_a_file_is_refused_in_one_sentence(log: Oncelog, folder: Path) -> None:
    result = log("repair", folder / "meta.properties")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "name its folder" in result.stderr


async def test_readers_pass_over_what_was_replaced(log: Oncelog, folder: Path) -> None:
    path = folder / "plain-0" / f"{FIRST}.log"
    found = batches(path)
    for number in (0, 7, 8, 24):
        flip(path, found[number].position + 65)
    repair(log, folder)
    async with (
        EmbeddedBroker(str(folder), config=data_folder.SETTINGS) as broker,
        Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([TopicPartition("plain", 0)])
        seen: list[int] = []
        while not seen or seen[-1] < 39:
            seen += [record.offset for record in await consumer.poll(timeout_ms=5000)]
    assert seen == [n for n in range(40) if n not in (0, 7, 8, 24)]


def test_an_empty_batch_takes_a_range_of_offsets(tmp_path: Path) -> None:
    path = tmp_path / f"{FIRST}.log"
    path.write_bytes(empty_batch(0, 6, 0) + empty_batch(7, 7, 0))
    first, second = batches(path)
    assert (first.header.next_offset, second.header.next_offset) == (7, 8)
    assert first.header.record_count == 0


class Died(BaseException):
    """The process died here."""


OPERATIONS = ((os, "link"), (os, "replace"), (os, "rename"), (os, "remove"), (os, "fsync"),
              (SystemDisk, "write_atomic"))  # fmt: skip


def dying_after(operations_count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The given number of file operations are done; each one after them raises `Died`."""
    numbers = count()
    for owner, name in OPERATIONS:
        real: Callable[..., Any] = getattr(owner, name)

        def limited(*args: Any, _real: Callable[..., Any] = real, **kwargs: Any) -> Any:
            if next(numbers) >= operations_count:
                raise Died
            return _real(*args, **kwargs)

        monkeypatch.setattr(owner, name, limited)


@pytest.mark.damages
@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.soak)])
def test_a_repair_that_dies_anywhere_can_be_repeated(
    log: Oncelog, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    for path, number in ((folder / "mixed-0" / f"{FIRST}.log", 4),
                         (folder / "mixed-0" / f"{SECOND}.log", 3)):  # fmt: skip
        flip(path, batches(path)[number].position + 65)
    sound = records(folder, "mixed-0")
    finished = False
    for operations_count in range(0, 200, step):
        work = tmp_path / "work"
        shutil.copytree(folder, work)
        with monkeypatch.context() as patch:
            dying_after(operations_count, patch)
            with suppress(Died):
                finished = log("repair", work, "--yes").exit_code == 0
        assert records(work, "mixed-0") == sound, operations_count
        assert log("repair", work, "--yes").exit_code == 0
        assert records(work, "mixed-0") == sound, operations_count
        assert not errors(work), operations_count
        shutil.rmtree(work)
        if finished:
            break
    assert finished
