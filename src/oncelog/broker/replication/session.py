"""The follower's side of an incremental fetch session (KIP-227).

Pure. A leader remembers what was asked, so a request has only what is new or has changed, and what
leaves. The session's epoch rises with each request; where the leader has forgotten the session,
everything is asked again. A topic is its id: one that was created again under its name is another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from oncelog.core.cluster_limits import FETCH_CHANGES_COUNT_MAX
from oncelog.core.errors import ErrorCode
from oncelog.core.limits import INT32_MAX
from oncelog.protocol.fetch import FetchPartition, FetchTopic, ForgottenTopic

__all__ = ["FollowerSession", "Key", "NextFetch"]

Key = tuple[UUID, int]
"""A partition: topic id and number."""

_LOST = frozenset(
    {
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    }
)

NextFetch = tuple[int, int, Sequence[FetchTopic], Sequence[ForgottenTopic]]
"""Session id, session epoch, what is asked, and what leaves the session."""


class FollowerSession:
    """What is wanted of one leader, and what it was asked."""

    __slots__ = ("_changed", "_epoch", "_id", "_wanted", "asked")

    def __init__(self) -> None:
        self._wanted: dict[Key, FetchPartition] = {}
        self._changed: set[Key] = set()
        """Where what is wanted may differ from what was asked."""
        self.asked: dict[Key, FetchPartition] = {}
        """What the leader answers next; the answer is to be understood by it."""
        self._id = 0
        self._epoch = 0

    def __len__(self) -> int:
        return len(self._wanted)

    def want(self, key: Key, partition: FetchPartition | None) -> None:
        """Ask this of a partition from now on; with None ask nothing of it."""
        if partition is None:
            self._wanted.pop(key, None)
        else:
            self._wanted[key] = partition
        self._changed.add(key)

    def next(self) -> NextFetch:
        """Return the next request's part of the session.

        It says of each partition that stays in the session unnamed that it is followed as before:
        by that a leader is confirmed. So those that are not are named before all others.
        """
        ended: set[Key] = set()
        if len(self._changed) > FETCH_CHANGES_COUNT_MAX:
            ended = {key for key in self._changed if self._has_ended(key)}
            if len(ended) > FETCH_CHANGES_COUNT_MAX:
                self.reset()
        if not self._epoch:
            ended.clear()
            self.asked.clear()
            self._changed = set(self._wanted)
        due: dict[Key, FetchPartition] = {}
        forgotten: list[Key] = []
        for key in [*sorted(ended), *sorted(self._changed - ended)][:FETCH_CHANGES_COUNT_MAX]:
            self._changed.discard(key)
            wanted = self._wanted.get(key)
            if wanted is None:
                if self.asked.pop(key, None) is not None:
                    forgotten.append(key)
            elif self.asked.get(key) != wanted:
                self.asked[key] = due[key] = wanted
        return self._id, self._epoch, _topics(due), _forgotten(forgotten)

    def _has_ended(self, key: Key) -> bool:
        """Whether a partition of the session follows its leader no more in the epoch asked for."""
        asked, wanted = self.asked.get(key), self._wanted.get(key)
        if asked is None:
            return False
        return wanted is None or wanted.current_leader_epoch != asked.current_leader_epoch

    def answered(self, error: ErrorCode, session_id: int) -> bool:
        """Record the head of an answer; return whether its partitions count.

        Without a session of the leader's, each request asks everything.
        """
        if error is not ErrorCode.none:
            self.reset()
            if error is ErrorCode.fetch_session_id_not_found:
                self._id = 0
            return False
        self._id = session_id
        self._epoch = 0 if not session_id else self._epoch % INT32_MAX + 1
        return True

    def was_lost(self, error: ErrorCode) -> bool:
        """Whether the leader has only forgotten the session, so that asking again helps at once."""
        return error in _LOST and self._epoch > 0

    def reset(self) -> None:
        """Begin another session with the next request, which has the leader end the last one.

        A request of that one may still be on its way over a connection that was given up. Counted
        late, it would tell an end below that of a later one: a loss of records.
        """
        self._epoch = 0


def _topics(partitions: dict[Key, FetchPartition]) -> list[FetchTopic]:
    found: dict[UUID, list[FetchPartition]] = {}
    for (topic_id, _), partition in partitions.items():
        found.setdefault(topic_id, []).append(partition)
    return [FetchTopic(None, topic_id, asked) for topic_id, asked in found.items()]


def _forgotten(keys: Iterable[Key]) -> list[ForgottenTopic]:
    found: dict[UUID, list[int]] = {}
    for topic_id, number in keys:
        found.setdefault(topic_id, []).append(number)
    return [ForgottenTopic(None, topic_id, numbers) for topic_id, numbers in found.items()]
