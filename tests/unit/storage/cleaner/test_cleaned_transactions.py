"""What a cleaning leaves of transactions and of producers (KIP-534, INV-2, INV-3, INV-5)."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.protocol.record import Record, build_batch
from oncelog.storage import Origin
from tests.unit.storage.cleaner.context import NOW_MS, RETENTION_MS, CompactedLog


@pytest.fixture
def ctx(tmp_path: Path) -> CompactedLog:
    return CompactedLog(tmp_path / "flights-0")


def test_aborted_records_go_and_their_marker_outlives_them(ctx: CompactedLog) -> None:
    ctx.put(("a", "1"))
    ctx.put_in_transaction(("a", "2"), ("b", "1"), producer=1)
    ctx.abort(1)
    ctx.put(("x", "1"), producer=1, epoch=1)
    ctx.seal()
    ctx.clean()
    assert ctx.pairs() == [("a", "1"), ("x", "1")]
    assert ctx.markers() == [1]
    assert ctx.log.aborted_transactions(0, 100) != []
    ctx.seal()
    ctx.clean()
    # The records are gone, so readers need not know of the transaction any more.
    assert ctx.log.aborted_transactions(0, 100) == []
    assert ctx.markers() == [1]
    ctx.later(RETENTION_MS)
    ctx.seal()
    ctx.clean()
    assert ctx.markers() == []
    ctx.restart()
    assert ctx.pairs() == [("a", "1"), ("x", "1")]


def test_a_commit_marker_stays_while_a_record_of_its_transaction_does(ctx: CompactedLog) -> None:
    ctx.put_in_transaction(("a", "1"), ("b", "1"), producer=1)
    ctx.commit(1)
    ctx.put(("a", "2"), producer=1, epoch=1)
    ctx.seal()
    for _ in range(4):
        ctx.clean()
        ctx.later(RETENTION_MS)
        ctx.seal()
    assert ctx.markers() == [1]
    ctx.put(("b", "2"))
    for _ in range(4):
        ctx.seal()
        ctx.clean()
        ctx.later(RETENTION_MS)
    assert ctx.markers() == []
    assert ctx.pairs() == [("a", "2"), ("b", "2")]


def test_a_transaction_across_segments_keeps_its_marker_in_another_one(ctx: CompactedLog) -> None:
    ctx.log.config = replace(ctx.log.config, segment_bytes=200)
    ctx.put_in_transaction(("a", "1" * 100), producer=1)
    ctx.put(("b", "1" * 100))
    ctx.put_in_transaction(("c", "1" * 100), producer=2)
    ctx.abort(2)
    ctx.commit(1)
    ctx.seal()
    bases = ctx.log.segment_base_offsets
    for _ in range(3):
        ctx.clean()
        ctx.later(RETENTION_MS)
        ctx.seal()
    assert len(bases) > 3
    assert ctx.markers() == [2, 1]
    assert [key for key, _ in ctx.pairs()] == ["a", "b"]


def test_an_emptied_batch_of_a_transaction_keeps_its_marker(ctx: CompactedLog) -> None:
    """INV-3: replayed without it, the batch would hold the last stable offset back for ever."""
    ctx.put_in_transaction(("a", "1"), producer=1)
    ctx.commit(1)
    ctx.put(("a", "2"))
    for _ in range(4):
        ctx.seal()
        ctx.clean()
        ctx.later(RETENTION_MS)
    assert ctx.markers() == [1]
    remove_snapshots(ctx)
    ctx.kill()
    assert ctx.log.last_stable_offset(ctx.log.log_end_offset) == ctx.log.log_end_offset


def remove_snapshots(ctx: CompactedLog) -> None:
    for path in (*ctx.folder.glob("*.snapshot"), *ctx.folder.glob("*.batches")):
        path.unlink()


# ---- producers ----


def test_the_last_sequence_of_a_producer_survives_without_snapshots(ctx: CompactedLog) -> None:
    """INV-2."""
    for value in "123":
        ctx.put(("a", value), producer=7)
    ctx.put(("a", "4"))
    ctx.seal()
    ctx.clean()
    remove_snapshots(ctx)
    ctx.kill()
    state = ctx.log.producers.entry(7)
    assert state is not None
    assert state.last_sequence == 2
    again = ctx.append(build_batch([Record(0, NOW_MS, b"a", b"3")], **sequenced(2)))
    assert (again.duplicate, again.base_offset) == (True, 2)
    gap = ctx.append(build_batch([Record(0, NOW_MS, b"a", b"5")], **sequenced(4)))
    assert gap.error is ErrorCode.out_of_order_sequence_number
    ctx.append_well(build_batch([Record(0, NOW_MS, b"a", b"5")], **sequenced(3)))


def sequenced(sequence: int) -> dict[str, Any]:
    return {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}


def test_a_marker_that_began_an_epoch_keeps_fencing(ctx: CompactedLog) -> None:
    """INV-5: a marker under TV2 carries a bumped epoch, and nothing else tells it."""
    ctx.put_in_transaction(("a", "1"), producer=7)
    ctx.commit(7, epoch=1)
    ctx.put(("a", "2"))
    for _ in range(4):
        ctx.seal()
        ctx.clean()
        ctx.later(RETENTION_MS)
    remove_snapshots(ctx)
    ctx.kill()
    state = ctx.log.producers.entry(7)
    assert state is not None
    assert state.epoch == 1


def test_what_an_expired_producer_left_goes(ctx: CompactedLog) -> None:
    ctx.put(("a", "1"), producer=7)
    ctx.put(("a", "2"))
    ctx.seal()
    ctx.clean()
    assert [header.producer_id for header in ctx.headers()] == [7, -1, -1]
    ctx.later(ctx.config.producer_id_expiration_ms)
    ctx.remove_expired(ctx.log.producers.entries(), ctx.now_ms)
    ctx.seal()
    ctx.clean()
    assert [header.producer_id for header in ctx.headers()] == [-1, -1, -1]


def test_a_follower_keeps_the_offsets_of_a_thinned_log(ctx: CompactedLog, tmp_path: Path) -> None:
    for value in "123":
        ctx.put(("a", value), ("b", value), producer=7)
    ctx.seal()
    ctx.clean()
    data = ctx.all_bytes()
    follower = CompactedLog(tmp_path / "follower")
    follower.append_well(bytearray(data), origin=Origin.REPLICATION)
    assert follower.all_bytes() == data
    assert follower.log.log_end_offset == ctx.log.log_end_offset


def test_the_last_batch_below_the_high_watermark_stays(ctx: CompactedLog) -> None:
    """A reader that stands there would else find nothing, and never go on."""
    ctx.put_in_transaction(("a", "1"), producer=1)
    ctx.abort(1)
    ctx.later(ctx.config.producer_id_expiration_ms)
    ctx.remove_expired(ctx.log.producers.entries(), ctx.now_ms)
    ctx.log.roll(ctx.log.log_end_offset)
    for _ in range(4):
        ctx.clean()
        ctx.clean_offset = 0
        ctx.later(RETENTION_MS)
    assert [header.base_offset for header in ctx.headers()] == [1]
    assert ctx.log.read(0, 100, upper_bound=2)
