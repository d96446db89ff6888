"""Compares each step of a simulated driver with the protocol of a micro-batch (INV-10).

Worked out from the checkpoint and from what the driver has done before, without code of
`oncelog.spark.batch_protocol` or `oncelog.spark.marker`.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from oncelog.client.values import OffsetAndMetadata
from oncelog.core.ids import TopicPartition
from oncelog.spark.batch_protocol import RENEWAL_S, BatchProtocol
from oncelog.spark.errors import WriteStageError
from oncelog.spark.parties import TaskReport
from oncelog.spark.turns import Turn, Turns
from tests.simulation.spark_checkpoint import Checkpoint

__all__ = ["CheckedTurns", "DriverDuties"]

LOOK_S: Final = 30.0
"""So long a look for deleted partitions is good for."""
_OPENING: Final = -1
_STEPS_AFTER: Final = {
    "wal_written": {"failed", "drain", "after_init", "txn_ended"},
    "after_init": {"tasks_done", "failed"},
    "tasks_done": {"offsets_committed", "failed"},
    "offsets_committed": {"ending"},
    "ending": {"txn_ended", "failed"},
    "txn_ended": {"wal_written"},
    "drain": {"drained"},
    "drained": {"wal_written"},
    "failed": {"failed", "after_init", "txn_ended", "drain", "wal_written"},
}

T = TypeVar("T")
Complain = Callable[[str, str], None]


@dataclass
class DriverDuties:
    """One driver: what it has done, and what it may do next. `now_s` is its clock."""

    complain: Complain
    now_s: Callable[[], float]
    application_id: str
    write_attempts: int
    driver: BatchProtocol | None = None
    checkpoint: Checkpoint | None = None
    batch_id: int = 0
    watermark_ms: int | None = None
    mode: str = ""
    """"batch", "renew", "prepare", or "" between them."""
    acked: defaultdict[tuple[int, TopicPartition], list[int]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """By transaction and partition: the offsets that its records were given."""
    _written: tuple[int, list[TaskReport]] | None = None
    _calls: list[str] = field(default_factory=list)
    _text: str = ""
    _epochs: dict[int, int] = field(default_factory=dict)
    _opens_count: int = 0
    _looked_at_s: float = float("-inf")
    _must_look: bool = False
    _committed_at_s: float = 0.0
    _is_uncertain: bool = False
    _last_step: str = "drained"
    _attempts_count: int = 0

    # --- a call of the driver

    def begin(self, mode: str) -> None:
        """The driver is called."""
        self.mode = mode
        self._opens_count = 0
        self._calls = []

    def ended(self, error: BaseException | None) -> None:
        """The call has ended."""
        self.mode = ""
        self._is_uncertain = self._is_uncertain or error is not None

    def is_due(self) -> bool | None:
        """Whether `renew` has to commit now; None if that is not known."""
        marker = None if self.driver is None else self.driver.marker
        if marker is None:
            return False
        if self.now_s() - self._committed_at_s < RENEWAL_S:
            return False
        return None if self._is_uncertain else True

    # --- its transaction

    def opened(self) -> None:
        """InitProducerId was asked for."""
        self._opens_count += 1
        self._calls = []
        self._looked_at_s = float("-inf")
        if self.mode == "batch" and self._opens_count > self.write_attempts + 1:
            self._wrong(f"a batch has {self._opens_count} attempts of {self.write_attempts}")

    def got_epoch(self, producer_id: int, epoch: int) -> None:
        """It has an epoch to write under, higher than all before."""
        before = self._epochs.get(producer_id, -1)
        if epoch <= before:
            self._wrong(f"epoch {epoch} follows {before} of producer {producer_id}")
        self._epochs[producer_id] = epoch
        self._calls = ["epoch"]
        self._text = ""
        self._must_look = False

    def wrote(self, transaction: int, reports: list[TaskReport], *, is_clean: bool) -> None:
        """The write stage has returned its reports; `is_clean`: each task ran once."""
        self._follows("write", {"epoch"})
        self._must_look = self.now_s() - self._looked_at_s > LOOK_S
        self._written = (transaction, reports) if is_clean else None

    def _check_reports(self, transaction: int, reports: list[TaskReport]) -> None:
        """Each report has what was acknowledged; by now all has been told."""
        acked = {place: at for (of, place), at in self.acked.items() if of == transaction}
        told = {report.topic_partition: report for report in reports}
        if set(told) != set(acked) or len(told) != len(reports):
            self._wrong(f"reports of {sorted(told)}, written was to {sorted(acked)}")
            return
        for place, offsets in acked.items():
            report = told[place]
            given = report.record_count, report.first_offset, report.last_offset
            wanted = len(offsets), min(offsets), max(offsets)
            if -1 not in offsets and given != wanted:
                self._wrong(f"{report}, written was {wanted}")

    def appended(self, key: bytes, value: bytes) -> None:
        """The marker's record joins the transaction."""
        self._follows("append", {"epoch", "write"})
        if key != self.application_id.encode():
            self._wrong(f"a marker has the key {key!r}")
        self._text = value.decode()
        self._check_marker(self._text)

    def looked(self) -> None:
        """It asked which partitions are gone."""
        self._must_look = False
        self._looked_at_s = self.now_s()

    def committed_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """The source offsets join the transaction, one with the marker."""
        self._follows("offsets", {"epoch", "write", "append"})
        carrier = min(offsets)
        text = str(offsets[carrier].metadata)
        others = [at.metadata for place, at in offsets.items() if place != carrier]
        if group_id != self.application_id or any(others) or (self._text and text != self._text):
            self._wrong(f"group {group_id} is given {offsets}, the record was {self._text}")
        self._check_marker(text)
        self._text = text
        checkpoint = self.checkpoint
        if self.mode == "batch" and checkpoint is not None:
            plain = {place: at.offset for place, at in offsets.items()}
            if plain != checkpoint.ends(self.batch_id):
                self._wrong(f"batch {self.batch_id} commits {plain}")

    def ending(self, commit: bool) -> None:
        """EndTxn is about to be sent."""
        self._follows("end", {"append", "offsets"})
        if not commit or not self._text:
            self._wrong(f"it ends a transaction by {commit} with {self._text!r}")
        if self._must_look and self.mode == "batch" and "write" in self._calls:
            self._wrong("it has not looked for deleted partitions")
        if self._written is not None and "write" in self._calls:
            self._check_reports(*self._written)

    def committed(self) -> None:
        """EndTxn succeeded."""
        if json.loads(self._text)["batch"] != _OPENING:
            self._committed_at_s = self.now_s()
        self._calls = []

    def _follows(self, call: str, allowed: set[str]) -> None:
        last = self._calls[-1] if self._calls else ""
        if last not in allowed:
            self._wrong(f"{call} after {self._calls}")
        self._calls.append(call)

    def _check_marker(self, text: str) -> None:
        told = json.loads(text)
        marker = None if self.driver is None else self.driver.marker
        checkpoint = self.checkpoint
        if self.mode == "renew" and marker is not None:
            batch = marker.batch
            sequence, query, number = marker.sequence, batch.query_id, batch.batch_id
            sources, watermark_ms = batch.sources_hash, marker.watermark_ms
        elif "write" not in self._calls and checkpoint is not None:
            sequence, query, number = 0, checkpoint.query_id, _OPENING
            sources, watermark_ms = _hash(()), None
        elif checkpoint is not None:
            sequence = 1 if marker is None else marker.sequence + 1
            query, number = checkpoint.query_id, self.batch_id
            sources, watermark_ms = _hash(checkpoint.lines(number)), self.watermark_ms
        else:
            return
        wanted: dict[str, Any] = {
            "oncelog": 1,
            "sequence": sequence,
            "query": query,
            "batch": number,
            "sources": sources,
        }
        if watermark_ms is not None:
            wanted["watermark"] = watermark_ms
        if told != wanted:
            self._wrong(f"the marker is {told}, expected is {wanted}")

    # --- its steps

    def step(self, name: str, details: Mapping[str, Any]) -> None:
        """It writes down a step. Tasks do so too, also late ones."""
        if name == "mid_task":
            return
        if name not in _STEPS_AFTER.get(self._last_step, set()):
            self._wrong(f"the step {name} follows {self._last_step}")
        self._last_step = name
        if name == "wal_written":
            self._attempts_count = 0
        if name == "failed":
            self._attempts_count += 1
            error = str(details.get("error"))
            if details.get("attempt") != self._attempts_count or not error or "\n" in error:
                self._wrong(f"failure {self._attempts_count} is told as {dict(details)}")

    def done(self, checkpoint: Checkpoint, batch_id: int) -> None:
        """`process` returned: the marker names this batch."""
        marker = None if self.driver is None else self.driver.marker
        if marker is None or (marker.batch.query_id, marker.batch.batch_id) != (
            checkpoint.query_id,
            batch_id,
        ):
            self._wrong(f"batch {batch_id} is done, and the marker is {marker}")

    def _wrong(self, text: str) -> None:
        self.complain("a driver does what the protocol does not say", text)


def _hash(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


class CheckedTurns(Turns):
    """The shipped turns beside naive ones; each answer is compared."""

    def __init__(self, complain: Complain) -> None:
        super().__init__()
        self._complain = complain
        self._counts: defaultdict[int, int] = defaultdict(int)
        self._queues: defaultdict[int, list[int]] = defaultdict(list)
        """By target: who has the turn, and then those that wait for it."""
        self._running: set[int] = set()
        self._known: set[int] = set()
        self._is_over = False

    def begin(self, task: int) -> None:
        is_right = not self._is_over and task not in self._known
        if is_right:
            self._known.add(task)
            self._running.add(task)
        self._compare(
            f"begin of {task}", is_right, None, lambda: super(CheckedTurns, self).begin(task)
        )

    def ask(self, task: int, target: int) -> Turn | None:
        queue = self._queues[target]
        is_right = not self._is_over and task in self._running and task not in queue
        expected = None if queue else Turn(task, target, self._counts[target] % 2**31)
        if is_right:
            queue.append(task)
        what = f"{task} asks for {target}"
        return self._compare(
            what, is_right, expected, lambda: super(CheckedTurns, self).ask(task, target)
        )

    def give_back(self, task: int, target: int, record_count: int) -> Turn | None:
        queue = self._queues[target]
        is_right = not self._is_over and queue[:1] == [task] and record_count >= 0
        expected = None
        if is_right:
            queue.pop(0)
            self._counts[target] += record_count
            if queue:
                expected = Turn(queue[0], target, self._counts[target] % 2**31)
        return self._compare(
            f"{task} gives {target} back",
            is_right,
            expected,
            lambda: super(CheckedTurns, self).give_back(task, target, record_count),
        )

    def end(self, task: int) -> None:
        is_held = any(task in queue for queue in self._queues.values())
        is_right = not self._is_over and task in self._running and not is_held
        self._compare(f"{task} ends", is_right, None, lambda: super(CheckedTurns, self).end(task))
        self._running.discard(task)

    def lost(self, task: int) -> bool:
        is_failure = super().lost(task)
        if is_failure != (task in self._running):
            self._complain("a turn is wrong", f"the loss of {task} gave {is_failure}")
        return is_failure

    def fail(self, reason: str) -> None:
        super().fail(reason)
        self._is_over = True

    def record_counts(self) -> dict[int, int]:
        is_right = not self._is_over and not self._running
        expected = {target: count for target, count in self._counts.items() if count}
        found: dict[int, int] = self._compare(
            "the counts", is_right, expected, super().record_counts
        )
        return found

    def _compare(self, what: str, is_right: bool, expected: T, call: Callable[[], T]) -> T:
        try:
            found = call()
        except WriteStageError:
            if is_right:
                self._complain("a turn is wrong", f"{what} was refused")
            raise
        if not is_right or found != expected:
            self._complain("a turn is wrong", f"{what} gave {found}, expected was {expected}")
        return found
