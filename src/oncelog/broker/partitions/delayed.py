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
from collections.abc import Callable, Container, Iterable
from enum import Enum
from functools import partial
from typing import Protocol

from oncelog.core.errors import ErrorCode

__all__ = [
    "Alive",
    "CommitWaiters",
    "DelayedFetch",
    "DelayedProduce",
    "Drop",
    "FetchIsolation",
    "FetchPurgatory",
    "StartWaiters",
    "Watch",
]

CommitCallback = Callable[[ErrorCode], None]

Alive = Callable[[], Container[int]]
"""Returns the brokers that live."""

Drop = Callable[[], object]
"""Ends a wait: nothing is called back, and nothing of it stays in memory."""

OnReached = Callable[[int, CommitCallback], Drop | None]
"""Calls back when an offset is reached: `on_replicated`, `on_synced` or `on_started`.

Returns None where it has called back.
"""


class FetchIsolation(Enum):
    """The end up to which a fetch reads, whose move wakes it (Kafka's name)."""

    LOG_END = "log end"
    """A follower's."""
    HIGH_WATERMARK = "high watermark"
    TXN_COMMITTED = "last stable offset"


class Watched(Protocol):
    """The part of a partition's interface that a waiting operation uses."""

    fetches: dict[DelayedFetch, None]


class Watchable(Protocol):
    """The part of it that a `Watch` uses."""

    watches: dict[Watch, None] | None


class Watch(Protocol):
    """What is told of the next change of a partition."""

    def changed(self, purgatory: FetchPurgatory) -> object:
        """Called once."""


class CommitWaiters:
    """Callbacks of one partition, ordered by the offset that the high watermark has to reach."""

    __slots__ = ("_callbacks", "_heap", "_order")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        """(end offset, order) of each, and of some that were dropped."""
        self._callbacks: dict[int, CommitCallback] = {}
        """By their order."""
        self._order = 0

    def __len__(self) -> int:
        return len(self._callbacks)

    def add(self, end_offset: int, callback: CommitCallback) -> Drop:
        """Call back once the high watermark is at or above `end_offset` (last offset + 1)."""
        self._order = order = self._order + 1
        self._callbacks[order] = callback
        heapq.heappush(self._heap, (end_offset, order))
        return partial(self._drop, order)

    def _drop(self, order: int) -> None:
        self._callbacks.pop(order, None)
        if len(self._heap) > 2 * len(self._callbacks):
            self._heap = [each for each in self._heap if each[1] in self._callbacks]
            heapq.heapify(self._heap)

    def advance(self, high_watermark: int) -> None:
        """Release the waiters that the high watermark satisfies, lowest offset first."""
        while self._heap and self._heap[0][0] <= high_watermark:
            _, order = heapq.heappop(self._heap)
            callback = self._callbacks.pop(order, None)
            if callback is not None:
                callback(ErrorCode.none)

    def fail(self, error: ErrorCode) -> None:
        """Fail all waiters: whether these offsets were committed is no longer known."""
        waiting, self._heap = sorted(self._heap), []
        callbacks, self._callbacks = self._callbacks, {}
        for _, order in waiting:
            callback = callbacks.get(order)
            if callback is not None:
                callback(error)


class StartWaiters:
    """Callbacks of one partition, for when the logs of all live replicas start at an offset."""

    __slots__ = ("_order", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[int, tuple[Alive, int, CommitCallback]] = {}
        """By their order. Looked at for each partition of each follower's fetch, without a call."""
        self._order = 0

    def add(self, alive: Alive, offset: int, callback: CommitCallback) -> Drop:
        """Call back once `release` finds them there."""
        self._order = order = self._order + 1
        self.waiting[order] = alive, offset, callback
        return partial(self.waiting.pop, order, None)

    def release(self, low_watermark: Callable[[Alive], int]) -> None:
        """Release those whose offset the smallest start has reached."""
        for order, (alive, offset, callback) in tuple(self.waiting.items()):
            if low_watermark(alive) >= offset and self.waiting.pop(order, None) is not None:
                callback(ErrorCode.none)

    def fail(self, error: ErrorCode) -> None:
        """Fail all: whether the records are deleted everywhere is no longer known."""
        for order, (_, _, callback) in tuple(self.waiting.items()):
            if self.waiting.pop(order, None) is not None:
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
        self._waiting: dict[int, Drop | None] = {}
        self._outcomes: dict[int, ErrorCode] = {}
        self._timer: asyncio.TimerHandle | None = None

    def wait_for(self, key: int, on_reached: OnReached, end_offset: int) -> None:
        """Also wait for `end_offset` to be reached."""
        self._waiting[key] = None
        drop = on_reached(end_offset, partial(self._settled, key))
        if key in self._waiting:
            self._waiting[key] = drop

    def start(self, loop: asyncio.AbstractEventLoop, timeout_ms: int) -> None:
        """Finish at once if no partition waits, else by the deadline; call after all `wait_for`."""
        if not self._waiting:
            self._complete()
        else:
            self._timer = loop.call_later(timeout_ms / 1000, self._expired)

    def _settled(self, key: int, error: ErrorCode) -> None:
        if key not in self._waiting:
            return
        del self._waiting[key]
        self._outcomes[key] = error
        if not self._waiting and self._timer is not None:
            self._timer.cancel()
            self._complete()

    def _expired(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for key, drop in waiting.items():
            self._outcomes[key] = ErrorCode.request_timed_out
            if drop is not None:
                drop()
        self._complete()

    def _complete(self) -> None:
        finish, self._finish = self._finish, None
        if finish is not None:
            finish(self._outcomes)


class DelayedFetch:
    """One fetch that found too few bytes.

    `attempt(final)` reads again. It returns None where it has replied, else the bytes missing.

    So many have to be appended to its partitions before reading again can succeed, so that a fetch
    with a large `min.bytes` is not read again at every append: none where enough may be in the
    logs, but not committed yet.
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
        attempt: Callable[[bool], int | None],
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

    def move(self, partitions: Iterable[Watched]) -> None:
        """Wait for these instead."""
        for partition in self._partitions:
            partition.fetches.pop(self, None)
        self._partitions = tuple(partitions)
        for partition in self._partitions:
            partition.fetches[self] = None

    def try_again(self) -> None:
        """Read again, and reply when there is enough: a partition of this fetch advanced."""
        self.is_woken = False
        if self.is_done:
            return
        missing = self._attempt(False)
        if missing is None:
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

    __slots__ = ("_is_scheduled", "_loop", "_woken", "changes_count")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.changes_count = 0
        """How often a leader's log has grown or a round begun: what a follower waits for."""
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

    def tell(self, partition: Watchable) -> None:
        """Tell all who watch a partition that it has changed."""
        watches, partition.watches = partition.watches, None
        for watch in watches or ():
            watch.changed(self)

    def _drain(self) -> None:
        self._is_scheduled = False
        woken, self._woken = self._woken, []
        for fetch in woken:
            fetch.try_again()
