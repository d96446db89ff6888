"""What is done to the simulated logs beside appending, and what each of it must come to.

See `log_life`. Any step may be interrupted by a death of the process, or by a loss of power.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate
from typing import Final

from oncelog.core.ids import TopicId, TopicPartition
from oncelog.simulation.components import log_checks
from oncelog.simulation.components.log_life import COMPACTED, FOLDERS, PLAIN, LogFolders, Truth
from oncelog.simulation.disk import Moment
from oncelog.simulation.oracle.batches import RawBatch
from oncelog.simulation.oracle.history import RawLog
from oncelog.simulation.scheduler import ProcessDied
from oncelog.storage import PartitionLog
from oncelog.storage.cleaner import clean_log, write_clean_offsets
from oncelog.storage.moves import LogMove

__all__ = ["LogLife", "logs"]

NONE: Final = -1
STEPS_COUNT: Final = 60
DEATH_CHANCE: Final = 0.1
REGISTER: Final = "oncelog.segments"
DERIVED: Final = (".index", ".timeindex", ".txnindex", ".snapshot", ".batches", REGISTER)
_WEIGHTS: Final = {"append": 24.0, "end a transaction": 6.0, "wait": 2.0, "lead again": 0.5}


def logs(rng: random.Random) -> Iterator[str]:
    """Simulate one life of two logs; yield what is wrong after the first step that is."""
    life = LogLife(rng)
    life.open()
    for number in range(STEPS_COUNT):
        name = life.step()
        if life.wrong:
            yield from (f"step {number}, {name}: {text}" for text in life.wrong)
            return


class LogLife(LogFolders):
    """One life of the two logs."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._steps: dict[str, Callable[[TopicPartition], None]] = {
            "append": self._append,
            "end a transaction": self._end,
            "wait": self._wait,
            "lead again": self._lead,
            "flush": self._flush,
            "write checkpoints": self._checkpoint,
            "retain": self._retain,
            "delete records": self._delete_records,
            "truncate": self._truncate,
            "clean": self._clean,
            "stop and start": self._stop,
            "stop and lose files": self._stop_and_lose,
            "die": self._die,
            "lose power": self._lose_power,
            "move": self._move,
            "make again": self._make_again,
        }
        self._order = list(self._steps)
        weights = [_WEIGHTS.get(name, 1.0) * rng.choice((0.3, 1.0, 2.0)) for name in self._order]
        self._weights = list(accumulate(weights))

    def step(self) -> str:
        """Do one thing, perhaps dying in it; return its name."""
        name = self._rng.choices(self._order, cum_weights=self._weights)[0]
        partition = self._rng.choice((PLAIN, COMPACTED))
        may_die = self._rng.random() < DEATH_CHANCE
        if may_die:
            after, moment = self._rng.choice((1, 2, 3, 5, 9, 20)), self._rng.choice(_MOMENTS)
            self._disk.arm_kill(self._owner, after_operations=after, moment=moment)
        try:
            self._steps[name](partition)
            self._disk.disarm_kill(self._owner)
        except ProcessDied:
            name = f"die in {name}"
            self._opened_after_death(partition, name)
        for each in (PLAIN, COMPACTED):
            self._look(each)
        return f"{name} ({partition})"

    # --- time and leaders

    def _wait(self, _: TopicPartition) -> None:
        self._time_ms += self._rng.choice((10, 900, 4_000, 30_000))

    def _lead(self, partition: TopicPartition) -> None:
        self._epoch += 1
        self._log(partition).begin_epoch(self._epoch)

    # --- upkeep

    def _flush(self, partition: TopicPartition) -> None:
        log = self._log(partition)
        log.flush()
        self._same(partition, "the recovery point", log.recovery_point, log.log_end_offset)
        self._note_synced(partition)

    def _checkpoint(self, _: TopicPartition) -> None:
        """Write the checkpoints of all logs: where each is synced, and begins."""
        self._write_high_watermarks()
        self._logs.checkpoint()
        for folder in FOLDERS:
            here = [each for each in self._truths if self._path(each).startswith(f"{folder}/")]
            logs = {each: self._log(each) for each in here}
            points = {each: log.recovery_point for each, log in logs.items()}
            starts = {each: log.log_start_offset for each, log in logs.items()}
            starts = {each: start for each, start in starts.items() if start}
            for name, wanted in (("recovery-point", points), ("log-start", starts)):
                held = self._noted(folder, f"{name}-offset-checkpoint")
                if held != wanted:
                    self.wrong.append(f"{folder}: the {name}s are {held}, not {wanted}")
        self._same(PLAIN, "watermarks", self._logs.read_high_watermarks().keys(), set(self._truths))

    def _write_high_watermarks(self) -> None:
        self._logs.write_high_watermarks({each: self._watermark(each) for each in self._truths})

    def _noted(self, folder: str, name: str) -> dict[TopicPartition, int]:
        lines = (self._disk.peek(f"{folder}/{name}") or b"").decode().split("\n")[2:]
        rows = (line.split() for line in lines if line)
        return {TopicPartition(topic, int(index)): int(offset) for topic, index, offset in rows}

    def _retain(self, partition: TopicPartition) -> None:
        log, truth, raw = self._log(partition), self._truths[partition], self._read(partition)
        high_watermark = self._rng.choice((log.log_end_offset, self._rng.randint(0, truth.end)))
        wanted = log_checks.expired_count(raw, log, self._time_ms, high_watermark)
        deleted: list[str] | None = [] if self._rng.random() < 0.5 else None
        truth.start_max = truth.end
        count = log.delete_old_segments(self._time_ms, high_watermark, deleted)
        for path in deleted or ():
            self._view.remove(path)
        if wanted is not None:
            self._same(partition, "the count of expired files", count, wanted)
        self._settle_start(partition)

    def _settle_start(self, partition: TopicPartition) -> None:
        """Note where the log begins: at its oldest file, or later."""
        log, truth = self._log(partition), self._truths[partition]
        truth.start = max(truth.start, self._read(partition).first_offset)
        truth.start_max = truth.start
        self._same(partition, "the start", log.log_start_offset, truth.start)

    def _delete_records(self, partition: TopicPartition) -> None:
        log, truth = self._log(partition), self._truths[partition]
        offset = self._rng.randint(truth.start, log.log_end_offset)
        truth.start_max = max(truth.start, offset)
        self._same(partition, "the start", log.delete_records(offset), offset)
        truth.start = offset

    def _truncate(self, partition: TopicPartition) -> None:
        """Cut the end, as a follower does."""
        log, truth, raw = self._log(partition), self._truths[partition], self._read(partition)
        # What is cleaned is committed, and nothing that is committed is ever cut.
        low = max(raw.first_offset, truth.start, truth.committed_end)
        if truth.end - low < 1 or self._rng.random() < 0.5:
            return
        offset = self._rng.randint(low, truth.end)
        truth.cut_to = offset
        truth.durable_end = min(truth.durable_end, offset)
        truth.clean_offset = min(truth.clean_offset, offset)
        note = partial(self._logs.note_truncation, partition, offset)
        log.truncate_to(offset, self._time_ms, note)
        truth.batches = [batch for batch in truth.batches if batch.last_offset < offset]
        truth.cut_to = None
        truth.restarts_at.add(log.log_end_offset)
        truth.start = truth.start_max = min(truth.start, log.log_end_offset)
        truth.durable_end = log.recovery_point = min(truth.durable_end, log.log_end_offset)
        truth.forgotten_below = max(truth.forgotten_below, log.log_end_offset)

    def _clean(self, partition: TopicPartition) -> None:
        """Compact all that may be; what is left is known by the bytes of before."""
        log, truth = self._log(COMPACTED), self._truths[COMPACTED]
        raw = self._read(COMPACTED)
        before, ended = raw.batches(), [each for each in raw.state.ended if not each.is_commit]
        aborted = {
            batch.base_offset
            for batch in before
            for each in ended
            if not batch.is_control and batch.is_transactional
            if batch.producer_id == each.producer_id
            if each.first_offset <= batch.base_offset < each.marker_offset
        }
        stable = raw.state.last_stable_offset(truth.end)
        bound = min(stable, log.cleaning.active_base_offset)
        bases = [*log.segment_base_offsets, truth.end]
        wanted_end = max((base for base in bases if base <= bound), default=bases[0])
        truth.is_cleaning = True
        truth.committed_end = truth.end
        self._watermarks[COMPACTED] = truth.end  # The cleaner asks at the log's end.
        end, _ = clean_log(self._view, log, self._time_ms, clean_offset=truth.clean_offset)
        truth.is_cleaning = False
        is_dirty = max(truth.clean_offset, truth.start) < wanted_end
        if is_dirty and not raw.first_offset:  # Else a transaction may be open that began before.
            self._same(COMPACTED, "the end of what is clean", end, wanted_end)
        after = self._reread(COMPACTED).batches()
        kept, markers = log_checks.kept_by_cleaning(before, end, aborted, self._time_ms)
        held = {r.offset for b in after if not b.is_control for r in b.records()}
        truth.passed_over_below = max(truth.passed_over_below, truth.start)
        if is_dirty:
            kept = {offset for offset in kept if offset >= truth.passed_over_below}
            held = {offset for offset in held if offset >= truth.passed_over_below}
            self._same(COMPACTED, "what a cleaning keeps", sorted(held), sorted(kept))
            left = {b.base_offset for b in after if b.is_control and b.record_count}
            due = (offset for offset in markers - left if offset >= truth.passed_over_below)
            self._same(COMPACTED, "the markers that it lost", sorted(due), [])
        # A loss of power may bring back what retention took before.
        taken = [each for each in truth.batches if each.last_offset < raw.first_offset]
        truth.batches = [*taken, *after]
        folder = self._path(COMPACTED).rpartition("/")[0]
        write_clean_offsets(self._view, folder, {COMPACTED: end})
        truth.clean_offset = end
        truth.forgotten_below = max(truth.forgotten_below, end)

    def _reread(self, partition: TopicPartition) -> RawLog:
        self._raw.pop(partition, None)
        return self._read(partition)

    # --- the end of a process

    def _shown(self, partition: TopicPartition) -> tuple[object, ...]:
        """Everything of a log that a clean stop and a start must not change.

        An epoch that wrote nothing begins again, and none is known of a log without records.
        """
        log, raw = self._log(partition), self._read(partition)
        end = log.log_end_offset
        written = raw.state.epochs[-1][0] if raw.state.end_offset > log.log_start_offset else NONE
        producers = [
            (e.producer_id, e.epoch, e.coordinator_epoch, e.transaction_first_offset, [*e.batches])
            for e in log.producers.entries()
        ]
        return (
            log.log_start_offset,
            end,
            log.last_stable_offset(self._watermark(partition)),
            sorted(producers, key=lambda each: each[0]),
            log.aborted_transactions(0, end),
            [log.end_offset_for_epoch(epoch) for epoch in range(written + 1)],
            log.segment_base_offsets,
            log.size_bytes,
            log.offset_for_timestamp(None),
        )

    def _stop(self, _: TopicPartition) -> None:
        """Stop in order and start again: nothing is scanned, and every answer is as before."""
        before = self._close()
        self.open()
        for each, shown in before.items():
            log = self._log(each)
            self._same(each, "after a clean stop it", self._shown(each), shown)
            report = log.recovery
            counts = report.to_scan_bytes, report.rebuilt_segments_count
            work = (*counts, report.replayed_batches_count, report.reasons)
            self._same(each, "the work of a start after a clean stop", work, (0, 0, 0, []))
            self._note_opened(each)

    def _close(self) -> dict[TopicPartition, object]:
        before: dict[TopicPartition, object] = {}
        for each, truth in self._truths.items():
            before[each] = self._shown(each)
            truth.restarts_at.add(self._log(each).log_end_offset)
        self._write_high_watermarks()
        self._logs.close()
        for each in self._truths:
            self._look_at_files(each, was_closed=True)
            self._truths[each].durable_end = self._truths[each].end
        self._owner.kill("stopped")
        return before

    def _note_opened(self, partition: TopicPartition) -> None:
        log, truth = self._log(partition), self._truths[partition]
        truth.restarts_at = {log.log_end_offset, *truth.restarts_at}
        self._same(partition, "the recovery point", log.recovery_point, log.log_end_offset)
        truth.durable_end = log.log_end_offset
        self._look_at_files(partition, was_closed=False)

    def _stop_and_lose(self, _: TopicPartition) -> None:
        """Stop, lose files that follow from the log, and start: they are rebuilt, and stay."""
        before = self._close()
        lost: set[TopicPartition] = set()
        for each, truth in self._truths.items():
            path = self._where(each)
            names = [n for n in self._disk.names(path) if n.endswith(DERIVED)]
            chosen = self._rng.sample(names, min(len(names), self._rng.choice((0, 1, 2, 5))))
            if REGISTER in chosen:  # Without it a start believes what is there, as Kafka does.
                chosen = [REGISTER]
            for name in chosen:
                self._disk.remove_file(self._rng, f"{path}/{name}".__eq__)
                lost.add(each)
                truth.forgotten_below = truth.end
        self.open()
        for each in self._truths:
            self._same(each, "after a clean stop it", _range(self._log(each)), before[each][:2])  # type: ignore[index]
            self._note_opened(each)
        self._stop(PLAIN)

    def _die(self, partition: TopicPartition) -> None:
        self._owner.kill("killed")
        self._opened_after_death(partition, "die")

    def _opened_after_death(self, partition: TopicPartition, name: str) -> None:
        """Start again. The system has all that was written, so nothing is lost."""
        if not self._owner.alive:
            self._manager = None
        for truth in self._truths.values():
            truth.was_dirty = True
            truth.highest_start = max(truth.highest_start, truth.start_max)
        points = {folder: self._noted(folder, RECOVERY_POINTS) for folder in FOLDERS}
        starts = {folder: self._noted(folder, LOG_STARTS) for folder in FOLDERS}
        if "make again" in name or "move" in name or "lose" in name or "stop" in name:
            points = {}
        self.open()
        for each, truth in self._truths.items():
            log, folder = self._log(each), self._path(each).rpartition("/")[0]
            self._settle(each, truth, lost_power=False)
            noted = starts[folder].get(each, 0)
            raw = self._reread(each)
            wanted = min(max(noted, raw.first_offset), log.log_end_offset)
            if "move" not in name and "make" not in name:
                self._same(each, "the start", log.log_start_offset, wanted)
            truth.start = truth.start_max = log.log_start_offset
            if each in points.get(folder, {}) and "die in" not in name:
                self._compare_scanned(each, points[folder][each])
            self._note_opened(each)

    def _compare_scanned(self, partition: TopicPartition, point: int) -> None:
        """A start reads the files that may hold what was not synced, and no other."""
        log, raw = self._log(partition), self._read(partition)
        sizes = [sum(len(batch.data) for batch in batches) for batches in raw.segments.values()]
        ends = [*log.segment_base_offsets[1:], 1 << 62]
        due = sum(size for size, end in zip(sizes, ends, strict=True) if end >= point)
        self._same(partition, "the bytes to scan", log.recovery.to_scan_bytes, due)

    def _settle(self, partition: TopicPartition, truth: Truth, *, lost_power: bool) -> None:
        """Take over what a start found, which must be what was there, or part of it."""
        raw = self._reread(partition)
        found = raw.batches()
        first = raw.first_offset
        due = [batch for batch in truth.batches if batch.last_offset >= first]
        if truth.is_cleaning or (partition == COMPACTED and lost_power):
            self._settle_thinned(partition, truth, found)
        elif truth.cut_to is not None:
            keep = [batch for batch in due if batch.last_offset < truth.cut_to]
            self._same(partition, "what is left", _datas(found[: len(keep)]), _datas(keep))
            self._same(partition, "what is left", _datas(found), _datas(due[: len(found)]))
            truth.cut += due[len(found) :]
        elif not lost_power:
            allowed = [_datas(due), _datas([*due, *truth.in_doubt])]
            if _datas(found) not in allowed:
                self.wrong.append(f"{partition}: {len(found)} batches are left of {len(due)}")
        else:
            must = [b for b in due if b.last_offset < truth.durable_end]
            every = [*truth.batches, *truth.in_doubt, *truth.cut]
            known = {batch.data for batch in every}
            self._same(partition, "what was synced", _datas(found[: len(must)]), _datas(must))
            self._same(
                partition,
                "the count of foreign batches",
                sum(b.data not in known for b in found),
                0,
            )
        # A loss of power may bring back what retention took before it.
        taken = [batch for batch in truth.batches if batch.last_offset < first]
        truth.batches = [*taken, *found]
        truth.in_doubt, truth.cut_to, truth.is_cleaning = [], None, False
        truth.clean_offset = min(truth.clean_offset, truth.end)
        truth.committed_end = min(truth.committed_end, truth.end)

    def _settle_thinned(
        self, partition: TopicPartition, truth: Truth, found: list[RawBatch]
    ) -> None:
        """A cleaning that was interrupted may be done in part: no newest record is gone."""
        known = {r.offset: (r.key, r.value) for b in truth.batches for r in b.records()}
        known |= {r.offset: (r.key, r.value) for b in truth.in_doubt for r in b.records()}
        held = {r.offset: (r.key, r.value) for b in found for r in b.records()}
        foreign = [at for at, record in held.items() if known.get(at) != record]
        self._same(partition, "records that were never there", foreign, [])

    def _lose_power(self, partition: TopicPartition) -> None:
        self._disk.lose_power(self._rng)
        self._manager = None
        for truth in self._truths.values():
            truth.was_dirty = True
            truth.highest_start = max(truth.highest_start, truth.start_max)
            truth.forgotten_below = truth.end
        self.open()
        for each, truth in self._truths.items():
            self._settle(each, truth, lost_power=True)
            log = self._log(each)
            if log.log_start_offset > truth.start_max:
                self.wrong.append(f"{each}: it starts at {log.log_start_offset}")
            truth.start = truth.start_max = log.log_start_offset
            truth.forgotten_below = truth.end
            self._note_opened(each)
        self._checkpoint(partition)

    # --- folders

    def _move(self, partition: TopicPartition) -> None:
        """Move a log to the other folder, while it takes appends."""
        manager, log = self._logs, self._log(partition)
        source = manager.folder_of(partition)
        target = next(folder for folder in manager.folders if folder is not source)
        truth = self._truths[partition]
        if source is None:
            return
        move = LogMove(self._view, log, source, target, truth.topic_id, self._time_ms)
        truth.forgotten_below = truth.end
        truth.clean_offset = 0
        while not move.copy():
            pass
        for _ in range(self._rng.choice((0, 1, 3))):
            self._append(partition)
        if self._rng.random() < 0.2:
            move.abandon()
            return
        move.finish()
        self._same(partition, "what is left to copy", move.lag, 0)
        truth.forgotten_below = truth.end
        truth.restarts_at.add(truth.end)
        shown = _range(log)
        move.swap()
        self._same(partition, "the moved log", _range(self._log(partition)), shown)
        self._same(partition, "its folder", manager.folder_of(partition), target)
        self._where(partition)
        self._raw.pop(partition, None)
        truth.start = truth.start_max = self._log(partition).log_start_offset
        first = self._read(partition).first_offset
        truth.batches = [batch for batch in truth.batches if batch.last_offset >= first]
        self._note_opened(partition)

    def _make_again(self, partition: TopicPartition) -> None:
        """Delete the topic, and make another one of the same name."""
        truth = self._truths[partition] = Truth(TopicId(int=next(self._topic_ids)))
        doomed = self._logs.delete(partition)
        if doomed is None:
            self.wrong.append(f"{partition}: there was nothing to delete")
            return
        if self._rng.random() < 0.5:
            self._view.remove_tree(doomed)
        self._raw.pop(partition, None)
        self._watermarks.pop(partition, None)
        config = self._configs[partition.topic]
        self._logs.create(partition, truth.topic_id, config, self._time_ms)
        self._same(partition, "the new log's end", self._log(partition).log_end_offset, 0)


_MOMENTS: Final[tuple[Moment, ...]] = ("before", "after", "torn")
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"


def _range(log: PartitionLog) -> tuple[int, int]:
    return log.log_start_offset, log.log_end_offset


def _datas(batches: list[RawBatch]) -> list[bytes]:
    return [batch.data for batch in batches]
