"""Simulates which records a reader has of a log, and where it goes on.

A log of which all is known is fetched in pieces from anywhere, by readers of both isolation levels.
What they show is compared with what the log's list implies: each record once and in order, and no
other (INV-3). Used by `readers`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final

from oncelog.client.machines.decided import DecidedValue
from oncelog.client.machines.fetch_room import held_size
from oncelog.client.machines.fetching import Aborted, BadBatch, read_records, visible_batches
from oncelog.client.values import ConsumerRecord, FetchedPartition
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.simulation.components.fetched_log import PLACE, FetchedLog, LaidBatch

__all__ = ["reads"]

LIVES_COUNT: Final = 2
STEPS_COUNT: Final = 70
_RECORD_OVERHEAD: Final = 272
"""Bytes that a record takes beside what it contains."""


def reads(rng: random.Random) -> Iterator[str]:
    """Simulate readers of some logs; yield what is wrong with the first that is."""
    for life in range(LIVES_COUNT):
        for text in _ReadLog(rng).live():
            yield f"log {life}: {text}"
            return


class _ReadLog:
    """A log that grows, and those who read it."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._log = FetchedLog(rng, is_sound=rng.random() < 0.6)
        self._readers = [_Reader(rng, self._log, is_committed=level) for level in (True, False)]
        self._decider: _Decider | None = _Decider(self._log, rng.choice((b"a", b"b")))

    def live(self) -> Iterator[str]:
        for step in range(STEPS_COUNT):
            chance = self._rng.random()
            if chance < 0.5:
                self._log.grow()
                continue
            if chance < 0.6 and self._decider is not None:
                texts = list(self._decider.fetch())
                if self._decider.is_stuck:
                    self._decider = None
            else:
                texts = list(self._rng.choice(self._readers).fetch())
            if texts:
                yield from (f"step {step}: {text}" for text in texts)
                return
        for reader in self._readers:
            yield from reader.look_back()


class _Reader:
    """One reader, as `oncelog.client.reading` makes it go on."""

    def __init__(self, rng: random.Random, log: FetchedLog, *, is_committed: bool) -> None:
        self._rng = rng
        self._log = log
        self._is_committed = is_committed
        self._checks_crcs = rng.random() < 0.8
        self._start = self._position = 0
        self._had: list[ConsumerRecord] = []
        self._lost: list[tuple[int, int]] = []
        """From where up to where it went on behind damage."""

    def fetch(self) -> Iterator[str]:
        """Fetch once and compare what is visible; seek now and then, and behind damage."""
        if self._rng.random() < 0.1:
            yield from self.look_back()
            self._start = self._position = self._rng.randint(0, self._log.end)
            self._had, self._lost = [], []
        answer = self._log.answer(self._position, self._is_committed)
        sound, damaged = self._divided(answer.batches)
        passed = [each for each in sound if each.end > self._position]
        reached = passed[-1].end if passed else self._position
        aborted = None
        if answer.aborted is not None:
            aborted = [Aborted(first, producer_id) for first, producer_id in answer.aborted]
        try:
            visible = visible_batches(
                answer.buffer, self._position, aborted, check_crcs=self._checks_crcs
            )
        except BadBatch as bad:
            if damaged is None or passed:
                yield f"{bad} at {bad.offset}, although {len(passed)} batches are sound"
            elif (bad.offset, bad.code) != (self._position, ErrorCode.corrupt_message):
                yield f"damage is named at {bad.offset} ({bad.code}), not {self._position}"
            else:
                self._pass_over(damaged)
            return
        if damaged is not None and not passed:
            yield f"nothing tells of the damage at {damaged.base}"
            return
        due = (reached, passed[-1].epoch if passed else -1)
        if visible[1:] != due:
            yield f"next offset and leader epoch are {visible[1:]}, not {due}"
            return
        shown = [each for each in passed if each.is_for(self._is_committed)]
        is_alone = answer.batches[: len(shown)] == shown
        if not any(each.is_old for each in shown):
            if bytes(visible.batches) != b"".join(each.payload for each in shown):
                yield f"the batches from {self._position} to {reached} are not those visible"
                return
            if shown and is_alone and getattr(visible.batches, "obj", None) is not answer.buffer:
                yield "bytes are copied although no batch is left out in between"
        yield from self._read(visible.batches, shown, reached)

    def _divided(self, batches: Sequence[LaidBatch]) -> tuple[list[LaidBatch], LaidBatch | None]:
        """What is before the first damage that shows, and the damaged batch."""
        shows = {"shape", "marker"} | ({"crc"} if self._checks_crcs else set())
        for index, each in enumerate(batches):
            if each.damage in shows:
                return list(batches[:index]), each
        return list(batches), None

    def _read(
        self, batches: bytes | bytearray | memoryview, shown: list[LaidBatch], reached: int
    ) -> Iterator[str]:
        """Read the records of what is visible, up to one that is damaged."""
        due: list[ConsumerRecord] = []
        damaged, bad_at = None, -1
        for each in shown:
            due += [record for record in each.records if record.offset >= self._position]
            if each.damage == "record":
                behind = [record.offset + 1 for record in each.records]
                damaged, bad_at = each, max(self._position, each.base, *behind)
                break
        fetched = FetchedPartition(PLACE, batches, reached, reached, reached, 0)
        records, bad = read_records(fetched, self._position)
        if records != due:
            yield f"from {self._position} on {records} are read, not {due}"
            return
        if (-1 if bad is None else bad.offset) != bad_at:
            yield f"damage is named as {bad!r}, it is at {bad_at}"
            return
        content = sum(len(record.key or b"") + len(record.value or b"") for record in records)
        content += sum(len(a) + len(b or b"") for each in records for a, b in each.headers)
        if damaged is None and not any(each.is_packed for each in shown):
            content = len(batches)
        size = held_size(batches if bad is None else None, records)
        if size != content + _RECORD_OVERHEAD * len(records):
            yield f"{len(records)} records of {content} bytes are held as {size}"
        self._had += records
        if damaged is None:
            self._position = reached
        elif records:
            self._position = bad_at
        else:
            self._pass_over(damaged)

    def _pass_over(self, damaged: LaidBatch) -> None:
        self._lost.append((self._position, damaged.end))
        self._position = damaged.end

    def look_back(self) -> Iterator[str]:
        """Compare all that was read since the start with all that there was to read."""
        due = [
            record
            for batch in self._log.batches
            for record in batch.records
            if self._start <= record.offset < self._position
            and batch.is_for(self._is_committed)
            and not any(start <= record.offset < end for start, end in self._lost)
        ]
        if self._had != due:
            yield f"from {self._start} to {self._position} it read {self._had}, not {due}"


class _Decider:
    """One who looks for the last committed value of a key, in spite of open transactions."""

    def __init__(self, log: FetchedLog, key: bytes) -> None:
        self._log = log
        self._key = key
        self._real = DecidedValue(key)
        self._position = 0
        self.is_stuck = False

    def fetch(self) -> Iterator[str]:
        """Read on, and compare what is decided; it cannot pass over damage."""
        answer = self._log.answer(self._position, False)
        damages = [each for each in answer.batches if each.damage]
        if any(each.damage in ("record", "marker") for each in damages):
            self.is_stuck = True
            return
        sound = [each for each in answer.batches if not damages or each.end <= damages[0].base]
        reached = max([self._position, *(each.end for each in sound)])
        try:
            found = self._real.read(answer.buffer, self._position)
        except ProtocolError as error:
            self.is_stuck = True
            if not damages or error.code is not ErrorCode.corrupt_message:
                yield f"{error!r} about {answer.batches}"
        else:
            if damages:
                yield f"the damage at {damages[0].base} is read"
            if found != reached:
                yield f"it goes on at {found}, not {reached}"
        self._position = reached
        yield from self._judge()

    def _judge(self) -> Iterator[str]:
        """The value that was decided last counts: where it stands, or where its marker does."""
        decided: list[tuple[int, bytes | None]] = [(-1, None)]
        is_undecided = False
        for batch in self._log.batches:
            mine = [each for each in batch.records if each.key == self._key]
            if not mine or batch.end > self._position:
                continue
            transaction, value = batch.transaction, mine[-1].value
            if transaction is None:
                decided.append((mine[-1].offset, value))
            elif not 0 <= transaction.marker < self._position:
                is_undecided = True
            elif transaction.is_commit:
                decided.append((transaction.marker, value))
        # Of one transaction the last record counts, which comes last here too.
        _, value = sorted(decided, key=lambda each: each[0])[-1]
        if (self._real.value, self._real.is_undecided) != (value, is_undecided):
            found = self._real.value, self._real.is_undecided
            yield f"{self._key!r} is decided as {found}, not {(value, is_undecided)}"
