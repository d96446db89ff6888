"""A format that is not read here is not damage: nothing of such a log changes (D14)."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog.runtime import SystemDisk
from oncelog.storage import LogConfig, PartitionLog
from oncelog.storage.formats import UnknownFormat
from tests.support.old_formats import LATER_MAGIC, later_batch, message_set
from tests.unit.storage.context import NOW_MS, PARTITION, LogContext, batch

CODECS = ("none", "gzip", "snappy")


def at(offset: int, made: bytearray) -> bytearray:
    made[:8] = offset.to_bytes(8, "big")
    return made


def make(folder: Path, *segments: tuple[int, bytes | bytearray]) -> dict[str, bytes]:
    """A partition's folder as another broker leaves it; returns its files."""
    folder.mkdir(exist_ok=True)
    for base, data in segments:
        (folder / f"{base:020d}.log").write_bytes(data)
        (folder / f"{base:020d}.index").write_bytes(b"")
        (folder / f"{base:020d}.timeindex").write_bytes(b"")
    (folder / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 0\n")
    return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def open_log(folder: Path, *, clean: bool = False, recovery_point: int = 0) -> PartitionLog:
    config = LogConfig()
    return PartitionLog.open(
        SystemDisk(), str(folder), PARTITION, config, NOW_MS, clean, recovery_point=recovery_point
    )


def refused(folder: Path, *, clean: bool = False, recovery_point: int = 0) -> UnknownFormat:
    with pytest.raises(UnknownFormat) as caught:
        open_log(folder, clean=clean, recovery_point=recovery_point)
    return caught.value


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_a_log_of_an_old_format_is_refused_and_left_as_it_is(
    tmp_path: Path, magic: int, codec: str, clean: bool
) -> None:
    data = message_set(magic, 0, 5, codec) + message_set(magic, 5, 2, codec)
    before = make(tmp_path / "t-0", (0, data))
    for recovery_point in (0, 7, 0):  # Each start after the first finds what the one before left.
        found = refused(tmp_path / "t-0", clean=clean, recovery_point=recovery_point)
        assert (found.magic, found.position) == (magic, 0)
        assert contents(tmp_path / "t-0") == before
    assert str(found) == (
        f"cannot serve {tmp_path}/t-0/{0:020d}.log: from byte 0 on it has records of format "
        f"v{magic}, from before Kafka 0.11, and only v2 is read here; nothing of it was changed: "
        "let a broker that reads them serve this folder, copy the topic there to a new one (its "
        "records are v2), and bring that one here"
    )


@pytest.mark.parametrize("clean", [False, True])
def test_old_segments_before_new_ones_are_refused_and_left(tmp_path: Path, clean: bool) -> None:
    """The usual log: its topic is older than the last upgrade."""
    before = make(
        tmp_path / "t-0",
        (0, message_set(0, 0, 3)),
        (3, message_set(1, 3, 3, "gzip") + at(6, batch(2))),
        (8, at(8, batch(2))),
    )
    assert refused(tmp_path / "t-0", clean=clean, recovery_point=8).magic == 0
    assert contents(tmp_path / "t-0") == before


@pytest.mark.parametrize("clean", [False, True])
def test_old_messages_behind_new_batches_are_refused_too(tmp_path: Path, clean: bool) -> None:
    data = batch(2) + message_set(1, 2, 3)
    make(tmp_path / "t-0", (0, data))
    found = refused(tmp_path / "t-0", clean=clean)
    assert (found.magic, found.position) == (1, len(batch(2)))
    assert (tmp_path / "t-0" / f"{0:020d}.log").read_bytes() == data


def test_a_torn_end_of_an_old_log_is_left_as_well(tmp_path: Path) -> None:
    before = make(tmp_path / "t-0", (0, message_set(1, 0, 3)[:-5]))
    refused(tmp_path / "t-0")
    assert contents(tmp_path / "t-0") == before


def test_one_damaged_message_does_not_make_an_old_log_a_damaged_one(tmp_path: Path) -> None:
    data = message_set(1, 0, 3)
    data[30] ^= 1
    before = make(tmp_path / "t-0", (0, data))
    refused(tmp_path / "t-0")
    data[16] = 2
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(data)
    refused(tmp_path / "t-0")
    assert len(contents(tmp_path / "t-0")[f"{0:020d}.log"]) == len(before[f"{0:020d}.log"])


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("crc_of_v2", [False, True])
def test_batches_of_a_later_format_are_refused_and_left(
    tmp_path: Path, crc_of_v2: bool, clean: bool
) -> None:
    later = later_batch(2, 2, crc_of_v2=crc_of_v2) + later_batch(4, crc_of_v2=crc_of_v2)
    data = batch(2) + later
    make(tmp_path / "t-0", (0, data))
    for _ in range(2):
        found = refused(tmp_path / "t-0", clean=clean)
        assert (found.magic, found.position) == (LATER_MAGIC, len(batch(2)))
        assert "of a later version" in str(found)
    assert (tmp_path / "t-0" / f"{0:020d}.log").read_bytes() == data


@pytest.mark.parametrize("crc_of_v2", [False, True])
@pytest.mark.parametrize("tail", ["cut", "zeros", "few bytes"])
def test_the_end_of_a_log_of_a_later_format_may_be_torn(
    tmp_path: Path, tail: str, crc_of_v2: bool
) -> None:
    later = later_batch(0, 2, crc_of_v2=crc_of_v2) + later_batch(2, 2, crc_of_v2=crc_of_v2)
    torn = {"cut": bytes(later_batch(4)[:-1]), "zeros": bytes(200), "few bytes": b"12345"}
    before = make(tmp_path / "t-0", (0, later + torn[tail]))
    refused(tmp_path / "t-0")
    assert contents(tmp_path / "t-0") == before


def test_a_damaged_batch_among_those_of_v2_is_of_no_later_format(tmp_path: Path) -> None:
    context = LogContext(tmp_path / "t-0")
    for _ in range(3):
        context.append_well(batch(2))
    whole = context.all_bytes()
    size = len(whole) // 3
    garbled = bytearray(whole)
    garbled[size + 16] = LATER_MAGIC
    garbled[size + 30 : size + 40] = bytes(10)
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(garbled)
    context.kill()
    assert context.all_bytes() == whole[:size]


@pytest.mark.parametrize("magic", [0, 1, 3, 6, 127, 255])
def test_a_damaged_byte_of_the_format_is_damage(tmp_path: Path, magic: int) -> None:
    """The batch's own CRC does not cover this byte: with 2 in its place the CRC is right."""
    context = LogContext(tmp_path / "t-0")
    for _ in range(3):
        context.append_well(batch(2))
    path = tmp_path / "t-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    size = len(data) // 3
    data[size + 16] = magic
    path.write_bytes(data)
    context.kill()
    assert context.all_bytes() == bytes(data[:size])
    data[16] = magic
    path.write_bytes(data[:size])
    context.kill()
    assert context.all_bytes() == b""


def test_a_damaged_format_below_the_recovery_point_costs_one_batch(tmp_path: Path) -> None:
    context = LogContext(tmp_path / "t-0")
    for _ in range(3):
        context.append_well(batch(2))
    context.log.flush()
    path = tmp_path / "t-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 3 + 16] = 1
    path.write_bytes(data)
    log = open_log(tmp_path / "t-0", recovery_point=6)
    assert log.log_end_offset == 6
    assert log.recovery.damaged_bytes == len(data) // 3


def test_a_message_set_within_a_value_is_only_a_value(tmp_path: Path) -> None:
    """A torn batch whose record has old messages in it is cut off, as any other."""
    context = LogContext(tmp_path / "t-0")
    context.append_well(batch(1))
    context.append_well(batch(1, value=bytes(message_set(1, 1, 3))))
    whole = context.all_bytes()
    path = tmp_path / "t-0" / f"{0:020d}.log"
    path.write_bytes(whole[:-1])
    context.kill()
    assert context.all_bytes() == whole[: len(batch(1))]
