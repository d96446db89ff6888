"""Measures what clients use, and says for how long one over its quota has to wait. Pure.

The rules are Kafka's (`ClientQuotaManager`, `Rate`, `TokenBucket`): the most precise quota of a
user and a client id counts, rates are those of the last windows, and the wait is what brings the
rate back to the quota. Times are milliseconds of a clock that never jumps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

from oncelog.core.quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientQuotaEntity,
    ClientQuotas,
)
from oncelog.core.security_limits import QUOTA_METERS_COUNT_MAX

__all__ = ["QuotaWindows", "Quotas", "Rate", "TokenBucket"]


class QuotaWindows(NamedTuple):
    """How long is measured: `quota.window.num` windows of `quota.window.size.seconds`."""

    windows_count: int
    size_ms: float


class _Sample:
    __slots__ = ("last_ms", "start_ms", "total")

    def __init__(self, now_ms: float) -> None:
        self.start_ms = self.last_ms = now_ms
        self.total = 0.0


class Rate:
    """What was recorded in the last windows, per second.

    As long as there is less than all windows but one it counts as that long: the first record of a
    client is no burst.
    """

    __slots__ = ("_samples", "_windows")

    def __init__(self, windows: QuotaWindows, now_ms: float) -> None:
        self._windows = windows
        self._samples: deque[_Sample] = deque()

    def record(self, amount: float, now_ms: float) -> None:
        """Add an amount."""
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._windows.size_ms:
            samples.append(_Sample(now_ms))
        samples[-1].total += amount
        samples[-1].last_ms = now_ms

    def measure(self, now_ms: float) -> tuple[float, float]:
        """Return the rate, and the time in milliseconds over which it was measured."""
        count, size_ms = self._windows
        samples = self._samples
        while samples and now_ms - samples[0].last_ms >= count * size_ms:
            samples.popleft()
        elapsed_ms = now_ms - samples[0].start_ms if samples else 0.0
        full_count = int(elapsed_ms / size_ms)
        if full_count < count - 1:
            elapsed_ms += (count - 1 - full_count) * size_ms
        elapsed_ms = max(elapsed_ms, 1.0)
        return sum(sample.total for sample in samples) / elapsed_ms * 1000, elapsed_ms

    def wait_ms(self, limit: float, now_ms: float) -> int:
        """Return after how long without a record the rate is at the limit; 0 if it is below."""
        rate, elapsed_ms = self.measure(now_ms)
        return round((rate - limit) / limit * elapsed_ms) if rate > limit else 0

    def is_idle(self, now_ms: float) -> bool:
        """Whether nothing is left of what was recorded."""
        return not self.measure(now_ms)[0]


class TokenBucket:
    """Tokens that come at the rate of a quota, as many as its windows hold (KIP-599)."""

    __slots__ = ("_filled_ms", "_tokens", "_windows")

    def __init__(self, windows: QuotaWindows, now_ms: float) -> None:
        self._windows = windows
        self._tokens: float | None = None
        """None: as many as it can hold."""
        self._filled_ms = now_ms

    def record(self, amount: float, limit: float, now_ms: float) -> None:
        """Take tokens; there may be less than none afterwards."""
        self._tokens = self._fill(limit, now_ms) - amount

    def wait_ms(self, limit: float, now_ms: float) -> int:
        """Return how long it takes until it is not below zero."""
        tokens = self._fill(limit, now_ms)
        return round(-tokens / limit * 1000) if tokens < 0 else 0

    def is_idle(self, now_ms: float) -> bool:
        """Whether it is as if no token had been taken: all are back by then."""
        is_old = now_ms - self._filled_ms >= self._windows.windows_count * self._windows.size_ms
        return self._tokens is None or (is_old and self._tokens >= 0)

    def _fill(self, limit: float, now_ms: float) -> float:
        full = limit * self._windows.windows_count * self._windows.size_ms / 1000
        tokens = full
        if self._tokens is not None:
            tokens = min(full, self._tokens + limit * (now_ms - self._filled_ms) / 1000)
        self._tokens, self._filled_ms = tokens, now_ms
        return tokens


MeterT = TypeVar("MeterT", Rate, TokenBucket)


class _Kind(Generic[MeterT]):
    """The quotas of one key, and a meter for each client that one applies to."""

    def __init__(
        self,
        key: str,
        windows: QuotaWindows,
        make: Callable[[QuotaWindows, float], MeterT],
        meters_count_max: int,
    ) -> None:
        self._key = key
        self._windows = windows
        self._make: Callable[[QuotaWindows, float], MeterT] = make
        self._meters_count_max = meters_count_max
        self._limits: dict[ClientQuotaEntity, float] = {}
        self._found: dict[tuple[str, str], tuple[tuple[str, str], float] | None] = {}
        self._meters: dict[tuple[str, str], MeterT] = {}

    def set_limits(self, quotas: ClientQuotas) -> None:
        """Take other quotas; what was measured stays."""
        self._limits = {
            entity: values[self._key] for entity, values in quotas.items() if self._key in values
        }
        self._found = {}

    def meter(self, user: str, client_id: str, now_ms: float) -> tuple[MeterT, float] | None:
        """Return what measures a client, and its limit; None without a quota."""
        if not self._limits:
            return None
        asked = user, client_id
        if asked not in self._found:
            if len(self._found) >= self._meters_count_max:
                self._found.clear()
            self._found[asked] = self._look_up(user, client_id)
        found = self._found[asked]
        if found is None:
            return None
        whose, limit = found
        meter = self._meters.get(whose)
        if meter is None:
            if len(self._meters) >= self._meters_count_max:
                self._let_go(now_ms)
            meter = self._meters[whose] = self._make(self._windows, now_ms)
        return meter, limit

    def limit(self, user: str, client_id: str, now_ms: float) -> float | None:
        """Return a client's limit; None without a quota."""
        found = self.meter(user, client_id, now_ms)
        return None if found is None else found[1]

    def _look_up(self, user: str, client_id: str) -> tuple[tuple[str, str], float] | None:
        for name in (user, DEFAULT):
            for entity, whose in (
                (ClientQuotaEntity(name, client_id), (user, client_id)),
                (ClientQuotaEntity(name, DEFAULT), (user, client_id)),
                (ClientQuotaEntity(name), (user, "")),
            ):
                if entity in self._limits:
                    return whose, self._limits[entity]
        for name in (client_id, DEFAULT):
            entity = ClientQuotaEntity(None, name)
            if entity in self._limits:
                return ("", client_id), self._limits[entity]
        return None

    def _let_go(self, now_ms: float) -> None:
        """Forget clients that are idle, or else the one that is known for longest."""
        for whose in [w for w, meter in self._meters.items() if meter.is_idle(now_ms)]:
            del self._meters[whose]
        if len(self._meters) >= self._meters_count_max:
            del self._meters[next(iter(self._meters))]


class Quotas:
    """The quotas of a broker's clients, and what they have used.

    By each key the use of `meters_count_max` clients is known: those that are idle are forgotten
    for others, else the one that is known for longest.
    """

    def __init__(
        self,
        windows: QuotaWindows,
        controller_windows: QuotaWindows,
        meters_count_max: int = QUOTA_METERS_COUNT_MAX,
    ) -> None:
        self._windows = windows
        self._produce = _Kind(PRODUCER_BYTE_RATE, windows, Rate, meters_count_max)
        self._fetch = _Kind(CONSUMER_BYTE_RATE, windows, Rate, meters_count_max)
        self._request = _Kind(REQUEST_PERCENTAGE, windows, Rate, meters_count_max)
        self._mutation = _Kind(
            CONTROLLER_MUTATION_RATE, controller_windows, TokenBucket, meters_count_max
        )
        self._kinds: Final[tuple[_Kind[Rate] | _Kind[TokenBucket], ...]] = (
            self._produce,
            self._fetch,
            self._request,
            self._mutation,
        )
        self.is_on = False
        """Whether there is any quota."""

    def set_limits(self, quotas: ClientQuotas) -> None:
        """Take the quotas of the metadata."""
        for kind in self._kinds:
            kind.set_limits(quotas)
        self.is_on = bool(quotas)

    def produced(self, user: str, client_id: str, byte_count: int, now_ms: float) -> int:
        """Count the bytes of a Produce; returns for how many milliseconds the client waits."""
        return _recorded(self._produce.meter(user, client_id, now_ms), byte_count, now_ms)

    def fetched(self, user: str, client_id: str, byte_count: int, now_ms: float) -> None:
        """Count the bytes of an answer to a Fetch."""
        _recorded(self._fetch.meter(user, client_id, now_ms), byte_count, now_ms)

    def fetch_wait_ms(self, user: str, client_id: str, now_ms: float) -> int:
        """Return for how many milliseconds a client waits before it may fetch more.

        At most all windows: nothing is left by then of what was fetched. A batch that is larger
        than they have room for is fetched all the same, one in that time.
        """
        wait_ms = _recorded(self._fetch.meter(user, client_id, now_ms), 0, now_ms)
        return min(wait_ms, round(self._windows.windows_count * self._windows.size_ms))

    def fetch_bytes_max(self, user: str, client_id: str, now_ms: float) -> float | None:
        """Return how many bytes a client may get at once; None without a quota.

        More than that would be too much however long it had waited before.
        """
        limit = self._fetch.limit(user, client_id, now_ms)
        if limit is None:
            return None
        return limit * (self._windows.windows_count - 1) * self._windows.size_ms / 1000

    def worked(self, user: str, client_id: str, seconds: float, now_ms: float) -> int:
        """Count the time that a request took of a core; the wait is at most one window."""
        found = self._request.meter(user, client_id, now_ms)
        return min(_recorded(found, seconds * 100, now_ms), round(self._windows.size_ms))

    def mutated(
        self, user: str, client_id: str, partitions_count: int, now_ms: float, *, is_strict: bool
    ) -> int:
        """Count partitions to be made or deleted; returns for how long the client waits.

        Where `is_strict`, a client that has to wait is not counted: it is to be refused.
        """
        found = self._mutation.meter(user, client_id, now_ms)
        if found is None:
            return 0
        bucket, limit = found
        wait_ms = bucket.wait_ms(limit, now_ms)
        if wait_ms and is_strict:
            return wait_ms
        bucket.record(partitions_count, limit, now_ms)
        return 0 if is_strict else bucket.wait_ms(limit, now_ms)


def _recorded(found: tuple[Rate, float] | None, amount: float, now_ms: float) -> int:
    if found is None:
        return 0
    rate, limit = found
    rate.record(amount, now_ms)
    return rate.wait_ms(limit, now_ms)
