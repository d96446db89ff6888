"""The same frames over real sockets to a real `oncelog serve`: fewer, and nothing is simulated.

Judged as in the campaign. A request that may wait is given a moment, then the peer hangs up. At the
end the process must still serve, its log be clean, and its memory within bounds.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from pathlib import Path

from tests.fuzz.campaign import READ_ANSWER_EVERY, Finding, Progress, Report
from tests.fuzz.corpus import TOPICS, Corpus, Known
from tests.fuzz.judge import WAITING_APIS, judge
from tests.fuzz.mutate import MUTATIONS, valid
from tests.fuzz.peer import Peer, Unhealthy
from tests.fuzz.serve import Served, Wire, healthy_peer
from tests.fuzz.target import FRAME_BYTES_MAX, HOME_TOPIC, TOPIC_CONFIGS, Kind, Outcome

PATIENCE_S = 15.0
"""Longer than any request is parked."""

WAITING_PATIENCE_S = 0.6
"""For requests that may wait, or may ask for no answer (acks=0)."""

HEALTH_EVERY_FRAMES = 500
FINDINGS_MAX = 20
MEMORY_GROWTH_BYTES_MAX = FRAME_BYTES_MAX + 192 * 1024 * 1024


def run(frames: int, seed: int, progress: Progress = lambda _done, _report: None) -> Report:
    """Send `frames` frames, one connection after the other."""
    report = Report(seed)
    settings = {"socket.request.max.bytes": str(FRAME_BYTES_MAX)}
    with (
        tempfile.TemporaryDirectory(prefix="oncelog-fuzz-") as folder,
        Served(Path(folder) / "data", settings) as served,
    ):
        _Run(served, report, progress).run(frames)
    return report


class _Run:
    def __init__(self, served: Served, report: Report, progress: Progress) -> None:
        self.served = served
        self.report = report
        self.progress = progress
        self.random = random.Random(f"{report.seed}/sockets")
        self.known = Known()
        self.corpus = Corpus(self.random, self.known)
        self.log_lines_seen = 0

    def run(self, frames: int) -> None:
        self._check_health()
        base_bytes = self.served.resident_bytes() or 0
        self.served.forget_peak()
        functions = [mutation for _, mutation, _ in MUTATIONS]
        names = [name for name, *_ in MUTATIONS]
        weights = [weight for *_, weight in MUTATIONS]
        wire = self.served.connect()
        while self.report.frames < frames and len(self.report.findings) < FINDINGS_MAX:
            index = self.random.choices(range(len(functions)), weights)[0]
            frame = self.corpus.frame()
            data = functions[index](self.random, self.corpus, frame)
            begun = time.monotonic()
            outcome = self._send(wire, data)
            self.report.frames += 1
            self.report.kinds[names[index]] += 1
            self.report.outcomes[outcome.kind.value] += 1
            taken_ms = (time.monotonic() - begun) * 1000
            if taken_ms > self.report.slowest_ms and outcome.kind is not Kind.WAITING:
                self.report.slowest_ms, self.report.slowest_kind = taken_ms, names[index]
            is_valid = functions[index] is valid
            read_answer = is_valid or self.random.randrange(READ_ANSWER_EVERY) == 0
            verdict = judge(data, outcome, read_answer=read_answer)
            if verdict.finding is not None:
                self._found(verdict.finding, names[index], data)
            elif verdict.api is not None:
                self.report.answered[verdict.api.name] += 1
                if is_valid:
                    self.known.learn(frame, verdict.response)
            if outcome.kind is not Kind.ANSWERED:
                wire.close()
                wire = self.served.connect()
            if self.report.frames % HEALTH_EVERY_FRAMES == 0:
                self._check_health()
                self.progress(self.report.frames, self.report)
        wire.close()
        self._check_health()
        self.report.memory_growth_bytes = (self.served.peak_bytes() or base_bytes) - base_bytes
        if self.report.memory_growth_bytes > MEMORY_GROWTH_BYTES_MAX:
            self._found(f"memory grew by {self.report.memory_growth_bytes} bytes", "all", b"")
        self.progress(self.report.frames, self.report)

    def _send(self, wire: Wire, data: bytes) -> Outcome:
        wire.give(len(data).to_bytes(4, "big") + data)
        waits = int.from_bytes(data[:2], "big") in WAITING_APIS
        try:
            answer = wire.answer(WAITING_PATIENCE_S if waits else PATIENCE_S)
        except TimeoutError:
            return Outcome(Kind.WAITING, b"")
        return Outcome(Kind.ANSWERED if answer else Kind.CLOSED, answer)

    def _check_health(self) -> None:
        if not self.served.is_alive:
            self._found("the process died", "healthy", b"")
            return
        wire = self.served.connect()
        peer = healthy_peer(wire)
        try:
            asyncio.run(self._exercise(peer))
        except (Unhealthy, TimeoutError) as reason:
            self._found(f"a healthy client is not served: {reason!r}", "healthy", b"")
        wire.close()
        self.report.health_checks += 1
        lines = self.served.errors()
        for line in lines[self.log_lines_seen :]:
            self._found(line, "all", b"")
        self.log_lines_seen = len(lines)

    async def _exercise(self, peer: Peer) -> None:
        await peer.create_topics({name: TOPIC_CONFIGS[name] for name in (*TOPICS, HOME_TOPIC)})
        await peer.check(HOME_TOPIC, self.random.randbytes(12))

    def _found(self, what: str, name: str, data: bytes) -> None:
        number = self.report.frames
        finding = Finding(what, name, self.report.seed, -1, number, data[:2000].hex())
        self.report.findings.append(finding)
