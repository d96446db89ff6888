"""Start a broker on a damaged folder, read everything, restart, and judge what was served.

The rules, whatever the damage:

- A start is refused in one sentence, and then no file has changed; or it succeeds.
- Every record that is served is one of the folder's, with its offset, key, value and time.
- Every record whose bytes are undamaged is served, except those behind damage above the recovery
  point (after a kill: the valid prefix) and those of folders that were set aside with an ERROR.
- read_committed never shows a record of an aborted or open transaction (INV-3).
- What is missing is said: a WARNING or an ERROR.
- The bytes of every log that was not damaged are still in the folder.
- A second start serves the same, and so do the coordinators.
"""

import asyncio
import logging
import shutil
import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from oncelog.cli.log.reading import IntactBatch, read_log
from oncelog.core.errors import ErrorCode, OncelogError
from oncelog.core.ids import TopicPartition
from oncelog.protocol.record import iter_records
from oncelog.runtime.loop import new_event_loop
from oncelog.storage.checkpoints import parse_offsets
from tests.corruption.reader import (
    Served,
    committed_offsets,
    described_transaction,
    read_partitions,
)
from tests.support.data_folder import MIXED, PLAIN, SETTINGS, TRANSACTIONAL_ID, TRIMMED
from tests.unit.broker.context import Client, running

__all__ = ["Baseline", "Outcome", "judge", "sound_baseline"]

T = TypeVar("T")

PARTITIONS = (MIXED, PLAIN, TRIMMED)
GROUP = "readers"
START_TIMEOUT_S = 20.0
MARKERS_WAIT_S = 2.0
_UNCOVERED_SIZE = 16
"""No CRC covers a batch's base offset, length and leader epoch."""
LOG_STARTS = "log-start-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"


@dataclass(slots=True)
class View:
    """What one run of the broker served and said."""

    served: dict[tuple[TopicPartition, int], Served] = field(default_factory=dict)
    offsets: dict[TopicPartition, int] | str = ""
    transaction: tuple[object, ...] | str = ""
    """State, producer id and epoch of the folder's transactional id, or the error."""
    said: list[str] = field(default_factory=list)
    refusal: str | None = None

    def records(self, partition: TopicPartition, isolation: int) -> Mapping[int, object]:
        found = self.served.get((partition, isolation))
        return found.records if found is not None else {}


@dataclass(slots=True)
class Baseline:
    """A sound folder: where it is, what is in it, and what a broker serves from it."""

    folder: Path
    was_clean: bool
    view: View
    points: dict[TopicPartition, int]
    files: dict[str, bytes]
    batches: dict[TopicPartition, list[tuple[Path, IntactBatch]]]
    everything: dict[TopicPartition, dict[int, object]]
    """All records in a partition's logs, deleted ones too."""


@dataclass(slots=True)
class Outcome:
    """What became of one damage. `failures` are broken rules; the rest is for the table."""

    verdict: str
    failures: list[str]
    said: list[str]
    lost_count: int = 0


class _Said(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()}")


@contextmanager
def _listening() -> Iterator[list[str]]:
    handler, logger = _Said(), logging.getLogger("oncelog")
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield handler.lines
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


async def _view(folder: Path) -> View:
    """Start, read everything, stop."""
    view = View()
    with _listening() as view.said:
        try:
            async with asyncio.timeout(START_TIMEOUT_S), running(folder, SETTINGS) as context:
                client = await context.connect()
                view.transaction = await _carried_out(client)
                for isolation in (0, 1):
                    found = await read_partitions(client, PARTITIONS, isolation)
                    for partition, served in found.items():
                        view.served[partition, isolation] = served
                view.offsets = await _loaded(lambda: committed_offsets(client, GROUP))
        except OncelogError as refusal:
            view.refusal = str(refusal)
    return view


async def _carried_out(client: Client) -> tuple[object, ...] | str:
    """The transaction, once its markers are written, unless their partition is gone."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + MARKERS_WAIT_S
    while True:
        found = await _loaded(lambda: described_transaction(client, TRANSACTIONAL_ID))
        if not str(found[0]).startswith("Prepare") or loop.time() > until_s:
            return found
        await asyncio.sleep(0.001)  # Nobody is told when it is complete.


async def _loaded(ask: Callable[[], Awaitable[T | str]]) -> T | str:
    """What a coordinator answers, once it has loaded its partition."""
    async with asyncio.timeout(START_TIMEOUT_S):
        while True:
            found = await ask()
            if found != ErrorCode.coordinator_load_in_progress.name:
                return found
            await asyncio.sleep(0.001)  # Nobody is told when a load is over.


def view(folder: Path) -> View:
    """As `_view`, on a loop of its own. Whatever is no refusal of ours is raised."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_view(folder))


def contents(folder: Path) -> dict[str, bytes]:
    """All files but the lock and what SQLite keeps beside its file."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in (".lock", "metadata.sqlite-shm")
    }


def sound_baseline(folder: Path, scratch: Path, *, was_clean: bool) -> Baseline:
    """What a broker serves from a copy of a sound folder."""
    copy = scratch / "baseline"
    shutil.copytree(folder, copy)
    seen = view(copy)
    shutil.rmtree(copy)
    assert seen.refusal is None, seen.refusal
    files = contents(folder)
    points = {} if was_clean else parse_offsets(files[RECOVERY_POINTS]) or {}
    batches = {partition: list(_batches(folder, partition)) for partition in PARTITIONS}
    everything = {partition: _records(found) for partition, found in batches.items()}
    return Baseline(folder, was_clean, seen, points, files, batches, everything)


def _batches(folder: Path, partition: TopicPartition) -> Iterator[tuple[Path, IntactBatch]]:
    for path in sorted((folder / str(partition)).glob("*.log")):
        for batch in read_log(str(path), int(path.stem)):
            assert isinstance(batch, IntactBatch)
            yield path, batch


def _records(batches: list[tuple[Path, IntactBatch]]) -> dict[int, object]:
    return {
        record.offset: (record.key, record.value, record.timestamp)
        for _, batch in batches
        if not batch.header.is_control
        for record in iter_records(batch.data, 0, batch.header)
    }


def judge(
    baseline: Baseline,
    folder: Path,
    changed: Mapping[str, bytes | None],
    *,
    restarts_count: int = 1,
) -> Outcome:
    """Judge a copy of the baseline's folder in which these files were changed (None: removed)."""
    first = view(folder)
    if first.refusal is not None:
        return _judge_refusal(first, {**baseline.files, **changed}, contents(folder))
    failures = _compare(baseline, first, changed)
    for _ in range(restarts_count):
        failures += _compare_restart(first, view(folder))
    failures += _gone(baseline, folder, changed)
    lost = sum(len(_lost(baseline, first, partition, 0)) for partition in PARTITIONS)
    return Outcome(_verdict(baseline, first, lost), failures, first.said, lost)


def _judge_refusal(
    seen: View, before: Mapping[str, bytes | None], after: Mapping[str, bytes]
) -> Outcome:
    refusal = seen.refusal or ""
    failures = [] if "\n" not in refusal else [f"the refusal is no sentence: {refusal!r}"]
    touched = [name for name in before if _is_kept(name) and after.get(name) != before[name]]
    if touched:
        failures.append(f"a refused start changed {', '.join(touched)}")
    return Outcome("refused", failures, [refusal])


def _is_kept(name: str) -> bool:
    return not name.startswith("metadata.sqlite")


def _lost(baseline: Baseline, seen: View, partition: TopicPartition, isolation: int) -> set[int]:
    expected = baseline.view.records(partition, isolation)
    return expected.keys() - seen.records(partition, isolation).keys()


def _compare(baseline: Baseline, seen: View, changed: Mapping[str, bytes | None]) -> list[str]:
    failures = []
    for partition in PARTITIONS:
        excused = _excused(baseline, partition, changed)
        is_aside = _is_aside(partition, seen)
        everything = baseline.everything[partition]
        moved = _moved(baseline, partition, changed)
        for isolation in (0, 1):
            records = seen.records(partition, isolation)
            where = f"{partition} {('uncommitted', 'committed')[isolation]}"
            altered = {o for o, found in records.items() if everything.get(o) != found} - moved
            if altered:
                failures.append(f"{where}: serves other records at {_spell(altered)}")
            if isolation:
                if not moved:
                    failures += _compare_committed(baseline, seen, partition, excused, where)
                continue
            lost = _lost(baseline, seen, partition, isolation) - excused
            if lost and not is_aside:
                failures.append(f"{where}: sound records are lost at {_spell(lost)}")
        missing = _lost(baseline, seen, partition, 0)
        # A wrong CRC is told by the reader: a broker does not look at each batch that it sends.
        refused = seen.served[partition, 0].refused
        starts = parse_offsets(changed.get(LOG_STARTS) or None) or {}
        end = baseline.view.served[partition, 0].end_offset
        start = starts.get(partition, 0)
        is_believable = start <= end and missing <= set(range(start))
        is_known = seen.said or refused or is_believable or _ends_sooner(baseline, changed)
        # Between others a batch with a lower offset is passed over, and nothing shows it.
        is_known = is_known or bool(moved and missing <= excused)
        if missing and not is_known:
            failures.append(f"{partition}: nothing is said of the loss at {_spell(missing)}")
    return failures + _compare_coordinators(baseline, seen, changed)


def _compare_committed(
    baseline: Baseline, seen: View, partition: TopicPartition, excused: set[int], where: str
) -> list[str]:
    records = seen.records(partition, 1)
    undecided = baseline.everything[partition].keys() - _committed_ever(baseline, partition)
    undecided -= _unknown(baseline, partition, excused)
    failures = []
    if shown := records.keys() & undecided:
        failures.append(f"{where}: shows records of aborted transactions at {_spell(shown)}")
    lost = _lost(baseline, seen, partition, 1) - excused
    # Where a marker may be lost, nothing behind it is decided for sure.
    if excused:
        lost = {offset for offset in lost if offset < min(excused)}
        # The transaction that the first damage hit may have begun before it.
        lost = {offset for offset in lost if offset < min(excused) - 3}
    if lost and not _is_aside(partition, seen):
        failures.append(f"{where}: sound records are lost at {_spell(lost)}")
    return failures


def _unknown(baseline: Baseline, partition: TopicPartition, damaged: set[int]) -> set[int]:
    """Records of transactions of which only the marker was damaged, and no index file tells.

    Of a killed broker's active segment there is no `.txnindex`. Such a transaction ends as the
    producer's next one does.
    """
    unknown: set[int] = set()
    first_of: dict[int, int] = {}
    for path, batch in baseline.batches[partition]:
        header = batch.header
        if not header.is_control:
            first_of.setdefault(header.producer_id, header.base_offset)
            continue
        first = first_of.pop(header.producer_id, header.base_offset)
        has_index = f"{partition}/{path.stem}.txnindex" in baseline.files
        if header.base_offset in damaged and not has_index:
            unknown |= set(range(first, header.base_offset))
    return unknown


def _committed_ever(baseline: Baseline, partition: TopicPartition) -> set[int]:
    deleted = range(baseline.view.served[partition, 0].start_offset)
    return {*baseline.view.records(partition, 1), *deleted}


def _excused(
    baseline: Baseline, partition: TopicPartition, changed: Mapping[str, bytes | None]
) -> set[int]:
    """Offsets that a broker need not serve any more."""
    excused: set[int] = set()
    starts = parse_offsets(changed.get(LOG_STARTS) or None)
    if starts is not None:
        # Another start that might be right is believed; one beyond the end is not.
        excused |= set(range(starts.get(partition, 0)))
    for name, data in changed.items():
        folder, _, file = name.partition("/")
        if folder != str(partition) or not file.endswith(".log"):
            continue
        sound = baseline.files[name]
        for path, batch in baseline.batches[partition]:
            start, end = batch.position, batch.position + batch.header.length
            if path.name == file and (data is None or data[start:end] != sound[start:end]):
                excused |= set(range(batch.header.base_offset, batch.header.next_offset))
        if _moved(baseline, partition, {name: data}):
            # A reader goes on behind the offset that it was shown, wherever that is.
            excused |= set(range(min(excused), 1_000))
        point = baseline.points.get(partition, 0)
        cut = [offset for offset in excused if offset >= point]
        if data is not None and len(data) > len(sound):
            cut.append(1_000)  # Bytes behind the last batch take no offset.
        if not baseline.was_clean and cut:
            excused |= set(range(min(cut), 1_000))
    return excused


def _is_aside(partition: TopicPartition, seen: View) -> bool:
    """Whether the folder was set aside, and an ERROR says so."""
    return any(
        line.startswith("ERROR") and str(partition) in line and "-stray" in line
        for line in seen.said
    )


def _moved(
    baseline: Baseline, partition: TopicPartition, changed: Mapping[str, bytes | None]
) -> set[int]:
    """Offsets that a sound batch may show, because its own offset was damaged.

    No CRC covers it, nor the leader epoch. After a clean stop nothing is read before it is asked
    for, so it is served as it stands, as by Apache Kafka; `oncelog log verify` finds it and
    `repair` puts it right.
    """
    moved: set[int] = set()
    for path, batch in baseline.batches[partition]:
        data = changed.get(f"{partition}/{path.name}") or b""
        start, end = batch.position, batch.position + batch.header.length
        shown = data[start:end]
        is_sound = shown[8:12] == batch.data[8:12] and shown[16:] == batch.data[16:]
        if is_sound and shown[:8] != batch.data[:8]:
            first = int.from_bytes(data[start : start + 8], "big", signed=True)
            moved |= set(range(first, first + batch.header.last_offset_delta + 1))
    for name, content in changed.items():
        folder, _, file = name.partition("/")
        if content and folder == str(partition) and file.endswith(".log"):
            batches = [batch for path, batch in baseline.batches[partition] if path.name == file]
            moved |= _spliced(content, batches, int(file.partition(".")[0]))
    return moved


def _spliced(data: bytes, batches: list[IntactBatch], expected: int) -> set[int]:
    """Offsets of batches that have the first bytes of another, and so the offset that was due.

    A piece of the file is gone, or stands there twice, from within these bytes of one batch to the
    same place of another: every CRC is right, and nothing says which batch it was.
    """
    known = {batch.data[_UNCOVERED_SIZE:]: batch for batch in batches}
    spliced: set[int] = set()
    position = 0
    while position + _UNCOVERED_SIZE < len(data):
        first, length = struct.unpack_from(">qi", data, position)
        end = position + 12 + length
        batch = known.get(data[position + _UNCOVERED_SIZE : end])
        if batch is None or first < expected:
            break
        expected = first + batch.header.last_offset_delta + 1
        if first != batch.header.base_offset:
            spliced |= set(range(first, expected))
        position = end
    return spliced


def _compare_coordinators(
    baseline: Baseline, seen: View, changed: Mapping[str, bytes | None]
) -> list[str]:
    if seen.said or _ends_sooner(baseline, changed):
        return []
    failures = []
    if seen.offsets != baseline.view.offsets:
        failures.append(f"the group's offsets are {seen.offsets}, and nothing is said")
    if seen.transaction != baseline.view.transaction:
        failures.append(f"the transaction is {seen.transaction}, and nothing is said")
    return failures


def _ends_sooner(baseline: Baseline, changed: Mapping[str, bytes | None]) -> bool:
    """Whether nothing but whole batches at the end is gone, all of them above the recovery point.

    A loss of power leaves a log so, and nobody can see it.
    """
    return not baseline.was_clean and all(
        name.endswith(".log")
        and baseline.files[name].startswith(data or b"")
        and len(data or b"") in _unsynced_places(baseline, name)
        for name, data in changed.items()
    )


def _unsynced_places(baseline: Baseline, name: str) -> set[int]:
    """Where in a log the batches begin that are above its recovery point."""
    path = baseline.folder / name
    point = baseline.points.get(_partition_of(name), 0)
    return {
        batch.position
        for batch in read_log(str(path), int(path.stem))
        if isinstance(batch, IntactBatch) and batch.header.base_offset >= point
    }


def _compare_restart(first: View, second: View) -> list[str]:
    if second.refusal is not None:
        return [f"the second start is refused: {second.refusal}"]
    failures = []
    for key, served in first.served.items():
        if second.served[key].records != served.records:
            failures.append(f"{key[0]}: the second start serves something else")
    if (second.offsets, second.transaction) != (first.offsets, first.transaction):
        failures.append(
            f"the second start's coordinators answer {second.offsets} and {second.transaction}, "
            f"the first one's {first.offsets} and {first.transaction}"
        )
    return failures


def _gone(baseline: Baseline, folder: Path, changed: Mapping[str, bytes | None]) -> list[str]:
    """Logs that were not damaged and are no longer there, under any name."""
    kept = list(contents(folder).values())
    lost = []
    for name, data in baseline.files.items():
        if not name.endswith(".log") or name in changed or not data:
            continue
        point = baseline.points.get(_partition_of(name), 0)
        is_above = not baseline.was_clean and int(Path(name).stem) >= point
        behind_damage = any(other.split("/")[0] == name.split("/")[0] for other in changed)
        if is_above and behind_damage:
            continue
        if not any(each.startswith(data) for each in kept):
            lost.append(name)
    return [f"{name} is no longer there" for name in lost]


def _partition_of(name: str) -> TopicPartition:
    topic, _, number = name.split("/")[0].rpartition("-")
    return TopicPartition(topic, int(number))


def _verdict(baseline: Baseline, seen: View, lost_count: int) -> str:
    if any(_is_aside(partition, seen) for partition in PARTITIONS):
        return "set aside"
    refused = sum(len(found.refused) for found in seen.served.values())
    if lost_count:
        return "marked" if refused else "valid prefix"
    again = any(
        seen.records(partition, 0).keys() - baseline.view.records(partition, 0).keys()
        for partition in PARTITIONS
    )
    if again:
        return "deleted records show again"
    if isinstance(seen.offsets, str) or isinstance(seen.transaction, str):
        return "coordinator unavailable"
    sound = (baseline.view.offsets, baseline.view.transaction)
    return "right" if (seen.offsets, seen.transaction) == sound else "coordinator cut"


def _spell(offsets: set[int]) -> str:
    shown = sorted(offsets)
    return ", ".join(map(str, shown[:5])) + (" ..." if len(shown) > 5 else "")
