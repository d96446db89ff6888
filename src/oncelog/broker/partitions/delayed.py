"""Implements delayed operations: requests that wait for a partition (Kafka's purgatories).

There are two kinds. *Commit waiters* wait for the high watermark to pass an offset: acks=all
produces, appends of coordinators. *Delayed fetches* wait for enough readable bytes or for their
deadline. Nothing here polls: a partition that advances completes the operations parked on it, and
each deadline is one timer of the event loop, so that virtual time works too.

It must not know sockets or the wire protocol: an operation completes by a callback. Callbacks of
commit waiters run inside the append that satisfied them; delayed fetches are read again once per
turn of the event loop, however many appends woke them.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Protocol

from oncelog.core.errors import ErrorCode

__all__ = [
    "CommitWaiters",
    "DelayedFetch",
    "DelayedProduce",
    "FetchIsolation",
    "FetchPurgatory",
]

CommitCallback = Callable[[ErrorCode], None]


OnReached = Callable[[int, CommitCallback], None]
"""Calls back when an offset is reached: `on_replicated`, `on_synced` or `on_started`."""


class FetchIsolation(Enum):
    """The end up to which a fetch reads, whose move wakes it (Kafka's name)."""

    LOG_END = "log end"
    """A follower's."""
    HIGH_WATERMARK = "high watermark"
    TXN_COMMITTED = "last stable offset"


class Watched(Protocol):
    """The part of a partition's interface that a waiting operation uses."""

    fetches: dict[DelayedFetch, None]


class CommitWaiters:
    """Callbacks of one partition, ordered by the offset that the high watermark has to reach."""

    __slots__ = ("_heap", "_order")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, CommitCallback]] = []
        self._order = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, end_offset: int, callback: CommitCallback) -> None:
        """Call back once the high watermark is at or above `end_offset` (last offset + 1)."""
        self._order += 1
        heapq.heappush(self._heap, (end_offset, self._order, callback))

    def advance(self, high_watermark: int) -> None:
        """Release the waiters that the high watermark satisfies, lowest offset first."""
        heap = self._heap
        while heap and heap[0][0] <= high_watermark:
            heapq.heappop(heap)[2](ErrorCode.none)

    def fail(self, error: ErrorCode) -> None:
        """Fail all waiters: whether these offsets were committed is no longer known."""
        waiting, self._heap = sorted(self._heap), []
        for _, _, callback in waiting:
            callback(error)


class DelayedProduce:
    """A Produce or DeleteRecords request.

    It is answered when all its partitions have completed, failed or timed out.

    `finish(outcomes)` is called exactly once with the error per partition key; keys still waiting
    at the deadline get REQUEST_TIMED_OUT, which Kafka returns too although the records may still be
    committed later.
    """

    __slots__ = ("_finish", "_outcomes", "_timer", "_waiting")

    def __init__(self, finish: Callable[[dict[int, ErrorCode]], None]) -> None:
        self._finish: Callable[[dict[int, ErrorCode]], None] | None = finish
        self._waiting: set[int] = set()
        self._outcomes: dict[int, ErrorCode] = {}
        self._timer: asyncio.TimerHandle | None = None

    def wait_for(self, key: int, on_reached: OnReached, end_offset: int) -> None:
        """Also wait for `end_offset` to be reached."""
        self._waiting.add(key)
        on_reached(end_offset, lambda error: self._settled(key, error))

    def start(self, loop: asyncio.AbstractEventLoop, timeout_ms: int) -> None:
        """Finish at once if no partition waits, else by the deadline; call after all `wait_for`."""
        if not self._waiting:
            self._complete()
        else:
            self._timer = loop.call_later(timeout_ms / 1000, self._expired)

    def _settled(self, key: int, error: ErrorCode) -> None:
        if key not in self._waiting:
            return
        self._waiting.discard(key)
        self._outcomes[key] = error
        if not self._waiting and self._timer is not None:
            self._timer.cancel()
            self._complete()

    def _expired(self) -> None:
        for key in self._waiting:
            self._outcomes[key] = ErrorCode.request_timed_out
        self._waiting.clear()
        self._complete()

    def _complete(self) -> None:
        finish, self._finish = self._finish, None
        if finish is not None:
            finish(self._outcomes)


class DelayedFetch:
    """One fetch that found too few bytes.

    `attempt(final)` reads again and replies, or returns the bytes still missing.

    `missing_bytes` is an upper bound of the bytes that have to be appended to its partitions before
    reading again can succeed, so that a fetch with a large `min.bytes` is not read again at every
    append.
    """

    __slots__ = (
        "_attempt",
        "_partitions",
        "_timer",
        "is_done",
        "is_woken",
        "isolation",
        "missing_bytes",
        "wants_high_watermark",
    )

    def __init__(
        self,
        attempt: Callable[[bool], int],
        partitions: Iterable[Watched],
        *,
        isolation: FetchIsolation,
        missing_bytes: int,
        wants_high_watermark: bool = False,
    ) -> None:
        self._attempt = attempt
        self._partitions = tuple(partitions)
        self._timer: asyncio.TimerHandle | None = None
        self.isolation = isolation
        self.missing_bytes = missing_bytes
        self.wants_high_watermark = wants_high_watermark
        """Whether it is read again at each high watermark, without more bytes."""
        self.is_woken = False
        self.is_done = False

    def park(self, loop: asyncio.AbstractEventLoop, max_wait_ms: float) -> None:
        """Register at every partition and start the deadline."""
        for partition in self._partitions:
            partition.fetches[self] = None
        self._timer = loop.call_later(max_wait_ms / 1000, self._expired)

    def try_again(self) -> None:
        """Read again, and reply when there is enough: a partition of this fetch advanced."""
        self.is_woken = False
        if self.is_done:
            return
        missing = self._attempt(False)
        if missing <= 0:
            self.cancel()
        else:
            self.missing_bytes = missing

    def cancel(self) -> None:
        """Remove the fetch: it was answered, or its connection closed."""
        self.is_done = True
        for partition in self._partitions:
            partition.fetches.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expired(self) -> None:
        if self.is_done:
            return
        self.cancel()
        self._attempt(True)


class FetchPurgatory:
    """Delayed fetches woken in this turn of the event loop.

    Each is read again once, after the turn's appends.
    """

    __slots__ = ("_is_scheduled", "_loop", "_woken")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._woken: list[DelayedFetch] = []
        self._is_scheduled = False

    def wake(self, fetch: DelayedFetch) -> None:
        """Read this fetch again at the end of the turn."""
        if fetch.is_woken or fetch.is_done:
            return
        fetch.is_woken = True
        self._woken.append(fetch)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        self._is_scheduled = False
        woken, self._woken = self._woken, []
        for fetch in woken:
            fetch.try_again()
