"""A leader numbers the batches of one append, in place."""

from oncelog.protocol.batch import check_crc, iter_headers
from oncelog.storage.placement import PlacedBatch, assign_offsets, keep_offsets
from tests.unit.storage.context import NOW_MS, batch

LEADER_EPOCH = 77
START = 2**50


def test_offsets_and_leader_epoch_are_written_and_nothing_else() -> None:
    data = batch(2) + batch(3)
    before = list(iter_headers(data))
    placed = assign_offsets(memoryview(data), before, START, LEADER_EPOCH)
    after = list(iter_headers(data))
    assert [(position, header.base_offset) for position, header in after] == [
        (0, START),
        (before[1][0], START + 2),
    ]
    for (_, old), (position, new) in zip(before, after, strict=True):
        assert new == old._replace(base_offset=new.base_offset, leader_epoch=LEADER_EPOCH)
        assert check_crc(data, position, new)
    assert placed == keep_offsets(after)


def test_a_batch_is_placed_by_its_last_offset_and_largest_timestamp() -> None:
    data = batch(3)
    placed = assign_offsets(data, list(iter_headers(data)), 10, 0)
    assert placed == [PlacedBatch(0, len(data), 10, 12, NOW_MS + 2)]
