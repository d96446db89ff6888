"""Simulates clients with quotas under a clock of its own, and judges for how long they wait.

Quotas come, change and go while clients produce, fetch, work and ask for partitions. What a client
has to hear is worked out from the list of all that was counted for it, by Apache Kafka's formulas:
`ClientQuotaManager` and `Rate` for windows, `ControllerMutationQuotaManager` and `TokenBucket`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from oncelog.core.quotas import ClientQuotaEntity
from oncelog.security.quotas import Quotas, QuotaWindows

__all__ = ["quotas"]

BROKERS_COUNT: Final = 4
STEPS_COUNT: Final = 60
_KEYS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
_USERS: Final = ("ann", "bob", "ANONYMOUS")
_CLIENT_IDS: Final = ("app", "job", "")
_LIMITS: Final = (0.5, 1.0, 10.0, 30.0, 100.0)
_ROUNDING_MS: Final = 0.5001
"""A wait is a whole number of milliseconds; which of two that are as near is not said."""


def quotas(rng: random.Random, make: type[Quotas] = Quotas) -> Iterator[str]:
    """Simulate some brokers with quotas; yield what is wrong with the first that is."""
    for number in range(BROKERS_COUNT):
        for text in _Metered(rng, make).live():
            yield f"broker {number}: {text}"
            return


class _Event(NamedTuple):
    """Something that was counted, or the time at which a bucket was read."""

    at_ms: float
    amount: float
    limit: float


Whose = tuple[str, str]
"""User and client id that share what is counted; empty where it is one of all."""


@dataclass(slots=True)
class _Meter:
    """What was counted by one key for each whose it is, and what follows from it."""

    count: int
    """How many windows there are."""
    size_ms: float
    is_bucket: bool
    count_max: int
    """Of how many the use is known."""
    events: dict[Whose, list[_Event]] = field(default_factory=dict)

    def of(self, whose: Whose, now_ms: float) -> list[_Event]:
        """Return what was counted; for a new one all that are idle are forgotten, if need be."""
        if whose not in self.events and len(self.events) >= self.count_max:
            for each in [*self.events]:
                if self._is_idle(self.events[each], now_ms):
                    del self.events[each]
            if len(self.events) >= self.count_max:
                del self.events[next(iter(self.events))]
        return self.events.setdefault(whose, [])

    def _is_idle(self, events: list[_Event], now_ms: float) -> bool:
        if not self.is_bucket:
            return not sum(event.amount for one in self._lasting(events, now_ms) for event in one)
        return self.tokens(events)[1] >= 0 and now_ms - events[-1].at_ms >= self.all_ms

    @property
    def all_ms(self) -> float:
        """All windows together."""
        return self.count * self.size_ms

    def _lasting(self, events: list[_Event], now_ms: float) -> list[list[_Event]]:
        """Return the events by windows that still count.

        A window begins with the first event after the one before it has ended. It counts while its
        last event is younger than all windows together.
        """
        windows: list[list[_Event]] = []
        for event in events:
            if not windows or event.at_ms - windows[-1][0].at_ms >= self.size_ms:
                windows.append([])
            windows[-1].append(event)
        return [one for one in windows if now_ms - one[-1].at_ms < self.all_ms]

    def wait_ms(self, events: list[_Event], limit: float, now_ms: float) -> float:
        """Return what a rate has to wait; negative if it need not."""
        lasting = self._lasting(events, now_ms)
        since_ms = now_ms - lasting[0][0].at_ms
        missing = self.count - 1 - since_ms // self.size_ms
        if missing > 0:
            since_ms += missing * self.size_ms
        total = sum(event.amount for one in lasting for event in one)
        # So long takes what was counted at the rate of the limit; so long it has been counted.
        return total / limit * 1000 - max(since_ms, 1.0)

    def tokens(self, events: list[_Event]) -> tuple[float, float]:
        """Return what was in a bucket before the last event, and after it. It is full at first."""
        before = after = float("inf")
        at_ms = events[0].at_ms
        for event in events:
            full = event.limit * self.count * self.size_ms / 1000
            before = min(full, after + event.limit * (event.at_ms - at_ms) / 1000)
            after, at_ms = before - event.amount, event.at_ms
        return before, after


class _Metered:
    """One broker's quotas, its clients and its clock."""

    def __init__(self, rng: random.Random, make: type[Quotas]) -> None:
        self._rng = rng
        self._now_ms = rng.choice((0.0, 5_000.0, 12_345.5))
        windows = QuotaWindows(rng.choice((1, 2, 3, 11)), rng.choice((1_000.0, 250.0)))
        controller = QuotaWindows(rng.choice((1, 2, 11)), 1_000.0)
        count_max = rng.choice((1, 2, 3, 1_000))
        self._real = make(windows, controller, count_max)
        self._windows = windows
        self._meters = {key: _Meter(*windows, False, count_max) for key in _KEYS[:3]}
        self._meters[_KEYS[3]] = _Meter(*controller, True, count_max)
        self._limits: dict[tuple[str | None, str | None], dict[str, float]] = {}
        self._users = rng.sample(_USERS, rng.choice((1, 2)))
        self._client_ids = rng.sample(_CLIENT_IDS, rng.choice((1, 2, 3)))
        self._keys = rng.sample(_KEYS, rng.choice((1, 2)))

    def live(self) -> Iterator[str]:
        """Let time pass, change quotas and use them; stop at what is wrong."""
        for step in range(STEPS_COUNT):
            self._pass_time()
            if step == 0 or self._rng.random() < 0.12:
                self._change()
            user, client_id = self._rng.choice(self._users), self._rng.choice(self._client_ids)
            for text in self._use(self._rng.choice(self._keys), user, client_id):
                yield f"step {step}, {user}/{client_id} by {self._limits}: {text}"
                return
            if self._real.is_on != bool(self._limits):
                yield f"step {step}: quotas are on: {self._real.is_on}, by {self._limits}"
                return

    def _pass_time(self) -> None:
        size_ms, all_ms = self._windows.size_ms, self._meters[self._keys[0]].all_ms
        pauses = (0, 0, 1, 40, size_ms / 3, size_ms - 1, size_ms, size_ms + 1, all_ms - 1, all_ms)
        self._now_ms += self._rng.choice(pauses)

    def _change(self) -> None:
        rng = self._rng
        for _ in range(rng.choice((1, 2, 3))):
            # An empty name is the default, None asks for no user or no client id.
            entity = rng.choice([*self._users, "", None]), rng.choice([*self._client_ids, "", None])
            if entity == (None, None):
                continue
            if rng.random() < 0.25:
                self._limits.pop(entity, None)
            else:
                values = self._limits.setdefault(entity, {})
                values[rng.choice(self._keys)] = rng.choice(_LIMITS)
        if rng.random() < 0.05:
            self._limits.clear()
        given = {ClientQuotaEntity(*who): dict(each) for who, each in self._limits.items()}
        for _ in range(rng.choice((1, 2))):
            self._real.set_limits(given)

    # --- what is due

    def _limit(self, key: str, user: str, client_id: str) -> tuple[Whose, float] | None:
        """Whose use is counted, and the limit: the first of Kafka's order of eight."""
        both, by_user, by_id = (user, client_id), (user, ""), ("", client_id)
        for entity, whose in (
            ((user, client_id), both),
            ((user, ""), both),
            ((user, None), by_user),
            (("", client_id), both),
            (("", ""), both),
            (("", None), by_user),
            ((None, client_id), by_id),
            ((None, ""), by_id),
        ):
            found = self._limits.get(entity, {}).get(key)
            if found is not None:
                return whose, found
        return None

    def _counted(self, key: str, user: str, client_id: str, amount: float) -> float:
        """Count an amount; return the wait, negative if there is none."""
        found = self._limit(key, user, client_id)
        if found is None:
            return -1.0
        whose, limit = found
        events = self._meters[key].of(whose, self._now_ms)
        events.append(_Event(self._now_ms, amount, limit))
        return self._meters[key].wait_ms(events, limit, self._now_ms)

    # --- what clients do

    def _use(self, key: str, user: str, client_id: str) -> Iterator[str]:
        rng, now_ms = self._rng, self._now_ms
        found = self._limit(key, user, client_id)
        limit = found[1] if found is not None else 1.0
        seconds = self._meters[key].all_ms / 1000
        amount = rng.choice((0, 1, limit / 4, limit, limit * seconds, 3 * limit * seconds))
        if key == "request_percentage":
            due_ms = self._counted(key, user, client_id, amount)
            wait_ms = self._real.worked(user, client_id, amount / 100, now_ms)
            yield from _unlike("works", amount, wait_ms, min(due_ms, self._windows.size_ms))
        elif key == "controller_mutation_rate":
            yield from self._mutate(user, client_id, round(amount))
        elif key == "consumer_byte_rate":
            yield from self._fetch(user, client_id, round(amount))
        else:
            due_ms = self._counted(key, user, client_id, round(amount))
            wait_ms = self._real.produced(user, client_id, round(amount), now_ms)
            yield from _unlike("produces", amount, wait_ms, due_ms)

    def _fetch(self, user: str, client_id: str, amount: int) -> Iterator[str]:
        key, now_ms, windows = "consumer_byte_rate", self._now_ms, self._windows
        most = self._real.fetch_bytes_max(user, client_id, now_ms)
        found, due = self._limit(key, user, client_id), None
        if found is not None:
            due = found[1] * windows.size_ms / 1000 * (windows.windows_count - 1)
            self._meters[key].of(found[0], now_ms)
        if most is not due and (most is None or due is None or abs(most - due) > 1e-6):
            yield f"{most} bytes may be fetched at once, not {due}"
        if self._rng.random() < 0.5:
            self._counted(key, user, client_id, amount)
            self._real.fetched(user, client_id, amount, now_ms)
        due_ms = self._counted(key, user, client_id, 0)
        wait_ms = self._real.fetch_wait_ms(user, client_id, now_ms)
        yield from _unlike("fetches", amount, wait_ms, min(due_ms, self._meters[key].all_ms))

    def _mutate(self, user: str, client_id: str, count: int) -> Iterator[str]:
        """Ask for partitions; a strict request that has to wait takes no tokens."""
        key, is_strict = "controller_mutation_rate", self._rng.random() < 0.5
        wait_ms = self._real.mutated(user, client_id, count, self._now_ms, is_strict=is_strict)
        due_ms = -1.0
        found = self._limit(key, user, client_id)
        if found is not None:
            whose, limit = found
            events = self._meters[key].of(whose, self._now_ms)
            events.append(_Event(self._now_ms, count, limit))
            before, after = self._meters[key].tokens(events)
            due_ms = -(before if is_strict else after) / limit * 1000
            # Half a millisecond may be rounded to none, and is granted then.
            if is_strict and due_ms > 0 and wait_ms:
                events[-1] = _Event(self._now_ms, 0, limit)
        yield from _unlike(f"mutates, strict {is_strict},", count, wait_ms, due_ms)


def _unlike(what: str, amount: float, wait_ms: float, due_ms: float) -> Iterator[str]:
    """What is wrong with a wait that is due if it is above zero."""
    if wait_ms != int(wait_ms) or abs(wait_ms - max(due_ms, 0.0)) > _ROUNDING_MS:
        yield f"who {what} {amount} waits {wait_ms} ms, not {due_ms:.3f}"
