"""What is read of a `.log` file, and what of it is damage."""

from pathlib import Path

from oncelog.cli.log.reading import Damage, IntactBatch, read_log
from oncelog.core.crc import crc32c
from oncelog.protocol.record import Record, build_batch


def at(offset: int) -> bytearray:
    return build_batch([Record(0, 0, b"key", b"value")], base_offset=offset)


def test_an_offset_is_judged_as_by_a_recovery(tmp_path: Path) -> None:
    """No CRC covers it: the header behind it contradicts, though that batch is damaged too."""
    first, jumping, damaged = at(0), at(1), at(2)
    jumping[:8] = (5).to_bytes(8, "big")
    damaged[-1] ^= 1
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(first + jumping + damaged)
    found = list(read_log(str(path), 0))
    assert [type(each) for each in found] == [IntactBatch, Damage]
    damage = found[1]
    assert isinstance(damage, Damage)
    assert damage.reason == "offset 5 does not fit between its neighbours"
    assert (damage.position, damage.first_offset) == (len(first), 1)


def test_more_records_than_offsets_are_no_batch(tmp_path: Path) -> None:
    batch = at(0)
    batch[57:61] = (2).to_bytes(4, "big")
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(batch)
    (damage,) = read_log(str(path), 0)
    assert isinstance(damage, Damage)
    assert damage.reason == "2 records with last offset delta 0"
