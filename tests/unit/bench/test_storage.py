"""The rows about the log at a small size, on `oncelog serve` of this checkout."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.stats import Figures
from bench.storage import compaction, ids, restart
from bench.storage.cold import ColdFetch
from bench.storage.compaction import Compaction, last_segment, log_bytes, wait_until_compacted
from bench.storage.fill import (
    ids_apart,
    keyed_block,
    plain_block,
    transactions_block,
    write_partition,
)
from bench.storage.groups import ManyGroups
from bench.storage.ids import ManyIds
from bench.storage.partitions import ManyPartitions
from bench.storage.restart import RestartWithSegments, RestartWithTransactions
from bench.systems import Oncelog, System
from oncelog.protocol.batch import iter_headers
from oncelog.protocol.hashing import coordinator_partition
from oncelog.protocol.records.scan import scan_batches

FEW = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}


class ThisCheckout(Oncelog):
    """The broker as it stands here, not installed."""

    def command(self) -> list[str]:
        return [sys.executable, "-m", "oncelog"]

    def environment(self) -> dict[str, str]:
        return dict(os.environ)


@contextmanager
def system(folder: Path, settings: dict[str, str]) -> Iterator[System]:
    broker = ThisCheckout(folder, settings | FEW)
    try:
        yield broker
    finally:
        broker.__exit__(None, None, None)


SOAK = pytest.mark.soak
"""Several starts of a process each: for `make test-full`."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("measure", "settings", "figures"),
    [
        pytest.param(
            RestartWithTransactions(200, 2, 2, 10_000),
            restart.SETTINGS | restart.NEVER_COMPACTED,
            ["first start s", "start s", "until served s"],
            id="transactions",
        ),
        pytest.param(
            RestartWithSegments(20, 2),
            restart.SETTINGS,
            ["first start s", "start s", "until served s"],
            id="segments",
            marks=SOAK,
        ),
        pytest.param(
            ManyPartitions(20),
            {},
            [
                *("create s", "memory grown by MB", "files open", "stop s", "start s"),
                *("delete s", "gone s", "create: longest stall ms", "delete: longest stall ms"),
            ],
            id="partitions",
            marks=SOAK,
        ),
        pytest.param(
            ManyGroups(60), {}, ["seconds", "memory grown by MB"], id="groups", marks=SOAK
        ),
        pytest.param(
            ManyIds(60),
            {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"},
            ["seconds", "memory grown by MB", "aborted s", "abort: longest stall ms"],
            id="ids",
            marks=SOAK,
        ),
        pytest.param(
            ColdFetch(2, 10**6),
            {},
            ["MB/s", "longest stall ms"],
            id="cold fetch",
            marks=SOAK,
        ),
        pytest.param(
            Compaction(100, 50, 16, 10**6),
            compaction.SETTINGS,
            ["seconds", "MB/s"],
            id="compaction",
            marks=SOAK,
        ),
    ],
)
def test_a_row_works_at_a_small_size(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    measure: Callable[[System], Figures],
    settings: dict[str, str],
    figures: list[str],
) -> None:
    monkeypatch.setattr(restart, "SETTLE_S", 0.1)
    monkeypatch.setattr(ids, "TIMEOUT_MS", 2_000)
    with system(tmp_path, settings) as broker:
        found = measure(broker)
    assert sorted(found) == sorted(figures)
    assert all(value > 0 for value in found.values())


def test_a_partition_is_filled_with_blocks_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "partition.metadata").write_text("kept")
    (tmp_path / "0.index").write_text("old")
    block = plain_block(3, 10, records_per_batch=2)
    assert write_partition(tmp_path, block, 5, 2 * len(block)) == 5 * len(block)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [*(f"{offset:020}.log" for offset in (0, 12, 24)), "partition.metadata"]
    offset = 0
    for name in names[:-1]:
        assert int(name[:20]) == offset
        for _, header in iter_headers((tmp_path / name).read_bytes()):
            assert header.base_offset == offset
            offset = header.next_offset
    assert offset == 30


def test_blocks_hold_what_their_rows_say() -> None:
    keys = [record[2] for one in scan_batches(keyed_block(5, 1, 2), 0) for record in one.records]
    assert len(set(keys)) == 5
    assert len(list(iter_headers(transactions_block("a", 1)))) == 3
    assert len({coordinator_partition(id_, 7) for id_ in ids_apart(7, 7)}) == 7


def test_a_log_is_compacted_when_its_files_are_small_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_partition(tmp_path, plain_block(1, 100), 4, segment_bytes=1)
    size = last_segment(tmp_path).stat().st_size
    assert last_segment(tmp_path).name == f"{3:020}.log"
    assert log_bytes(tmp_path) == 4 * size
    monkeypatch.setattr("time.sleep", lambda _: last_segment(tmp_path).unlink())
    wait_until_compacted(tmp_path, 2 * size)
    assert log_bytes(tmp_path) == 2 * size
    monkeypatch.setattr(compaction, "COMPACTED_TIMEOUT_S", 0)
    with pytest.raises(RuntimeError, match="not compacted"):
        wait_until_compacted(tmp_path, size)
