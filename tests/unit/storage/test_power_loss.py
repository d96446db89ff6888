"""With flush.messages=1 a loss of power takes nothing that was acknowledged (INV-1, INV-9).

The disk here keeps, at the loss, only what an fsync of a file made durable, under the names that an
fsync of the folder made durable: the worst that POSIX allows, short of damaged sectors.
"""

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oncelog.core.errors import ErrorCode
from oncelog.runtime import DiskFile, SystemDisk
from tests.support.examples import examples
from tests.unit.storage.context import LogContext


class LossyDisk(SystemDisk):
    def __init__(self) -> None:
        super().__init__()
        self.contents: dict[int, bytes] = {}  # durable bytes by inode
        self.names: dict[str, dict[str, int]] = {}  # durable names by folder

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        return LossyFile(self, super().open(path, create=create))

    def write_atomic(self, path: str, data: bytes, *, sync: bool) -> None:
        super().write_atomic(path, data, sync=False)
        if sync:
            self.contents[os.stat(path).st_ino] = data
            self.sync_dir(os.path.dirname(path))

    def sync_dir(self, path: str) -> None:
        self.names[path] = {name: os.stat(f"{path}/{name}").st_ino for name in os.listdir(path)}

    def lose_power(self, source: Path, target: Path, lucky: str | tuple[str, ...]) -> None:
        """Write to `target` what is left of `source`; unsynced files named `*lucky` survive."""
        target.mkdir()
        for name, inode in self.names.get(str(source), {}).items():
            left = self.contents.get(inode, b"")
            if name.endswith(lucky) and (source / name).exists():
                left = (source / name).read_bytes()
            (target / name).write_bytes(left)


class LossyFile:
    def __init__(self, disk: LossyDisk, file: DiskFile) -> None:
        self._disk, self._file = disk, file
        self.path = file.path
        self._inode = os.stat(file.path).st_ino

    def fsync(self) -> None:
        self._disk.contents[self._inode] = self._file.pread(self._file.size(), 0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


moves = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "commit", "abort", "close"]),
        st.integers(1, 2),
        st.integers(0, 120),
    ),
    min_size=1,
    max_size=30,
)


@pytest.mark.slow
@settings(max_examples=examples(80), deadline=None)
@given(moves, st.sampled_from(["nothing", ".timeindex", "index", ".snapshot", ".batches"]))
@example([("write", 1, 0), ("abort", 1, 0), *[("write", 1, 120)] * 6], ".timeindex")
def test_nothing_acknowledged_is_lost_with_the_power(
    steps: list[tuple[str, int, int]], lucky: str
) -> None:
    with TemporaryDirectory() as folder:
        ctx = LogContext(Path(folder) / "t-0", flush_messages=1, segment_bytes=400)
        ctx.disk = LossyDisk()
        ctx.kill()
        sequences = {1: 0, 2: 0}
        for kind, producer, size in steps:
            take(ctx, sequences, kind, producer, size)
        end, point = ctx.log.log_end_offset, ctx.log.recovery_point
        whole, aborted = ctx.all_bytes(), ctx.log.aborted_transactions(0, end)
        assert point == end
        ctx.disk.lose_power(ctx.folder, Path(folder) / "left", lucky)
        ctx.folder, ctx.disk = Path(folder) / "left", SystemDisk()
        ctx.open(recovery_point=point)
        assert ctx.all_bytes() == whole
        assert ctx.log.aborted_transactions(0, end) == aborted
        for producer, sequence in sequences.items():
            if sequence:
                again = ctx.append(
                    producer=producer, epoch=0, sequence=sequence - 1, transactional=True
                )
                assert again.duplicate


def take(ctx: LogContext, sequences: dict[int, int], kind: str, producer: int, size: int) -> None:
    if kind == "close":
        ctx.restart()
    elif kind == "write":
        ctx.append_well(
            producer=producer,
            epoch=0,
            sequence=sequences[producer],
            transactional=True,
            value=b"x" * size,
        )
        sequences[producer] += 1
    else:
        assert ctx.end(producer, 0, commit=kind == "commit").error is ErrorCode.none


@pytest.mark.parametrize("flushed_again", [False, True])
def test_a_segment_sealed_right_after_a_flush_keeps_its_aborted_transactions(
    tmp_path: Path, flushed_again: bool
) -> None:
    """INV-3: it ends where the recovery point is, but its index was written after that flush."""
    ctx = LogContext(tmp_path / "t-0", segment_bytes=300)
    disk = ctx.disk = LossyDisk()
    ctx.kill()
    take(ctx, {1: 0}, "write", 1, 0)
    take(ctx, {}, "abort", 1, 0)
    ctx.log.flush()
    sealed_at = ctx.log.log_end_offset
    ctx.append_well(value=b"x" * 200)
    assert ctx.log.segment_base_offsets == [0, sealed_at]
    if flushed_again:
        ctx.log.flush()
    # The system may write names whenever it likes.
    disk.sync_dir(str(ctx.folder))
    aborted, point = ctx.log.aborted_transactions(0, sealed_at), ctx.log.recovery_point
    assert len(aborted) == 1
    assert (point > sealed_at) == flushed_again
    disk.lose_power(ctx.folder, tmp_path / "left", (".index", ".timeindex"))
    ctx.folder, ctx.disk = tmp_path / "left", SystemDisk()
    ctx.open(recovery_point=point)
    assert ctx.log.aborted_transactions(0, sealed_at) == aborted
