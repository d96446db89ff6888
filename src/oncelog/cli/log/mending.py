"""Plans and executes the repair of damage in a partition's folder.

A damaged range of a log is replaced by one empty batch with its offsets, like those that compaction
leaves: every reader skips it, no later offset changes, and none is assigned twice. If only the
offset of a batch is wrong, which its CRC does not cover, it is corrected from its neighbours and
nothing is lost. Files derived from the log are set aside and rebuilt by the broker's own recovery.

Nothing is deleted: the old content remains beside each file as ``NAME.damaged``. Each file is
copied first and then replaced by a rename; indexes are removed before their log is replaced. So a
crash at any moment leaves the old log or the new one, and no index of the other. The clean shutdown
file is removed first, so that the next start recovers the folder.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from oncelog.cli.log.check_indexes import read_file
from oncelog.cli.log.check_partition import PartitionCheck, log_start_of, noted_offset
from oncelog.cli.log.findings import ERROR
from oncelog.cli.log.kinds import (
    FileKind,
    base_offset,
    is_passing,
    kind_of,
    partition_of,
    segments_in,
)
from oncelog.cli.log.replacing import fill, lost_ends
from oncelog.cli.log.survey import SurveyedSegment
from oncelog.core.ids import TopicPartition
from oncelog.core.limits import RECOVERY_READ_SIZE_BYTES
from oncelog.protocol.batch import HEADER_SIZE, MAGIC, check_crc
from oncelog.runtime.disk import SystemDisk
from oncelog.storage import LogConfig, PartitionLog
from oncelog.storage.aborted import AbortedTxn, parse_aborted
from oncelog.storage.files import (
    ABORTED_SUFFIX,
    INDEX_SUFFIX,
    RECOVERY_POINTS_NAME,
    TIME_INDEX_SUFFIX,
)
from oncelog.storage.header_walk import parse_header
from oncelog.storage.recovery_files import has_our_files

__all__ = ["Mend", "PartitionPlan", "plan_partition", "set_aside"]

ASIDE_SUFFIX: Final = ".damaged"
_BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
"""A larger range is not searched for a sound batch with a wrong offset."""
_DERIVED: Final = frozenset(
    {
        FileKind.INDEX,
        FileKind.TIME_INDEX,
        FileKind.ABORTED,
        FileKind.SNAPSHOT,
        FileKind.BATCHES,
        FileKind.LEADER_EPOCHS,
    }
)


@dataclass(frozen=True, slots=True)
class Mend:
    """One range of a log and the bytes that replace it."""

    position: int
    size: int
    replacement: bytes
    reason: str
    first_offset: int
    last_offset: int
    is_restored: bool = False

    @property
    def lost(self) -> str:
        """The offsets that the log no longer holds, in words; "" when there are none."""
        if self.is_restored or self.last_offset < self.first_offset:
            return ""
        if self.first_offset == self.last_offset:
            return f"offset {self.first_offset}"
        return f"offsets {self.first_offset} to {self.last_offset}"

    @property
    def deed(self) -> str:
        """Describe the repair."""
        if self.is_restored:
            return f"write the right offset {self.first_offset} into the batch"
        if self.replacement:
            return "replace it by an empty batch"
        return "cut it out"


@dataclass(slots=True)
class PartitionPlan:
    """The repair of one partition's folder."""

    folder: str
    was_closed: bool
    """Whether the broker stopped in order: then all of the log was synced."""
    is_ours: bool
    """Whether Oncelog wrote to the folder, and not only Apache Kafka."""
    mends: dict[str, list[Mend]] = field(default_factory=dict)
    """By path of the `.log` file."""
    files_aside: list[str] = field(default_factory=list)
    unmended: list[tuple[str, str]] = field(default_factory=list)
    """(path, finding) that this cannot help."""

    def __bool__(self) -> bool:
        return bool(self.mends or self.files_aside)

    def mend(self) -> Iterator[tuple[str, str]]:
        """Do it; yields (path, where the old content is) as files are replaced. Raises OSError."""
        for path, mends in self.mends.items():
            yield from self._mend_log(path, mends)
        for path in self.files_aside:
            if os.path.exists(path):
                yield path, set_aside(path)
        _sync(self.folder)
        self._recover()

    def _mend_log(self, path: str, mends: list[Mend]) -> Iterator[tuple[str, str]]:
        temporary = f"{path}.{os.getpid()}.tmp"
        try:
            _write_mended(path, temporary, mends)
            prefix = os.path.splitext(path)[0]
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                if os.path.exists(prefix + suffix):
                    yield prefix + suffix, set_aside(prefix + suffix)
            copy = _free_name(path)
            os.link(path, copy)
            _sync(self.folder)
            os.replace(temporary, path)
        finally:
            with suppress(FileNotFoundError):
                os.remove(temporary)
        _sync(self.folder)
        yield path, copy

    def _recover(self) -> None:
        """Let the log's own recovery read everything and write every file that follows from it.

        As at a start, it cuts nothing off that was synced.
        """
        name = partition_of(self.folder) or (os.path.basename(self.folder), 0)
        # The register tells the gaps of compaction from lost records; Apache Kafka has none.
        policy = "delete" if self.is_ours else "compact"
        config = LogConfig(cleanup_policy=frozenset({policy}))
        recovered = PartitionLog.open(
            SystemDisk(),
            self.folder,
            TopicPartition(*name),
            config,
            int(time.time() * 1000),
            clean=self.was_closed,
            recovery_point=noted_offset(self.folder, RECOVERY_POINTS_NAME),
            log_start_offset=log_start_of(self.folder),
            rescan=True,
        )
        recovered.close()


def plan_partition(folder: str, *, was_closed: bool) -> PartitionPlan:
    """Verify a partition and plan a repair for each finding. It changes nothing."""
    plan = PartitionPlan(folder, was_closed, has_our_files(SystemDisk(), folder))
    check = PartitionCheck(folder, was_closed=was_closed)
    damaged: list[SurveyedSegment] = []
    for finding in check.run(damaged.append):
        kind = kind_of(finding.path)
        if finding.severity != ERROR or _is_damage(finding.path, damaged):
            continue
        if kind in _DERIVED:
            if finding.path not in plan.files_aside:
                plan.files_aside.append(finding.path)
        else:
            plan.unmended.append((finding.path, f"{finding.where} {finding.text}".strip()))
    if check.is_unknown:
        # What was found before rests on a part of the log only: none of it is to be changed.
        plan.files_aside.clear()
        return plan
    bases = check.survey.bases
    aborted = _known_aborted(folder)
    for segment in damaged:
        following = [base for base in bases if base > segment.base_offset]
        plan.mends[segment.path] = _mends(segment, following[0] if following else None, aborted)
    if damaged:
        _doubt_what_follows(plan, damaged[0].base_offset)
    return plan


def _is_damage(path: str, damaged: list[SurveyedSegment]) -> bool:
    return any(segment.path == path for segment in damaged)


def _doubt_what_follows(plan: PartitionPlan, base: int) -> None:
    """What later snapshots say of producers may rest on what the damage took."""
    for name in sorted(os.listdir(plan.folder)):
        path = os.path.join(plan.folder, name)
        is_state = kind_of(name) in (FileKind.SNAPSHOT, FileKind.BATCHES) and not is_passing(name)
        if is_state and base_offset(name) > base and path not in plan.files_aside:
            plan.files_aside.append(path)


def _known_aborted(folder: str) -> list[AbortedTxn]:
    """What all sound `.txnindex` files of a partition say, by rising marker."""
    found: list[AbortedTxn] = []
    for base in segments_in(folder):
        data = read_file(os.path.join(folder, f"{base:020d}{ABORTED_SUFFIX}"))
        found += parse_aborted(data) or []
    return found


def _mends(
    segment: SurveyedSegment, next_base: int | None, aborted: list[AbortedTxn]
) -> list[Mend]:
    found = []
    with open(segment.path, "rb") as file:
        for damage, open_before in zip(segment.damages, segment.open_producers, strict=True):
            # Where no batch follows, the next segment says where the next offset is.
            is_open_end = damage.is_last and next_base is not None
            end = next_base if is_open_end and next_base is not None else damage.next_offset
            first, last = damage.first_offset, end - 1
            ends = lost_ends(open_before, aborted, first, last)
            file.seek(damage.position)
            data = file.read(min(damage.size, _BATCH_BYTES_MAX))
            restored = _with_offset(data, damage.size, first, last)
            place = (damage.position, damage.size)
            if restored is not None:
                found.append(Mend(*place, restored, damage.reason, first, last, True))
                continue
            epoch, newest_ms = damage.leader_epoch, segment.max_timestamp_ms
            filled = fill(first, last, epoch, newest_ms, ends)
            found.append(Mend(*place, filled, damage.reason, first, last))
    return found


def _with_offset(data: bytes, size: int, first: int, last: int) -> bytes | None:
    """Return the batch with a corrected offset, if nothing else is wrong with it."""
    if len(data) != size or size < HEADER_SIZE:
        return None
    header = parse_header(data, 0)
    # Where the offset is right, it is not what is wrong.
    fits = header.length == size and header.magic == MAGIC and header.base_offset != first
    if not fits or header.last_offset_delta != last - first or not check_crc(data, 0, header):
        return None
    return first.to_bytes(8, "big") + data[8:]


def _write_mended(path: str, target: str, mends: list[Mend]) -> None:
    with open(path, "rb") as source, open(target, "wb") as out:
        position = 0
        for mend in mends:
            _copy(source, out, position, mend.position)
            out.write(mend.replacement)
            position = mend.position + mend.size
        _copy(source, out, position, os.fstat(source.fileno()).st_size)
        out.flush()
        os.fsync(out.fileno())


def _copy(source: BinaryIO, out: BinaryIO, start: int, end: int) -> None:
    source.seek(start)
    while start < end:
        data = source.read(min(RECOVERY_READ_SIZE_BYTES, end - start))
        if not data:
            raise OSError(f"{source.name} became shorter while it was read")
        out.write(data)
        start += len(data)


def set_aside(path: str) -> str:
    """Rename a file to a free name beside it, which is returned."""
    copy = _free_name(path)
    os.rename(path, copy)
    return copy


def _free_name(path: str) -> str:
    """A name beside a file that nothing has yet."""
    name, number = path + ASIDE_SUFFIX, 1
    while os.path.lexists(name):
        number += 1
        name = f"{path}.{number}{ASIDE_SUFFIX}"
    return name


def _sync(folder: str) -> None:
    SystemDisk().sync_dir(folder)
