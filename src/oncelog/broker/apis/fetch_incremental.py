"""A consumer's Fetch in a session (KIP-227): it costs what changed, not all that the session has.

Most partitions of a wide session have nothing new most of the time. One of which the client has all
that it may read, and was told all, is *quiet*: it is neither read nor waited for by the next
requests. The partition tells the session once of the next change that a consumer could see: records
that may be read now, a moved log start, another role, its end. Then it is read again, and a request
that waits reads it too.

Where the rack of a consumer decides which replica it reads from (KIP-392), and where it may not
read all topics of its session, nothing is quiet: that depends on more than the partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from oncelog.broker.apis.fetch_reading import Reading, names_of
from oncelog.broker.net.request import Buffers, Request
from oncelog.broker.partitions.delayed import DelayedFetch, FetchPurgatory, Watched
from oncelog.broker.partitions.fetch_sessions import FetchContext, FetchSession, Key
from oncelog.broker.partitions.partition import Partition
from oncelog.core.pending import Pending
from oncelog.protocol.fetch import FetchPartition, FetchPartitionResponse, FetchRequest

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["IncrementalReading", "kind_of"]


class WatchedPartition:
    """A partition that tells a session of its next change."""

    __slots__ = ("_key", "_partition", "_session")

    def __init__(self, session: FetchSession, key: Key, partition: Partition) -> None:
        self._session = session
        self._key = key
        self._partition = partition
        if partition.watches is None:
            partition.watches = {}
        partition.watches[self] = None

    def changed(self, purgatory: FetchPurgatory) -> None:
        """See `Watch`."""
        self._session.heard(self._key, purgatory)

    def end(self) -> None:
        """See `QuietNote`."""
        if self._partition.watches is not None:
            self._partition.watches.pop(self, None)


class IncrementalReading(Reading):
    """One fetch request of a session that was there before, and the result of its last attempt."""

    __slots__ = ("_delayed", "_own")

    def __init__(
        self,
        context: Context,
        request: Request[memoryview],
        fetch: FetchRequest,
        session: FetchContext,
    ) -> None:
        super().__init__(context, request, fetch, session)
        assert session.session is not None
        self._own = session.session
        self._delayed: DelayedFetch | None = None

    @property
    def waits_for_nothing(self) -> bool:
        """Whether nothing can wake it."""
        return not self._own.has_quiet and super().waits_for_nothing

    def encode(self) -> Buffers:
        """Return the reply's buffers, and leave out from now on what the client has all of."""
        buffers = super().encode()
        session = self._session
        if session is None or not session.is_newest or self._rack_id:
            return buffers
        for topic, answered, name in zip(
            self._fetch.topics, self._topics, self._resolved, strict=True
        ):
            for wanted, answer in zip(topic.partitions, answered.partitions, strict=True):
                if answer.records or answer.error:
                    continue
                partition = self._context.partitions.get(name or "", wanted.partition)
                if partition is not None and self._has_all(partition, wanted, answer):
                    key = (topic.topic_id or topic.name, wanted.partition)
                    self._own.quieten(key, WatchedPartition(self._own, key, partition))
        return buffers

    def _has_all(
        self, partition: Partition, wanted: FetchPartition, answer: FetchPartitionResponse
    ) -> bool:
        """Whether the client has all that there is for it now, and was told so without an error."""
        return (
            answer.diverging_epoch is None
            and wanted.fetch_offset >= partition.readable_end(self._read_committed)
            and answer.high_watermark == partition.state.high_watermark
            and answer.log_start_offset == partition.log.log_start_offset
        )

    def _watched(self) -> Iterable[Watched]:
        return (*super()._watched(), self._own)

    def _park(self, reply: Pending[Buffers], wait_ms: float) -> DelayedFetch:
        self._delayed = super()._park(reply, wait_ms)
        if self._own.is_stirred:
            # While it read from the disk.
            self._context.partitions.purgatory.wake(self._delayed)
        return self._delayed

    def _attempt(self, final: bool) -> int | None:
        """See `Reading`; reads what was stirred, too, and waits there."""
        if self._own.is_stirred and self._session is not None and self._session.is_newest:
            self._fetch = self._fetch._replace(topics=self._own.topics())
            self._resolved = names_of(self._context, self._fetch.topics)
            if not final and self._delayed is not None:
                self._delayed.move(self._watched())
        return super()._attempt(final)


def kind_of(session: FetchContext | None) -> type[Reading]:
    """How a consumer's request is read, in a session or without one."""
    return Reading if session is None or session.session is None else IncrementalReading
