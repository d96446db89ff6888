"""`oncelog log verify` sees every flipped bit, and nothing wrong in what a broker left."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from oncelog import EmbeddedBroker
from oncelog.cli.log.findings import ERROR
from oncelog.cli.log.verify import verify_path
from oncelog.core.ids import TopicId, TopicPartition
from oncelog.protocol.record import Record, build_batch
from oncelog.runtime.disk import SystemDisk
from oncelog.storage import LogConfig, Origin, PartitionLog
from oncelog.storage.files import LIFE_NAME
from tests.support import data_folder
from tests.support.folders import NOW_MS, open_logs
from tests.unit.cli.log.conftest import Oncelog
from tests.unit.protocol.test_record import with_such_a_name

SECOND = "00000000000000000025"


def errors(folder: Path) -> list[str]:
    return [
        f"{Path(finding.path).name} {finding.where} {finding.text}"
        for finding in verify_path(str(folder))
        if finding.severity == ERROR
    ]


def contents(folder: Path) -> dict[Path, bytes]:
    """All but the metadata store and the broker's life, which it may write at any moment."""
    return {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(("metadata.sqlite", LIFE_NAME))
    }


def flip(path: Path, byte: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[byte] ^= 1 << bit
    path.write_bytes(data)


def test_what_a_broker_left_is_sound(log: Oncelog, folder: Path) -> None:
    result = log("verify", folder)
    assert (result.exit_code, result.stdout) == (0, "")


def test_partitions_that_nobody_wrote_to_are_sound(log: Oncelog, tmp_path: Path) -> None:
    logs = open_logs(tmp_path / "data")
    logs.create(TopicPartition("empty", 0), TopicId(int=1), LogConfig(), NOW_MS)
    logs.close()
    result = log("verify", tmp_path / "data")
    assert (result.exit_code, result.stdout) == (0, "")


def test_what_a_killed_broker_left_is_sound_with_a_note(log: Oncelog, killed: Path) -> None:
    result = log("verify", killed, "--json")
    assert result.exit_code == 0
    (row,) = [json.loads(line) for line in result.stdout.splitlines()]
    assert (row["severity"], row["file"]) == ("note", ".kafka_cleanshutdown")


def test_a_killed_broker_need_not_have_noted_an_epoch_of_an_active_segment(killed: Path) -> None:
    """The next start reads it from the batches."""
    for path in killed.glob("*/leader-epoch-checkpoint"):
        path.unlink()
    sealed = [path for path in killed.glob("*-*/") if len([*path.glob("*.log")]) > 1]
    assert sealed
    assert errors(killed) == ["leader-epoch-checkpoint  missing"] * len(sealed)


@pytest.mark.parametrize("topic", ["__transaction_state", "__consumer_offsets", "plain"])
def test_a_record_that_its_coordinator_cannot_read_is_found(tmp_path: Path, topic: str) -> None:
    """Its checksum is right: it keeps the coordinator from loading all the same."""
    partition = TopicPartition(topic, 0)
    folder = tmp_path / str(partition)
    held = PartitionLog.open(SystemDisk(), str(folder), partition, LogConfig(), 1)
    for key in (b"\x00\x09 of a later kind", b"\x00", None):
        data = build_batch([Record(0, 1, key, b"value")])
        held.append(data, leader_epoch=0, now_ms=1, origin=Origin.COORDINATOR)
    held.close()
    found = [line for line in errors(folder) if "its coordinator cannot read" in line]
    assert [line.split(":")[0].partition(".log ")[2] for line in found] == (
        []
        if topic == "plain"
        else [f"offset {n} its coordinator cannot read the record at {n}" for n in (1, 2)]
    )


@pytest.mark.parametrize(
    "suffix", [".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".batches"]
)
def test_every_flipped_bit_of_a_segments_files_is_seen(folder: Path, suffix: str) -> None:
    rng = random.Random(8)
    for path in sorted((folder / "mixed-0").glob(f"*{suffix}")):
        sound = path.read_bytes()
        for _ in range(20 if sound else 0):
            byte, bit = rng.randrange(len(sound)), rng.randrange(8)
            flip(path, byte, bit)
            assert errors(folder / "mixed-0"), f"bit {bit} of byte {byte} of {path.name}"
            path.write_bytes(sound)
    assert not errors(folder / "mixed-0")


@pytest.mark.damages
def test_a_flipped_bit_is_named_with_its_place(log: Oncelog, folder: Path) -> None:
    flip(folder / "plain-0" / f"{SECOND}.log", 70)
    result = log("verify", folder, "--json")
    assert result.exit_code == 1
    rows: list[dict[str, Any]] = [json.loads(line) for line in result.stdout.splitlines()]
    wrong = [row for row in rows if row["severity"] == "error"]
    assert wrong[0]["file"] == f"plain-0/{SECOND}.log"
    assert wrong[0]["where"] == "byte 0"
    assert "the CRC is wrong" in wrong[0]["finding"]
    assert "oncelog log repair" in result.stderr


@pytest.mark.damages
@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("meta.properties", b"", "does not say cluster.id"),
        ("meta.properties", None, "nothing says whose folder this is"),
        ("oncelog.format", b"\xff", "name no format"),
        ("recovery-point-offset-checkpoint", b"0\n1\nplain 0", "do not parse"),
        ("recovery-point-offset-checkpoint", b"0\n1\nplain 0 41\n", "says 41"),
        ("log-start-offset-checkpoint", b"0\n1\ntrimmed 0 99\n", "says 99"),
        ("metadata.sqlite", b"garbage" * 1000, "cannot be read"),
        ("plain-0/partition.metadata", None, "nothing says which topic"),
        ("plain-0/partition.metadata", b"version: 0\ntopic_id: x", "name no topic id"),
        ("plain-0/leader-epoch-checkpoint", None, "missing"),
        ("plain-0/leader-epoch-checkpoint", b"0\n1\n3 7\n", "missing; it begins at offset 0"),
        ("plain-0/leader-epoch-checkpoint", b"0\n2\n0 0\n3 41\n", "beyond the log's end 40"),
        (f"plain-0/{SECOND}.index", None, "missing"),
        (f"plain-0/{SECOND}.timeindex", b"1234567", "no whole number of entries"),
        (f"mixed-0/{SECOND}.txnindex", None, "misses the aborted transaction"),
    ],
)
def test_files_that_are_missing_or_torn_are_found(
    folder: Path, name: str, content: bytes | None, text: str
) -> None:
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    found = errors(folder)
    assert any(text in each for each in found), found
    assert all(each.startswith(Path(name).name) for each in found)


@pytest.mark.damages
def test_a_folder_of_another_topic_is_found(folder: Path) -> None:
    metadata = (folder / "plain-0" / "partition.metadata").read_bytes()
    (folder / "mixed-0" / "partition.metadata").write_bytes(metadata)
    assert any("the metadata's topic has" in each for each in errors(folder))


async def test_the_folder_of_a_running_broker_is_verified_and_said_to_be_in_use(
    log: Oncelog, folder: Path
) -> None:
    async with EmbeddedBroker(str(folder), config=data_folder.SETTINGS):
        before = contents(folder)
        result = log("verify", folder)
        assert result.exit_code == 0, result.stdout
        assert "a broker is using this folder" in result.stderr
        assert contents(folder) == before


def test_a_header_with_any_bytes_as_its_name_is_sound_and_shown(
    log: Oncelog, tmp_path: Path
) -> None:
    folder = tmp_path / "t-0"
    partition = TopicPartition("t", 0)
    held = PartitionLog.open(SystemDisk(), str(folder), partition, LogConfig(), 1)
    held.append(with_such_a_name(), leader_epoch=0, now_ms=1)
    held.close()
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {'A' * 22}\n")
    assert errors(folder) == []
    shown = log("dump", folder / "00000000000000000000.log", "--records", "--json")
    (row,) = [json.loads(line) for line in shown.stdout.splitlines()]
    assert row["headers"] == {r"\xff na\x80me \xc3": "c", "plain": None}
