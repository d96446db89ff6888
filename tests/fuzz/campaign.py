"""Runs frames against the broker in this process, counts them, and keeps what is wrong.

Deterministic up to the ids that the broker draws: the same seed makes the same choices. The broker
is a new one every `FRAMES_PER_BROKER`, so that memory tells what frames cost and not what topics
and groups, which requests may make, add up to.
"""

from __future__ import annotations

import logging
import random
import re
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from oncelog.protocol.api import ApiKey
from tests.fuzz.corpus import Corpus, Frame, Known
from tests.fuzz.judge import judge
from tests.fuzz.mutate import MUTATIONS, RARE, Mutation, valid
from tests.fuzz.peer import Unhealthy
from tests.fuzz.target import (
    FRAME_BYTES_MAX,
    HOME_TOPIC,
    Errors,
    Kind,
    Link,
    Outcome,
    Target,
)
from tests.fuzz.virtual import VirtualLoop

FRAMES_PER_BROKER = 20_000
HEALTH_EVERY_FRAMES = 2_000
RESTORE_EVERY_FRAMES = 100
READ_ANSWER_EVERY = 4
"""Answers to valid requests are all read; of the others one in so many."""

FINDINGS_MAX = 50
SLOW_FRAME_S = 15.0
"""More processor time than this for one frame is a finding: nobody else is served meanwhile. The
slowest known make thousands of partitions: 1 s on an idle machine, 8 s on one that is overloaded.
"""

PEERS_LEAVE_S = 3600.0
"""Virtual time after which nothing may be left of peers that went."""

MEMORY_GROWTH_BYTES_MAX = FRAME_BYTES_MAX + 192 * 1024 * 1024
"""What this process may grow by: one frame, and the constant of docs/limits.md at this frame size,
and what a fuzzed broker holds (topics, groups, this test's own corpus)."""

FRAMING_SHARE = 0.03

Progress = Callable[[int, "Report"], None]


@dataclass
class Finding:
    """One thing that must not be, with the frame that showed it."""

    what: str
    kind: str
    seed: int
    broker: int
    number: int
    frame: str

    def __str__(self) -> str:
        return (
            f"{self.what}\n  by a frame of kind {self.kind!r}, number {self.number} of broker "
            f"{self.broker}, seed {self.seed}: {self.frame}"
        )


@dataclass
class Report:
    """What a run did and found."""

    seed: int
    frames: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    health_checks: int = 0
    slowest_ms: float = 0.0
    slowest_kind: str = ""
    memory_growth_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not self.findings


def run(frames: int, seed: int, progress: Progress = lambda _done, _report: None) -> Report:
    """Send `frames` frames, to one broker after the other. Stops early after many findings."""
    report = Report(seed)
    base_bytes: int | None = None
    broker_number = 0
    with _listening() as errors:
        while report.frames < frames and len(report.findings) < FINDINGS_MAX:
            count = min(FRAMES_PER_BROKER, frames - report.frames)
            round_ = _Round(report, errors, broker_number, count, progress)
            with _loop() as loop:
                loop.run_until_complete(round_.run())
            broker_number += 1
            if base_bytes is None:
                # The first broker loads every module and fills every cache.
                base_bytes = round_.base_bytes
            growth_bytes = peak_bytes() - base_bytes
            report.memory_growth_bytes = max(report.memory_growth_bytes, growth_bytes)
            if report.memory_growth_bytes > MEMORY_GROWTH_BYTES_MAX:
                round_.found(f"memory grew by {report.memory_growth_bytes} bytes", "all", b"")
                break
    return report


class _Round:
    """One broker's share of the frames."""

    def __init__(
        self, report: Report, errors: Errors, number: int, count: int, progress: Progress
    ) -> None:
        self.report = report
        self.errors = errors
        self.number = number
        self.count = count
        self.progress = progress
        self.base_bytes = 0
        self.random = random.Random(f"{report.seed}/{number}")
        self.known = Known()
        self.corpus = Corpus(self.random, self.known)
        self._functions = [mutation for _, mutation, _ in MUTATIONS]
        self._names = {mutation: name for name, mutation, _ in MUTATIONS}
        self._weights = [weight for *_, weight in MUTATIONS]

    async def run(self) -> None:
        target = Target(self.errors)
        await target.start()
        await self._check_health(target)
        forget_peak()
        self.base_bytes = peak_bytes()
        link = target.connect()
        for done in range(self.count):
            if done % RESTORE_EVERY_FRAMES == 0:
                await target.restore_topics()
            name, ended = await self._one(target, link)
            self.report.frames += 1
            self.report.kinds[name] += 1
            if ended:
                target.hang_up(link)
                link = target.connect()
            if target.stopped_because() is not None:
                self.found(f"the broker stopped: {target.stopped_because()}", name, b"")
                return
            if (done + 1) % HEALTH_EVERY_FRAMES == 0:
                await self._check_health(target)
                self.progress(self.report.frames, self.report)
        target.hang_up(link)
        await self._end(target)
        self.progress(self.report.frames, self.report)

    async def _end(self, target: Target) -> None:
        await self._check_health(target)
        await target.pass_time(PEERS_LEAVE_S)
        for left in target.leftovers():
            self.found(f"left over after all peers went: {left}", "all", b"")
        await target.stop()
        self._take_errors("stop", b"")

    async def _one(self, target: Target, link: Link) -> tuple[str, bool]:
        """One frame; its kind, and whether its connection is at its end."""
        frame = self.corpus.frame()
        roll = self.random.random()
        if roll < FRAMING_SHARE:
            return await self._framing(target, link, frame)
        mutation = self._choose(roll)
        data = mutation(self.random, self.corpus, frame)
        name = self._names.get(mutation, "many elements")
        begun = time.process_time()
        outcome = await target.send(link, len(data).to_bytes(4, "big") + data)
        self._timed(time.process_time() - begun, name, data)
        self._judge(frame if mutation is valid else None, name, data, outcome)
        return name, outcome.kind in (Kind.CLOSED, Kind.WAITING, Kind.HELD)

    def _choose(self, roll: float) -> Mutation:
        for _, mutation, share in RARE:
            if roll > 1 - share:
                return mutation
        return self.random.choices(self._functions, self._weights)[0]

    def _judge(self, frame: Frame | None, name: str, data: bytes, outcome: Outcome) -> None:
        self.report.outcomes[outcome.kind.value] += 1
        read_answer = frame is not None or self.random.randrange(READ_ANSWER_EVERY) == 0
        verdict = judge(data, outcome, read_answer=read_answer)
        if verdict.finding is not None:
            self.found(verdict.finding, name, data)
        elif verdict.api is not None:
            self.report.answered[verdict.api.name] += 1
            if frame is not None:
                self.known.learn(frame, verdict.response)
        self._take_errors(name, data)

    async def _framing(self, target: Target, link: Link, frame: Frame) -> tuple[str, bool]:
        """What is wrong is not in the frame but around it."""
        r = self.random
        data = frame.data
        sized = len(data).to_bytes(4, "big") + data
        choice = r.randrange(5)
        if choice == 0:
            name = "impossible size"
            size = r.choice((-1, -(2**31), 2**31 - 1, FRAME_BYTES_MAX + 1))
            outcome = await target.send(link, size.to_bytes(4, "big", signed=True) + data)
            expected = {Kind.CLOSED}
        elif choice == 1:
            name = "claims more than it sends"
            size = r.choice((len(data) + 1, 2**20, FRAME_BYTES_MAX))
            outcome = await target.send(link, size.to_bytes(4, "big") + data)
            expected = {Kind.HELD}
        elif choice == 2:
            name = "half a size"
            outcome = await target.send(link, sized[: r.randrange(1, 4)])
            expected = {Kind.HELD}
        elif choice == 3:
            name = "byte by byte"
            outcome = await target.send(link, sized, piece_bytes=1)
            self._judge(frame, name, data, outcome)
            return name, outcome.kind in (Kind.CLOSED, Kind.WAITING)
        else:
            name = "many at once"
            count = r.choice((2, 10, 300))
            asked = self.corpus.frame(ApiKey.API_VERSIONS, 3).data
            outcome = await target.send(link, (len(asked).to_bytes(4, "big") + asked) * count)
            if not _is_frames(outcome.answer, count):
                self.found(f"not {count} answers to {count} requests", name, asked)
            expected = {Kind.ANSWERED}
        self.report.outcomes[outcome.kind.value] += 1
        if outcome.kind not in expected:
            self.found(f"{outcome.kind.value} where {expected} was due", name, data)
        self._take_errors(name, data)
        return name, True

    async def _check_health(self, target: Target) -> None:
        await target.restore_topics()
        link = target.connect()
        try:
            await target.peer(link).check(HOME_TOPIC, self.random.randbytes(12))
        except Unhealthy as reason:
            self.found(f"a healthy client is not served: {reason}", "healthy", b"")
        target.hang_up(link)
        self.report.health_checks += 1

    def _timed(self, seconds: float, name: str, data: bytes) -> None:
        if seconds * 1000 > self.report.slowest_ms:
            self.report.slowest_ms, self.report.slowest_kind = seconds * 1000, name
        if seconds > SLOW_FRAME_S:
            self.found(f"{seconds:.1f} s of processor time", name, data)

    def _take_errors(self, name: str, data: bytes) -> None:
        for line in self.errors.take():
            self.found(line, name, data)

    def found(self, what: str, name: str, data: bytes) -> None:
        if len(self.report.findings) < FINDINGS_MAX:
            finding = Finding(
                what, name, self.report.seed, self.number, self.report.frames, data[:2000].hex()
            )
            self.report.findings.append(finding)


def _is_frames(answer: bytes, count: int) -> bool:
    position = 0
    for _ in range(count):
        position += 4 + int.from_bytes(answer[position : position + 4], "big")
    return position == len(answer)


def peak_bytes() -> int:
    """The most memory this process ever had resident."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not getrusage, which inherits the peak of the process that forked this one.
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        if found is not None:
            return int(found[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def forget_peak() -> None:
    """Begin to measure the peak anew, without what compiling and importing modules took."""
    clear = Path("/proc/self/clear_refs")
    if clear.exists():
        clear.write_text("5")


@contextmanager
def _listening() -> Iterator[Errors]:
    """Take the broker's log away from whoever listens, and keep its errors."""
    errors = Errors()
    loggers = [logging.getLogger(name) for name in ("oncelog", "asyncio")]
    before = [(one.level, one.propagate) for one in loggers]
    for one in loggers:
        one.addHandler(errors)
        one.setLevel(logging.INFO)
        one.propagate = False
    try:
        yield errors
    finally:
        for one, (level, propagate) in zip(loggers, before, strict=True):
            one.removeHandler(errors)
            one.setLevel(level)
            one.propagate = propagate


@contextmanager
def _loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    try:
        yield loop
    finally:
        loop.close()
