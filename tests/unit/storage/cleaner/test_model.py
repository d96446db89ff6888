"""Random histories, cleaned at random moments, against a model of what compaction promises."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.scratch import scratch_folder
from tests.unit.storage.cleaner.context import RETENTION_MS, CompactedLog, Pair

CODECS = ["none", "gzip", "lz4"]
PLAIN, IDEMPOTENT, FIRST, SECOND = -1, 3, 1, 2

records = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from(["x", "y" * 40, None])),
    min_size=1,
    max_size=3,
)
moves = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from([PLAIN, IDEMPOTENT]), records),
        st.tuples(st.just("put"), st.sampled_from([FIRST, SECOND]), records),
        st.tuples(st.sampled_from(["commit", "abort"]), st.sampled_from([FIRST, SECOND])),
        st.tuples(st.just("seal")),
        st.tuples(st.just("clean"), st.sampled_from([1 << 20, 1 << 20, 24 * 7])),
        st.tuples(st.just("later"), st.sampled_from([1, RETENTION_MS])),
        st.tuples(st.sampled_from(["restart", "kill", "forget"])),
    ),
    min_size=5,
    max_size=60,
)


@dataclass(slots=True)
class Written:
    """One batch that was written, and what became of it."""

    base: int
    pairs: list[Pair]
    producer: int
    outcome: bool | None
    """Whether it is committed; None while nobody knows."""
    horizon_ms: int | None = None


@dataclass
class Model:
    """Every batch that was ever written."""

    batches: list[Written] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    """Offsets of records that a cleaning had to remove."""

    def ended(self, producer: int, committed: bool) -> None:
        for batch in self.batches:
            if batch.producer == producer and batch.outcome is None:
                batch.outcome = committed

    def is_open(self, producer: int) -> bool:
        return any(b.producer == producer and b.outcome is None for b in self.batches)

    def committed(self, end: int) -> list[tuple[int, str, str | None]]:
        """As a read_committed reader sees it who stops at `end`."""
        return [
            (batch.base + delta, key, value)
            for batch in self.batches
            if batch.outcome
            for delta, (key, value) in enumerate(batch.pairs)
            if batch.base + delta < end
        ]

    def cleaned(self, end: int, now_ms: int) -> None:
        """All below `end` was cleaned at once."""
        newest = {key: offset for offset, key, _ in self.committed(end)}
        for batch in self.batches:
            if not batch.outcome or batch.base >= end:
                continue
            tombstones = False
            for delta, (key, value) in enumerate(batch.pairs):
                offset = batch.base + delta
                horizon_ms = now_ms + 1 if batch.horizon_ms is None else batch.horizon_ms
                if offset < newest[key] or (value is None and horizon_ms <= now_ms):
                    self.gone.add(offset)
                elif offset not in self.gone:
                    tombstones = tombstones or value is None
            if tombstones and batch.horizon_ms is None:
                batch.horizon_ms = now_ms + RETENTION_MS


class Play:
    """One history: each move in the log and in the model."""

    def __init__(self, folder: Path) -> None:
        self.ctx = CompactedLog(folder / "flights-0", segment_bytes=600, index_interval_bytes=100)
        self.model = Model()
        self.is_exact = True

    def put(self, producer: int, pairs: list[Pair]) -> None:
        codec = CODECS[len(pairs) % 3]
        in_transaction = producer in (FIRST, SECOND)
        write = self.ctx.put_in_transaction if in_transaction else self.ctx.put
        base = write(*pairs, producer=producer, codec=codec)
        self.model.batches.append(Written(base, pairs, producer, None if in_transaction else True))

    def end(self, producer: int, committed: bool) -> None:
        if self.model.is_open(producer):
            (self.ctx.commit if committed else self.ctx.abort)(producer)
            self.model.ended(producer, committed)

    def seal(self) -> None:
        base = self.ctx.log.log_end_offset
        self.ctx.seal()
        self.model.batches.append(Written(base, [("seal", "s")], PLAIN, True))

    def clean(self, memory_bytes: int) -> None:
        while True:
            before = self.ctx.clean_offset
            end = self.ctx.clean(dedupe_buffer_bytes=memory_bytes, load_factor=0.7)
            if memory_bytes > 1000:
                self.model.cleaned(end, self.ctx.now_ms)
            else:
                self.is_exact = False
            if end == before or memory_bytes > 1000:
                return

    def open_again(self, how: str) -> None:
        if how == "restart":
            self.ctx.restart()
            return
        if how == "forget":
            for pattern in ("*.snapshot", "*.batches"):
                for path in self.ctx.folder.glob(pattern):
                    path.unlink()
        self.ctx.kill()

    def check(self) -> None:
        log = self.ctx.log
        stable = log.last_stable_offset(log.log_end_offset)
        opened = [batch.base for batch in self.model.batches if batch.outcome is None]
        assert stable == min(opened, default=log.log_end_offset)
        seen = self.ctx.committed()
        written = self.model.committed(stable)
        assert set(seen) <= set(written)
        newest = {key: (offset, value) for offset, key, value in written}
        for key, (offset, value) in newest.items():
            # A tombstone may be gone, with all that it deleted.
            assert (offset, key, value) in seen or (
                value is None and all(other != key for _, other, _ in seen)
            )
        if self.is_exact:
            assert seen == [entry for entry in written if entry[0] not in self.model.gone]


@pytest.mark.slow
@settings(max_examples=examples(50), deadline=None)
@given(moves)
def test_a_reader_sees_the_newest_of_each_key_and_no_offset_moves(
    steps: list[tuple[Any, ...]],
) -> None:
    with tempfile.TemporaryDirectory(dir=scratch_folder()) as folder:
        play = Play(Path(folder))
        for kind, *arguments in [*steps, ("seal",), ("clean", 1 << 20), ("forget",)]:
            if kind == "put":
                play.put(*arguments)
            elif kind in ("commit", "abort"):
                play.end(arguments[0], kind == "commit")
            elif kind == "later":
                play.ctx.later(arguments[0])
            elif kind == "seal":
                play.seal()
            elif kind == "clean":
                play.clean(arguments[0])
            else:
                play.open_again(kind)
            play.check()
