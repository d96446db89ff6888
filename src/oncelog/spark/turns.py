"""Decides which task of a micro-batch may send to a target partition, and from which sequence on.

Tasks that encode and send share the producer id and epoch, and several have rows for the same
partition. Their batches must have contiguous sequences there (INV-2), so they take turns. A task
asks for a partition, sends, waits until all is acknowledged, and gives the partition back with the
count of its records; the next task's sequence follows from that. A task that fails, is lost or
begins twice leaves a sequence that the driver does not know: then no turn is given any more, and
the attempt has failed as a whole (INV-10). Pure: `oncelog.spark.turn_server` carries the requests.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from oncelog.core.limits import SEQUENCE_MODULUS
from oncelog.spark.errors import WriteStageError

__all__ = ["Turn", "Turns"]

LOST: Final = "task {} was lost while it wrote"


@dataclass(frozen=True, slots=True)
class Turn:
    """A task may send to a target partition; its first record there gets this sequence."""

    task: int
    target: int
    sequence: int


@dataclass(slots=True)
class _Place:
    """One target partition."""

    record_count: int = 0
    holder: int | None = None
    waiting: deque[int] = field(default_factory=deque)


class Turns:
    """The turns of one attempt to write a micro-batch."""

    def __init__(self) -> None:
        self.failure: str | None = None
        """Why the attempt has failed; the first reason stays."""
        self._places: dict[int, _Place] = {}
        self._begun: set[int] = set()
        self._active: set[int] = set()

    def begin(self, task: int) -> None:
        """A task begins. Raises `WriteStageError` for one that began before, which fails all."""
        if task in self._begun:
            # Spark ran its stage again: the records of its first attempt are in the transaction.
            self.fail(f"task {task} began a second time")
        self._raise_if_failed()
        self._begun.add(task)
        self._active.add(task)

    def ask(self, task: int, target: int) -> Turn | None:
        """Return the task's turn, or None while another task has it: `give_back` returns it then.

        Raises `WriteStageError` when the attempt has failed, or the task asks twice.
        """
        self._raise_if_failed()
        place = self._places.setdefault(target, _Place())
        if task not in self._active or place.holder == task or task in place.waiting:
            raise self._refused(f"task {task} asked for target {target} out of turn")
        if place.holder is not None:
            place.waiting.append(task)
            return None
        return self._give(place, task, target)

    def give_back(self, task: int, target: int, record_count: int) -> Turn | None:
        """The task's records are all acknowledged. Return the next task's turn, if one waits.

        Raises `WriteStageError` when the attempt has failed, or it was not the task's turn.
        """
        self._raise_if_failed()
        place = self._places.get(target)
        if place is None or place.holder != task or record_count < 0:
            raise self._refused(f"task {task} gave back target {target}, which it did not have")
        place.holder = None
        place.record_count += record_count
        return self._give(place, place.waiting.popleft(), target) if place.waiting else None

    def end(self, task: int) -> None:
        """A task has ended well. Raises `WriteStageError` unless it gave everything back."""
        self._raise_if_failed()
        held = any(p.holder == task or task in p.waiting for p in self._places.values())
        if held or task not in self._active:
            raise self._refused(f"task {task} ended in the middle of its turn")
        self._active.discard(task)

    def lost(self, task: int) -> bool:
        """The connection of a task is closed. Return whether that fails the attempt."""
        if task not in self._active:
            return False
        self.fail(LOST.format(task))
        return True

    def fail(self, reason: str) -> None:
        """Give no more turns."""
        if self.failure is None:
            self.failure = reason

    def record_counts(self) -> dict[int, int]:
        """Return the records of each target, once all tasks have ended.

        Raises `WriteStageError` when the attempt has failed, or a task has not ended.
        """
        self._raise_if_failed()
        if self._active:
            raise self._refused(LOST.format(min(self._active)))
        return {target: p.record_count for target, p in self._places.items() if p.record_count}

    def _give(self, place: _Place, task: int, target: int) -> Turn:
        place.holder = task
        return Turn(task, target, place.record_count % SEQUENCE_MODULUS)

    def _raise_if_failed(self) -> None:
        if self.failure is not None:
            raise WriteStageError(self.failure)

    def _refused(self, reason: str) -> WriteStageError:
        self.fail(reason)
        return WriteStageError(reason)
