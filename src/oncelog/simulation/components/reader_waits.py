"""Simulates how long a reader waits, and how far it reads ahead, in virtual time.

Reads of partitions fail and succeed, topics are not known, fetched records fill the room for them.
Lists of all that happened have what must be said, and when. Used by `readers`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from oncelog.client.errors import ClientError, ConnectionLostError, FatalError, RetriableError
from oncelog.client.machines.failures import ReadFailures
from oncelog.client.machines.fetch_room import FetchRoom
from oncelog.client.machines.unknown import UnknownTopics, does_not_exist
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition

__all__ = ["failures", "rooms", "unknown", "waits"]

STEPS_COUNT: Final = 60
TOLD_AFTER_MS: Final = 5_000
_PLACES: Final = tuple(TopicPartition("t", index) for index in range(4))


def waits(rng: random.Random) -> Iterator[str]:
    """Simulate the room for fetched records, failing reads and unknown topics."""
    for text in rooms(rng):
        yield f"room: {text}"
    for text in failures(rng):
        yield f"failures: {text}"
    for text in unknown(rng):
        yield f"unknown topics: {text}"


def rooms(rng: random.Random, make: type[FetchRoom] = FetchRoom) -> Iterator[str]:
    """Fill the room and empty it; compare what is asked for, and of whom first."""
    size_max = rng.choice((1_000, 100_000))
    real = make(size_max)
    turn, waiting, taken = 0, 0, 0
    read: set[TopicPartition] = set(_PLACES)
    served: dict[TopicPartition, int] = {}
    answers: list[tuple[int, int]] = []
    for step in range(STEPS_COUNT):
        chance = rng.random()
        if chance < 0.3:
            turn, waiting, taken = turn + 1, rng.choice((0, 0, size_max // 2, size_max)), 0
            real.begin(waiting)
        elif chance < 0.4:
            order = rng.sample(_PLACES, rng.randint(1, len(_PLACES)))
            read = set(order)
            served = {at: when for at, when in served.items() if at in read}
            found = list(real.in_turn(order))
            if found != sorted(order, key=lambda at: (served.get(at, 0), order.index(at))):
                yield f"step {step}: {found} is in turn, of {order} that were served {served}"
                return
        else:
            at = rng.choice(sorted(read))
            fetched = rng.choice((0, 100, 500))
            held = fetched * rng.choice((0, 1, 2, 5)) + rng.choice((0, 7))
            real.accept(at, fetched, held)
            served[at], taken = turn, taken + held
            answers += [(fetched, held)] if fetched else []
        left = size_max - waiting - taken
        growth = 1.0
        for fetched, held in answers:
            growth = max(1.0, (growth + held / fetched) / 2)
        nodes = rng.choice((0, 1, 3))
        due = (left <= 0, max(1, int(left / growth) // (nodes or 1)))
        if (real.is_full, real.share(nodes)) != due:
            yield f"step {step}: full and share are {real.is_full}, {real.share(nodes)}, not {due}"
            return


def failures(rng: random.Random, make: type[ReadFailures] = ReadFailures) -> Iterator[str]:
    """Let reads fail and succeed; compare what is told, and when it is enough."""
    timeout_ms = rng.choice((4_000.0, 8_000.0))
    real = make(timeout_ms)
    now_ms = 1_000.0
    since: dict[TopicPartition, list[tuple[float, ClientError]]] = {at: [] for at in _PLACES}
    named: set[TopicPartition] = set()
    for step in range(STEPS_COUNT):
        now_ms += rng.choice((0, 1, 999, 1_000, 2_000))
        at = rng.choice(_PLACES)
        chance = rng.random()
        if chance < 0.15:
            real.succeeded(at)
            since[at] = []
            named.discard(at)
        elif chance < 0.75:
            since[at].append((now_ms, _error(rng)))
            is_long = now_ms - since[at][0][0] >= TOLD_AFTER_MS
            is_retried = isinstance(since[at][-1][1], RetriableError)
            is_due = is_long and is_retried and at not in named
            if is_due:
                named.add(at)
            if real.failed(at, since[at][-1][1], now_ms) != is_due:
                yield f"step {step}: {at}, failing as {since[at]}, is told of {not is_due}"
                return
        else:
            over = {
                id(history[-1][1]): each
                for each, history in since.items()
                if history
                and now_ms - history[0][0] >= timeout_ms
                and isinstance(history[-1][1], RetriableError)
                and not isinstance(history[-1][1], ConnectionLostError)
            }
            error = real.overdue(now_ms)
            if (error is None) != (not over) or (error is not None and id(error) not in over):
                yield f"step {step}: {error!r} is overdue at {now_ms}, of {since}"
                return
            if error is not None:
                since[over[id(error)]] = []
                named.discard(over[id(error)])


def _error(rng: random.Random) -> ClientError:
    kind = rng.random()
    if kind < 0.7:
        return RetriableError(ErrorCode.not_leader_or_follower)
    if kind < 0.85:
        return ConnectionLostError("it does not answer")
    return FatalError(ErrorCode.topic_authorization_failed)


def unknown(rng: random.Random, make: type[UnknownTopics] = UnknownTopics) -> Iterator[str]:
    """Ask for partitions that no broker knows; compare when it is enough."""
    patience_ms = 100.0
    real = make(patience_ms)
    now_ms = 0.0
    asked: dict[TopicPartition, list[float]] = {at: [] for at in _PLACES}
    for step in range(STEPS_COUNT):
        now_ms += rng.choice((0, 1, 25, 25, 49, 50, 60))
        at = rng.choice(_PLACES[:2])
        if rng.random() < 0.1:
            real.found(at)
            asked[at] = []
            continue
        if asked[at] and now_ms - asked[at][-1] > patience_ms:
            asked[at] = []
        asked[at].append(now_ms)
        is_due = now_ms - asked[at][0] >= patience_ms
        if real.is_overdue(at, now_ms) != is_due:
            yield f"step {step}: {at}, asked for at {asked[at]}, is overdue {not is_due}"
            return
        if is_due:
            asked[at] = []
    texts = {
        None: "topic t does not exist",
        1: "topic t has only partition 0, not 3",
        2: "topic t has the partitions 0 to 1, not 3",
    }
    for count, text in texts.items():
        error = does_not_exist(_PLACES[3], count)
        if (error.code, error.message) != (ErrorCode.unknown_topic_or_partition, text):
            yield f"{error} is said of a topic of {count} partitions"
