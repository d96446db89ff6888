"""Implements fetch sessions (KIP-227): a client sends only changes of what it fetches.

A full fetch (epoch 0) opens a session, if there is space for one. Later requests with its id and
the next epoch list only changed partitions, and the replies contain only partitions with news:
records, another high watermark, another log start, or an error. A partition that returned records
moves to the end of its session's order, so that those behind it are read next when the limits of a
reply are reached.

Limits: `max.incremental.fetch.session.cache.slots` sessions, and a named limit of partitions in
all, whose names must be as short as those of topics. When the slots are taken a new session evicts
one that was not used for two minutes, or an older one with fewer partitions. A client that lost its
session gets FETCH_SESSION_ID_NOT_FOUND and opens another. Followers have slots of their own, a
second `FetchSessions`; in Kafka they take precedence. Otherwise the rules are those of Kafka's
`FetchManager`, `FetchContext` and `FetchSessionCacheShard`, with one shard.

A partition of which a client has all, and was told all, is *quiet*: it is not read again until
anything changes there, so that a request costs what changed, and not all that its session has.
Readers decide which are (`oncelog.broker.apis.fetch_incremental`, `fetch_follower`).

This module does not read partitions: it turns requests into lists of partitions and filters
answers.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from uuid import UUID

from oncelog.core.errors import ErrorCode
from oncelog.core.limits import (
    FETCH_SESSION_EVICTION_MS,
    FETCH_SESSIONS_PARTITIONS_COUNT_MAX,
    INT32_MAX,
    TOPIC_NAME_LENGTH_MAX,
)
from oncelog.protocol.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchTopic,
    FetchTopicResponse,
    ForgottenTopic,
)
from oncelog.protocol.fetch_values import TOPIC_IDS_SINCE

if TYPE_CHECKING:
    from oncelog.broker.partitions.delayed import DelayedFetch, FetchPurgatory

__all__ = [
    "FINAL_EPOCH",
    "NO_SESSION",
    "FetchContext",
    "FetchSession",
    "FetchSessions",
    "Key",
    "SessionAnswer",
    "SessionPartition",
]

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1

_UNTOLD: Final = FetchPartition(-1, 0, 0)

Key = tuple[str | UUID | None, int]
"""A topic (by id in sessions of version 13 on, by name before) and a partition."""


class SessionAnswer(NamedTuple):
    """The session's part of the response."""

    error: ErrorCode
    session_id: int
    topics: Sequence[FetchTopicResponse]


class QuietNote(Protocol):
    """What a reader notes of a partition that need not be read as long as nothing happens there."""

    def end(self) -> object:
        """Called when it is read again, or leaves the session."""


class SessionPartition:
    """One partition of a session: the request for it, and the last answer about it."""

    __slots__ = ("asked", "carried_round", "high_watermark", "log_start_offset", "place", "quiet")

    def __init__(self, asked: FetchPartition, place: int) -> None:
        self.asked = asked
        self.place = place
        """Its place in the order of the session."""
        self.quiet: QuietNote | None = None
        self.carried_round = 0
        """The round of confirmations that the last answer carried to a follower.

        The next request of the session confirms it, as its epoch shows that the answer had come.
        """
        self.high_watermark = -1
        self.log_start_offset = -1

    def note(self, answer: FetchPartitionResponse) -> bool:
        """Record an answer; return whether the client has to get it."""
        asked = self.asked
        is_news = (
            bool(answer.records)
            or bool(answer.error)
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
            or answer.preferred_read_replica >= 0
            or answer.diverging_epoch is not None
            # A follower that cut its log, or passed over a late answer, did not take what it said.
            or asked.high_watermark < min(answer.high_watermark, asked.fetch_offset)
            or -1 < asked.log_start_offset < min(answer.log_start_offset, asked.fetch_offset)
        )
        # After an error the partition is sent again as soon as the error has ended.
        self.high_watermark = -1 if answer.error else answer.high_watermark
        self.log_start_offset = answer.log_start_offset
        return is_news


class FetchSession:
    """The partitions of one client, in the order in which they are read."""

    __slots__ = (
        "_active",
        "_places",
        "_stirred",
        "counts",
        "created_ms",
        "epoch",
        "fetches",
        "is_removed",
        "isolation_level",
        "partitions",
        "session_id",
        "used_ms",
        "uses_topic_ids",
    )

    def __init__(self, session_id: int, *, uses_topic_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.isolation_level = 0
        self.is_removed = False
        self.partitions: dict[Key, SessionPartition] = {}
        self.counts: Counter[str | UUID | None] = Counter()
        """The count of partitions of each topic."""
        self._active: dict[Key, SessionPartition] = {}
        """Those that are not quiet, in the order of the session."""
        self._stirred: dict[Key, SessionPartition] = {}
        """Those that were quiet, and are not in it yet."""
        self._places = count()
        self.fetches: dict[DelayedFetch, None] = {}
        """Those that wait for any partition of the session."""

    def update(self, fetch: FetchRequest) -> None:
        """Add, change and remove the partitions of an incremental request."""
        if fetch.isolation_level != self.isolation_level:
            # Quiet ones had no more for a reader with the other end.
            self.isolation_level = fetch.isolation_level
            self.stir_all()
        for key, asked in _asked(fetch.topics):
            held = self.partitions.get(key)
            if held is None:
                held = SessionPartition(asked, next(self._places))
                self.partitions[key] = self._active[key] = held
                self.counts[key[0]] += 1
            else:
                held.asked = asked
                self.stir(key)
        for topic in fetch.forgotten_topics:
            for index in topic.partitions:
                key = (_topic_key(topic), index)
                held = self.partitions.pop(key, None)
                if held is not None:
                    self._hear_no_more(held)
                    self._active.pop(key, None)
                    self._stirred.pop(key, None)
                    self.counts[key[0]] -= 1
                    if not self.counts[key[0]]:
                        del self.counts[key[0]]

    # ---- quiet partitions

    @property
    def has_quiet(self) -> bool:
        """Whether any partition is quiet."""
        return len(self._active) + len(self._stirred) < len(self.partitions)

    @property
    def is_stirred(self) -> bool:
        """Whether a quiet partition has to be read again since `topics` was asked for."""
        return bool(self._stirred)

    def quieten(self, key: Key, note: QuietNote) -> None:
        """Leave a partition out until it is stirred; `note` is its reader's."""
        held = self.partitions[key]
        self._hear_no_more(held)
        held.quiet = note
        self._active.pop(key, None)
        self._stirred.pop(key, None)

    def stir(self, key: Key) -> None:
        """Have a partition be read again."""
        held = self.partitions[key]
        if held.quiet is not None:
            self._hear_no_more(held)
            self._stirred[key] = held

    def stir_all(self) -> None:
        """Have all be read again."""
        for held in self.partitions.values():
            self._hear_no_more(held)
        self._active, self._stirred = {}, dict(self.partitions)

    def heard(self, key: Key, purgatory: FetchPurgatory) -> None:
        """Read a partition again, and whatever waits for it: something changed there."""
        self.stir(key)
        for fetch in self.fetches:
            purgatory.wake(fetch)

    def _hear_no_more(self, held: SessionPartition) -> None:
        note, held.quiet = held.quiet, None
        if note is not None:
            note.end()

    def topics(self) -> list[FetchTopic]:
        """All partitions in the form of a full request; a topic may occur more than once.

        Without those that are quiet.
        """
        if self._stirred:
            every = [*self._active.items(), *self._stirred.items()]
            self._active = dict(sorted(every, key=lambda each: each[1].place))
            self._stirred = {}
        found: list[FetchTopic] = []
        run: list[FetchPartition] = []
        last: object = self
        for (topic, _), held in self._active.items():
            if topic != last:
                last = topic
                run = []
                found.append(FetchTopic(*_label(topic), run))
            run.append(held.asked)
        return found

    def news(self, topics: Iterable[FetchTopicResponse]) -> list[FetchTopicResponse]:
        """Return what changed since the last reply; partitions with records move to the end."""
        found = []
        for topic in topics:
            key = _topic_key(topic)
            kept = []
            for answer in topic.partitions:
                place = (key, answer.partition)
                held = self.partitions.get(place)
                if held is not None and held.note(answer):
                    kept.append(answer)
                    if answer.records:
                        held.place = next(self._places)
                        if self._active.pop(place, None) is not None:
                            self._active[place] = held
            if kept:
                found.append(topic._replace(partitions=kept))
        return found


class FetchContext:
    """One fetch request, from the lookup of its session to the reply.

    `topics` are the partitions to read.
    """

    __slots__ = ("_epoch", "_fetch", "_sessions", "_version", "session", "topics")

    def __init__(
        self,
        sessions: FetchSessions,
        fetch: FetchRequest,
        version: int,
        session: FetchSession | None = None,
    ) -> None:
        self._sessions = sessions
        self._fetch = fetch
        self._version = version
        self.session = session
        self._epoch = session.epoch if session is not None else FINAL_EPOCH
        self.topics: Sequence[FetchTopic] = fetch.topics if session is None else session.topics()

    def topics_in_brief(self) -> Iterable[FetchTopic]:
        """Each topic once, with as many partitions as the session has of it, and those untold."""
        if self.session is None:
            return self.topics
        counts = self.session.counts.items()
        return [FetchTopic(*_label(topic), (_UNTOLD,) * count) for topic, count in counts]

    def every_topic(self) -> Sequence[FetchTopic]:
        """The same with the partitions that are quiet, which are so no longer."""
        if self.session is None:
            return self.topics
        self.session.stir_all()
        return self.session.topics()

    @property
    def is_newest(self) -> bool:
        """Whether the session is there, and no later request of it has come yet."""
        session = self.session
        return session is not None and session.epoch == self._epoch and not session.is_removed

    def answer(self, topics: Sequence[FetchTopicResponse], now_ms: int) -> SessionAnswer:
        """Turn the answers into the response; called once, when it is sent."""
        session = self.session
        if session is None:
            session_id = self._sessions.create(self._fetch, self._version, topics, now_ms)
            return SessionAnswer(ErrorCode.none, session_id, topics)
        if session.epoch != self._epoch:
            # A later request of the session arrived meanwhile: this one was sent twice.
            return SessionAnswer(ErrorCode.invalid_fetch_session_epoch, session.session_id, ())
        return SessionAnswer(ErrorCode.none, session.session_id, session.news(topics))


class FetchSessions:
    """All sessions of a broker; the least recently used one comes first."""

    def __init__(
        self,
        slots: int,
        partitions_count_max: int = FETCH_SESSIONS_PARTITIONS_COUNT_MAX,
        rng: random.Random | None = None,
    ) -> None:
        self._rng = rng or random.SystemRandom()
        self._slots = slots
        self._partitions_count_max = partitions_count_max
        self._sessions: dict[int, FetchSession] = {}
        self.partitions_count = 0
        """The count of partitions in all sessions."""
        self.evictions_count = 0
        """The count of sessions evicted since the start."""

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self, fetch: FetchRequest, version: int, now_ms: int
    ) -> FetchContext | ErrorCode | None:
        """Return a request's context, its error, or None for a fetch without a session."""
        if fetch.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if fetch.session_id != NO_SESSION:
                self._remove(fetch.session_id)
            if fetch.session_epoch == FINAL_EPOCH:
                return None
            return FetchContext(self, fetch, version)
        session = self._sessions.get(fetch.session_id)
        if session is None:
            return ErrorCode.fetch_session_id_not_found
        if session.epoch != fetch.session_epoch:
            return ErrorCode.invalid_fetch_session_epoch
        if session.uses_topic_ids != (version >= TOPIC_IDS_SINCE):
            return ErrorCode.fetch_session_topic_id_error
        if not _names_are_legal(fetch):
            self._remove(session.session_id)
            return ErrorCode.fetch_session_id_not_found
        self.partitions_count -= len(session.partitions)
        session.update(fetch)
        self.partitions_count += len(session.partitions)
        if not session.partitions:
            self._remove(session.session_id)
            return None
        if self.partitions_count > self._partitions_count_max:
            self._remove(session.session_id)
            return ErrorCode.fetch_session_id_not_found
        session.used_ms = now_ms
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        session.epoch = next_epoch(session.epoch)
        return FetchContext(self, fetch, version, session)

    def create(
        self,
        fetch: FetchRequest,
        version: int,
        topics: Sequence[FetchTopicResponse],
        now_ms: int,
    ) -> int:
        """Open a session for a full fetch with this answer; 0 when there is no space for it."""
        size = sum(len(topic.partitions) for topic in topics)
        if not _names_are_legal(fetch):
            return NO_SESSION
        if len(self._sessions) >= self._slots and not self._evict(size, now_ms):
            return NO_SESSION
        if self.partitions_count + size > self._partitions_count_max:
            return NO_SESSION
        session = FetchSession(
            self._fresh_id(),
            uses_topic_ids=version >= TOPIC_IDS_SINCE,
            now_ms=now_ms,
        )
        session.update(fetch)
        for topic in topics:
            for answer in topic.partitions:
                held = session.partitions.get((_topic_key(topic), answer.partition))
                if held is not None:
                    held.note(answer)
        self._sessions[session.session_id] = session
        self.partitions_count += len(session.partitions)
        return session.session_id

    def _evict(self, size: int, now_ms: int) -> bool:
        """Evict sessions for one of that size. False when all others have precedence."""
        victim = self._victim(size, now_ms)
        if victim is None:
            return False
        self._remove(victim.session_id)
        self.evictions_count += 1
        return True

    def _victim(self, size: int, now_ms: int) -> FetchSession | None:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_ms - oldest.used_ms > FETCH_SESSION_EVICTION_MS:
            return oldest
        candidates = [
            session
            for session in self._sessions.values()
            # As of its last use, as in Kafka.
            if session.used_ms - session.created_ms > FETCH_SESSION_EVICTION_MS
        ]
        if not candidates:
            return None
        least = min(candidates, key=lambda session: len(session.partitions))
        return least if len(least.partitions) < size else None

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partitions_count -= len(session.partitions)
            session.stir_all()
            session.is_removed = True

    def _fresh_id(self) -> int:
        # Random, so that a client with an id from before a restart does not find another's.
        while True:
            session_id = self._rng.randint(1, INT32_MAX - 1)
            if session_id not in self._sessions:
                return session_id


def next_epoch(epoch: int) -> int:
    """Return the epoch after this one; it wraps to 1, as 0 opens a session."""
    return 1 if epoch == INT32_MAX else epoch + 1


def _topic_key(topic: FetchTopic | FetchTopicResponse | ForgottenTopic) -> str | UUID | None:
    return topic.name if topic.name is not None else topic.topic_id


def _label(topic: str | UUID | None) -> tuple[str | None, UUID | None]:
    return (topic, None) if isinstance(topic, str) else (None, topic)


def _names_are_legal(fetch: FetchRequest) -> bool:
    """Whether no name is longer than a topic's can be: only then is the memory bounded."""
    return all(
        topic.name is None or len(topic.name) <= TOPIC_NAME_LENGTH_MAX for topic in fetch.topics
    )


def _asked(topics: Iterable[FetchTopic]) -> Iterable[tuple[Key, FetchPartition]]:
    for topic in topics:
        key = _topic_key(topic)
        for asked in topic.partitions:
            yield (key, asked.partition), asked
