"""Simulates the runtime of coordinators alone: an event processor, its timers, and the replay.

The processor drives a toy shard; events, commits, failures, drops and time come in any order, and
everything that it gives its shell is compared with `ExpectedProcessor`, call by call. Timers are
compared with a dictionary. A load that goes by `ReplayBuffer` must end as one that applies every
record, wherever its stretches end.
"""

from __future__ import annotations

import random
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from oncelog.coordinator import (
    CoordinatorMetadata,
    CoordinatorRecord,
    EndTransactionMarker,
    EventProcessor,
    Output,
    RecordContext,
    ReplayBuffer,
    marker_context,
)
from oncelog.coordinator.patterns import matching
from oncelog.coordinator.shard import clock_shift_ms
from oncelog.coordinator.timers import Timers
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import Offset, ProducerEpoch, ProducerId
from oncelog.core.limits import CLOCK_JUMP_MS_MIN
from oncelog.protocol.records.scan import ScannedRecord
from oncelog.simulation.components.processor_model import (
    ExpectedProcessor,
    Said,
    Toy,
    ToyEvent,
)

__all__ = ["lives", "loads", "processor", "timers"]

LIVES_COUNT: Final = 4
STEPS_COUNT: Final = 120
_KINDS: Final = ("read", "write", "write", "free", "free", "chain", "block", "release")
_FAILURES: Final = (ErrorCode.not_leader_or_follower, ErrorCode.kafka_storage_error)


def processor(rng: random.Random) -> Iterator[str]:
    """Simulate some lives of each; yield what is wrong at the first step that is."""
    yield from lives(rng)
    yield from timers(rng, Timers())
    yield from _small_parts(rng)
    yield from loads(rng)


def lives(
    rng: random.Random,
    make: type[EventProcessor[ToyEvent, Said, int]] = EventProcessor,
) -> Iterator[str]:
    """Simulate some processors; yield what is wrong with the first that is."""
    for life in range(LIVES_COUNT):
        for text in _ProcessorLife(rng, make).live():
            yield f"life {life} of a processor: {text}"
            return


class _ProcessorLife:
    """One processor from its load to its end, and what it has to do."""

    def __init__(self, rng: random.Random, make: type[EventProcessor[ToyEvent, Said, int]]) -> None:
        self._rng = rng
        wait_ms = rng.choice((None, 300, 5_000, 9_000))
        self._toy = Toy()
        self._real = make(self._toy, CoordinatorMetadata(), wait_ms)
        self._due = ExpectedProcessor(wait_ms)
        self._now_ms = 1_000_000
        self._ids = ("a", "b", "c")[: rng.choice((1, 2, 3))]
        self._number = 0
        self._tokens: list[int] = []
        self._flying: deque[tuple[int, int]] = deque()
        self._offset = 0
        self._is_slow = rng.random() < 0.6
        self._has_floods = rng.random() < 0.3

    def live(self) -> Iterator[str]:
        """Take steps; yield the first difference."""
        rng = self._rng
        for number in range(rng.choice((0, 2, 5))):
            record = CoordinatorRecord(b"a", str(number).encode())
            for each in (self._real, self._due.toy):
                each.replay(record, RecordContext(Offset(self._offset), self._now_ms))
            self._offset += 1
        steps = [self._submit] * 8 + [self._land] * 6 + [self._pass_time] * 3 + [self._drop]
        steps += [self._plan, self._mark, self._look]
        begins_at = rng.choice((0, 0, 5, 20))
        for number in range(STEPS_COUNT):
            if number == begins_at:
                yield from self._activate()
            yield from rng.choice(steps)()
            yield from self._compare(f"step {number}")
        self._due.resign()
        yield from self._same("resign", self._real.resign(self._now_ms))
        for step in (self._submit, self._pass_time, self._drop):
            yield from step()
        self._real.committed(10**6, Offset(0), self._now_ms)
        again = self._real.resign(self._now_ms)
        if again.replies or again.appends or self._real.parked_count:
            yield f"after its end it tells {again}, {self._real.parked_count} wait"

    def _compare(self, where: str) -> Iterator[str]:
        real, due = self._real, self._due
        found: list[object] = [real.parked_count, real.next_deadline_ms()]
        found += [real.is_pending(each) for each in self._ids]
        implied: list[object] = [len(due.parked), due.next_deadline_ms()]
        implied += [due.pending(each) for each in self._ids]
        if found != implied:
            yield f"{where}: waiting, next deadline, pending are {found}, not {implied}"
        if self._toy.applied != due.toy.applied:
            yield f"{where}: applied is {self._toy.applied}, not {due.toy.applied}"

    def _same(self, what: str, output: Output[Said, int]) -> Iterator[str]:
        """Compare what a call gave with what it had to."""
        appends, replies, effects = self._due.take_told()
        given = [(each.append_id, each.records) for each in output.appends]
        if (given, output.replies) != (appends, replies) or (
            output.effects != effects and what != "resign"
        ):
            yield f"{what} gave {output}, not {appends}, {replies}, {effects}"
        for append in output.appends:
            flight = next(each for each in self._due.flying if each.number == append.append_id)
            due = flight.decision.producer, flight.at_ms
            if (append.producer, append.timestamp_ms) != due:
                yield f"{what} appends {append}, not of {due}"
            self._flying.append((append.append_id, self._offset))
            self._offset += len(append.records)
            if self._rng.random() < 0.5:
                self._real.delayed(append.append_id, self._now_ms)
                self._due.delayed(append.append_id, self._now_ms)
        if not self._is_slow and self._flying:
            yield from self._land()

    # --- steps

    def _event(self) -> ToyEvent:
        self._number += 1
        return ToyEvent(self._rng.choice(_KINDS), self._rng.choice(self._ids), self._number)

    def _activate(self) -> Iterator[str]:
        first = self._event() if self._rng.random() < 0.5 else None
        output = self._real.activate(self._now_ms, first)
        self._due.activate(self._now_ms, first)
        yield from self._same("activate", output)

    def _submit(self) -> Iterator[str]:
        is_flood = self._has_floods and self._rng.random() < 0.05
        for _ in range(110 if is_flood else 1):
            event = self._event()
            token = None if self._rng.random() < 0.2 else self._number
            if token is not None:
                self._tokens.append(token)
            output = self._real.submit(event, token, self._now_ms)
            self._due.submit(event, token, self._now_ms)
            yield from self._same(f"submit of {event} by {token}", output)

    def _land(self) -> Iterator[str]:
        if not self._flying:
            return
        number, offset = self._flying.popleft()
        if self._rng.random() < 0.15:
            code = self._rng.choice(_FAILURES)
            output = self._real.append_failed(number, code, self._now_ms)
            self._due.append_failed(number, code, self._now_ms)
            yield from self._same(f"append_failed of {number}", output)
        else:
            output = self._real.committed(number, Offset(offset), self._now_ms)
            self._due.committed(number, offset, self._now_ms)
            yield from self._same(f"committed of {number}", output)

    def _pass_time(self) -> Iterator[str]:
        deadline_ms = self._real.next_deadline_ms()
        if deadline_ms is not None and self._rng.random() < 0.6:
            self._now_ms = max(self._now_ms, deadline_ms + self._rng.choice((-1, 0, 0, 1)))
        else:
            self._now_ms += self._rng.choice((1, 100, 4_000))
        output = self._real.tick(self._now_ms)
        self._due.tick(self._now_ms)
        yield from self._same(f"tick at {self._now_ms}", output)

    def _drop(self) -> Iterator[str]:
        if self._tokens:
            token = self._rng.choice(self._tokens[-10:])
            event = self._event()
            self._real.drop(event, token)
            self._due.drop(event, token)
            if self._toy.dropped_tokens != self._due.toy.dropped_tokens:
                yield f"the shard was told of {self._toy.dropped_tokens[-1:]}, not {token}"

    def _plan(self) -> Iterator[str]:
        due = (self._now_ms + self._rng.choice((10, 5_000)), self._event())
        self._toy.dues.append(due)
        self._due.toy.dues.append(due)
        yield from ()

    def _mark(self) -> Iterator[str]:
        ids = ProducerId(self._rng.randrange(9)), ProducerEpoch(self._rng.randrange(9))
        marker = EndTransactionMarker(self._offset, *ids, self._rng.random() < 0.5)
        for each in (self._real, self._due.toy):
            each.replay(marker, marker_context(marker))
        self._offset += 1
        yield from ()

    def _look(self) -> Iterator[str]:
        if self._due.state == "active":
            event = ToyEvent("read", self._rng.choice(self._ids), 0)
            held = tuple(each[0] for each in self._due.toy.applied.get(event.id, ()))
            found = self._real.look(event, self._now_ms)
            if found != ("done", 0, (held, -1)):
                yield f"look gave {found}, not {held}"


# --- timers ---------------------------------------------------------------------------


def timers(rng: random.Random, real: Timers[str]) -> Iterator[str]:
    """Compare timers with a dictionary."""
    due: dict[str, int] = {}
    now_ms = 0
    for step in range(STEPS_COUNT):
        key = rng.choice("abcdef")
        choice = rng.random()
        if choice < 0.55:
            at_ms = now_ms + rng.choice((-5, 0, 3, 10, 10, 40))
            real.set(key, at_ms)
            due[key] = at_ms
        elif choice < 0.7:
            real.cancel(key)
            due.pop(key, None)
        else:
            now_ms += rng.choice((0, 1, 5, 20))
            found = real.due(now_ms)
            passed = {each: at_ms for each, at_ms in due.items() if at_ms <= now_ms}
            times = [passed.get(each, -1) for each in found]
            if sorted(found) != sorted(passed) or times != sorted(times):
                yield f"timers, step {step}: {found} are due, not {passed}"
                return
            due = {each: at_ms for each, at_ms in due.items() if each not in passed}
        state = (real.next_deadline_ms(), len(real), key in real, dict(real.deadlines))
        implied = (min(due.values(), default=None), len(due), key in due, due)
        if state != implied:
            yield f"timers, step {step}: {state}, not {implied}"
            return


def _small_parts(rng: random.Random) -> Iterator[str]:
    """Match names as Python does where both syntaxes agree, and compare times of two clocks."""
    names = ["".join(rng.choices("ab-1", k=rng.randint(1, 4))) for _ in range(12)]
    pattern = rng.choice(("a.*", "[ab]+", "a|b.", ".*-1?", "(a|b)(b|-)?", names[0]))
    found, due = matching(pattern, names), {each for each in names if re.fullmatch(pattern, each)}
    if found != due:
        yield f"{pattern} matches {sorted(found)}, not {sorted(due)}"
    value_ms = rng.randrange(10**6)
    by_ms = rng.choice((-5_000, -1_000, -999, 0, 999, 1_000, 5_000))
    shift_ms = clock_shift_ms(value_ms, value_ms + by_ms)
    if shift_ms != (by_ms if abs(by_ms) >= CLOCK_JUMP_MS_MIN else 0):
        yield f"a clock set by {by_ms} ms counts as {shift_ms} ms"


# --- replay ---------------------------------------------------------------------------

_Held = tuple[int, int, bytes | None, int, int]
"""Offset, timestamp, value, and the producer's id and epoch."""


class _LoadedState:
    """The last value of each key, and what open transactions hold: what a shard keeps."""

    def __init__(self) -> None:
        self.values: dict[bytes, _Held] = {}
        self.open: dict[int, dict[bytes, _Held]] = {}

    def apply(self, record: CoordinatorRecord, context: RecordContext) -> None:
        ids = (int(context.producer_id), int(context.producer_epoch))
        held = (int(context.offset), context.timestamp_ms, record.value, *ids)
        if record.value is None:
            self.values.pop(record.key, None)
            for offsets in self.open.values():
                offsets.pop(record.key, None)
        elif context.transactional:
            self.open.setdefault(ids[0], {})[record.key] = held
        else:
            self.values[record.key] = held

    def end(self, producer_id: int, commit: bool) -> None:
        for key, held in self.open.pop(producer_id, {}).items():
            known = self.values.get(key)
            if commit and (known is None or known[0] < held[0]):
                self.values[key] = (*held[:3], -1, -1)

    def shown(self) -> tuple[dict[bytes, _Held], dict[int, dict[bytes, _Held]]]:
        return self.values, {each: keys for each, keys in self.open.items() if keys}


def loads(rng: random.Random, make: Callable[[], ReplayBuffer] = ReplayBuffer) -> Iterator[str]:
    """Load drawn logs in stretches, and record by record."""
    for load in range(LIVES_COUNT):
        yield from (f"load {load}: {text}" for text in _load(rng, make))


def _load(rng: random.Random, make: Callable[[], ReplayBuffer]) -> Iterator[str]:
    plain, by_stretches = _LoadedState(), _LoadedState()
    buffer, offset, given = make(), 0, 0
    for _ in range(STEPS_COUNT):
        producer_id, epoch = ProducerId(rng.randrange(3)), ProducerEpoch(rng.randrange(4))
        choice = rng.random()
        records: Sequence[ScannedRecord] = [
            (
                *(offset + index, rng.randrange(1_000)),
                *(rng.choice((b"k", b"l", b"m", b"n")), rng.choice((b"1", b"2", b"3", None))),
            )
            for index in range(rng.choice((1, 1, 2)))
        ]
        is_transactional = choice > 0.45
        if choice > 0.85:
            end = EndTransactionMarker(offset, producer_id, epoch, rng.random() < 0.6)
            plain.end(int(producer_id), end.commit)
            buffer.end_transaction(end)
            offset += 1
        else:
            for at, timestamp_ms, key, value in records:
                context = RecordContext(Offset(at), timestamp_ms)
                if is_transactional:
                    context = RecordContext(
                        Offset(at), timestamp_ms, producer_id, epoch, transactional=True
                    )
                plain.apply(CoordinatorRecord(key or b"", value), context)
            if is_transactional:
                buffer.add_transactional(records, producer_id, epoch)
            else:
                buffer.add(records)
            offset += len(records)
        if rng.random() < 0.1:
            yield from _take(buffer, by_stretches)
            buffer = make()
            given += 1
    yield from _take(buffer, by_stretches)
    if plain.shown() != by_stretches.shown():
        yield f"{given} stretches end in {by_stretches.shown()}, not {plain.shown()}"


def _take(buffer: ReplayBuffer, state: _LoadedState) -> Iterator[str]:
    rest: list[Any] = list(buffer.rest())
    offsets = [each.offset for each in rest]
    if offsets != sorted(offsets) or len(buffer) != len(rest):
        yield f"what counts is at {offsets}, {len(buffer)} in all"
    for each in rest:
        if isinstance(each, EndTransactionMarker):
            state.end(int(each.producer_id), each.commit)
        else:
            state.apply(each.record, each.context)
