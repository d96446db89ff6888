"""Has partition leaders write the markers of transactions (WriteTxnMarkers).

`MarkerWriter` executes `SendMarkers`: every partition's leader appends the end marker; when the
markers are below the high watermark, it reports one `MarkersWritten`. Failed markers are reported
at once, so that their retry does not wait for slower partitions. `PartitionLeaders` is the way to a
leader. `LocalLeaders` writes to the partitions that this broker leads, in the turn of the event
loop after the one that committed PREPARE: EndTxn's reply has been sent by then, and its client
works while the transaction completes here. A request that arrives in between waits for COMPLETE
(D7). Where other brokers lead, `oncelog.broker.coordination.remote_markers` asks them.

The shard decides about retries, from the outcomes. The order keeps INV-4: a SendMarkers is released
only after PREPARE is committed.

Absence is no deletion: a marker is dropped only where the metadata names the topic deleted. One
whose partition the metadata does not show stays owed, as a store that was restored, or an image
that is one change behind, shows no partition either. Transactions know topics by name; an image
that names the deletion is at least as new as the one by which the partition joined the transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from oncelog.broker.partitions.manager import PartitionManager
from oncelog.broker.partitions.partition import Partition
from oncelog.controller.image import MetadataImage
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.core.limits import TRANSACTIONS_ENDED_PER_TICK_COUNT_MAX

if TYPE_CHECKING:
    from oncelog.broker.coordination.coordinators import TransactionContext

    # Not imported at the start: the shard that makes the effect has imported it.
    from oncelog.transaction.events import (
        MarkersWritten,
        Notice,
        SendMarkers,
        TransactionEffect,
    )

__all__ = ["LocalLeaders", "MarkerWriter", "PartitionLeaders", "RemoteLeaders", "Settled"]

log = logging.getLogger(__name__)


class Settled(Protocol):
    """Called once with the outcome of one partition's marker; NONE once the marker is committed.

    `has_ended`: the leader refuses the marker as too old (`MARKER_REFUSALS`), and its producer has
    no open transaction there. What ended it instead is committed.
    """

    def __call__(
        self, topic_partition: TopicPartition, error: ErrorCode, /, has_ended: bool = False
    ) -> None:
        """Take the outcome."""
        ...


class PartitionLeaders(Protocol):
    """The way to the leaders of partitions, on this broker or on others."""

    def write(
        self, topic_partition: TopicPartition, markers: SendMarkers, settled: Settled
    ) -> object:
        """Have the leader append one partition's marker; `settled` gets the outcome."""
        ...


class RemoteLeaders(PartitionLeaders, Protocol):
    """The way to leaders of which some are other brokers."""

    def apply(self, image: MetadataImage) -> None:
        """Follow the metadata image."""
        ...

    async def close(self) -> None:
        """Ask no broker any more: what waits for one stays unsettled."""
        ...


class LocalLeaders:
    """The partitions that this broker leads."""

    def __init__(self, partitions: PartitionManager) -> None:
        self.partitions = partitions

    def write(
        self,
        topic_partition: TopicPartition,
        markers: SendMarkers,
        settled: Settled,
        *,
        is_coordinator: bool = True,
    ) -> None:
        """Append one partition's marker; call `settled` once it is committed or failed.

        A coordinator whose marker is refused is told whether there is anything to end.
        """
        partition = self.partitions.get(*topic_partition)
        error = (
            ErrorCode.not_leader_or_follower
            if partition is None
            else partition.state.leader_error()
        )
        if partition is None or error is not ErrorCode.none:
            settled(topic_partition, error)
            return
        result = partition.append_marker(
            markers.producer_id,
            markers.producer_epoch,
            markers.coordinator_epoch,
            commit=markers.commit,
            now_ms=self.partitions.clock.now_ms(),
            transaction_version=markers.transaction_version,
        )
        if result.error is not ErrorCode.none:
            if is_coordinator:
                _refused(partition, markers, result.error, settled)
            else:
                settled(topic_partition, result.error)
            return
        partition.on_committed(result.last_offset + 1, partial(settled, topic_partition))


def _refused(
    partition: Partition, markers: SendMarkers, refusal: ErrorCode, settled: Settled
) -> None:
    """Settle a marker that the log refuses, and say whether its producer is idle there.

    If it is, this voids the transaction's verification, as the marker would: no waiting batch may
    still open it (INV-3). The append that ended it instead has to be committed first: COMPLETE
    depends on the report (INV-4).
    """
    from oncelog.transaction.events import MARKER_REFUSALS

    topic_partition, producers = partition.topic_partition, partition.log.producers
    known = producers.entry(markers.producer_id)
    if refusal not in MARKER_REFUSALS or known is None or known.transaction_first_offset >= 0:
        settled(topic_partition, refusal)
        return

    def committed(error: ErrorCode) -> None:
        if error is ErrorCode.none:
            settled(topic_partition, refusal, has_ended=True)
        else:
            settled(topic_partition, error)

    producers.verifications.marked(markers.producer_id, markers.producer_epoch)
    partition.on_committed(partition.log.log_end_offset, committed)


class MarkerWriter:
    """Executes the effects of the transaction coordinator."""

    def __init__(
        self, leaders: LocalLeaders, stop_because: Callable[[BaseException], None]
    ) -> None:
        self._local = leaders
        self._leaders: PartitionLeaders = leaders
        self._cluster: RemoteLeaders | None = None
        self._image = MetadataImage(cluster_id="")
        self._stop_because = stop_because
        self._loop = asyncio.get_running_loop()
        self._owed: deque[tuple[TransactionContext, SendMarkers]] = deque()
        self._told: list[Notice] = []
        self.reports: dict[TransactionContext, list[MarkersWritten]] | None = None
        """While markers are sent: the reports that go to each shard together afterwards."""

    def apply(self, image: MetadataImage) -> None:
        """Follow the metadata image."""
        self._image = image
        if self._cluster is not None:
            self._cluster.apply(image)

    def join(self, make: Callable[[LocalLeaders], RemoteLeaders]) -> None:
        """Have leaders on other brokers write too, from now on."""
        self._leaders = self._cluster = make(self._local)
        self._cluster.apply(self._image)

    async def close(self) -> None:
        """Send nothing to other brokers any more."""
        if self._cluster is not None:
            await self._cluster.close()

    def handle(self, coordinator: TransactionContext, effect: TransactionEffect) -> None:
        """Execute one effect of a shard; its outcome returns to the shard as an event."""
        from oncelog.transaction.events import Notice

        if isinstance(effect, Notice):
            if not effect.subject:
                log.log(logging.WARNING if effect.is_warning else logging.INFO, "%s", effect.text)
                return
            if not self._told:
                self._loop.call_soon(self._tell)
            self._told.append(effect)
        elif effect.delay_ms > 0:
            at_once = replace(effect, delay_ms=0)
            self._loop.call_later(effect.delay_ms / 1000, self.handle, coordinator, at_once)
        else:
            if not self._owed:
                self._loop.call_soon(self._send_or_stop)
            self._owed.append((coordinator, effect))

    def _tell(self) -> None:
        from oncelog.transaction.notices import timed_out_together

        told, self._told = self._told, []
        log.info("%s", timed_out_together(told))

    def _send_or_stop(self) -> None:
        """Send what is owed, as much as a turn of the loop may take."""
        try:
            reports: dict[TransactionContext, list[MarkersWritten]] = {}
            self.reports = reports
            left = TRANSACTIONS_ENDED_PER_TICK_COUNT_MAX
            while self._owed and left > 0:
                coordinator, markers = self._owed.popleft()
                left -= len(markers.partitions)
                self._send(coordinator, markers)
            self.reports = None
            if self._owed:
                self._loop.call_soon(self._send_or_stop)
            for coordinator, together in reports.items():
                coordinator.submit_all(together)
        except Exception as error:  # noqa: BLE001 - a callback is a task boundary: a bug stops us
            self._stop_because(error)

    def _send(self, coordinator: TransactionContext, markers: SendMarkers) -> None:
        image = self._image
        shown: list[TopicPartition] = []
        deleted: list[TopicPartition] = []
        unknown: list[TopicPartition] = []
        for topic_partition in markers.partitions:
            if image.partition(topic_partition.topic, topic_partition.partition) is not None:
                shown.append(topic_partition)
            elif topic_partition.topic in image.deleted:
                deleted.append(topic_partition)
            else:
                unknown.append(topic_partition)
        MarkerBatch(self, self._leaders, coordinator, markers, tuple(deleted)).write(shown, unknown)


class MarkerBatch:
    """The markers of one `SendMarkers`, until the last of them has an outcome.

    Usually one report tells of all. A failure is reported at once, with what else has settled.
    """

    __slots__ = (
        "_closed",
        "_coordinator",
        "_deleted",
        "_has_failed",
        "_is_writing",
        "_leaders",
        "_markers",
        "_outcomes",
        "_waiting_count",
        "_writer",
    )

    def __init__(
        self,
        writer: MarkerWriter,
        leaders: PartitionLeaders,
        coordinator: TransactionContext,
        markers: SendMarkers,
        deleted: tuple[TopicPartition, ...],
    ) -> None:
        self._writer = writer
        self._leaders = leaders
        self._coordinator = coordinator
        self._markers = markers
        self._deleted = deleted
        self._is_writing = True
        self._has_failed = False
        self._outcomes: list[tuple[TopicPartition, ErrorCode]] = []
        self._closed: list[tuple[TopicPartition, ErrorCode]] = []
        self._waiting_count = 0

    def write(self, shown: list[TopicPartition], unknown: list[TopicPartition]) -> None:
        """Have all markers written, and report if all have settled or one has failed.

        The metadata does not show the `unknown` partitions: their markers fail, and stay owed.
        """
        self._waiting_count = len(shown)
        for topic_partition in unknown:
            self._has_failed = True
            self._outcomes.append((topic_partition, ErrorCode.unknown_topic_or_partition))
        for topic_partition in shown:
            self._leaders.write(topic_partition, self._markers, self._settled)
        self._is_writing = False
        if self._has_failed or self._waiting_count == 0:
            self._report()

    def _settled(
        self, topic_partition: TopicPartition, error: ErrorCode, /, has_ended: bool = False
    ) -> None:
        """Note what a leader answers.

        One that knows the partition no more leads it no more. Whether the topic is deleted, only
        the metadata says, at the retry: the leader may follow a newer image than this writer.
        """
        if has_ended:
            self._closed.append((topic_partition, error))
        else:
            self._has_failed = self._has_failed or error is not ErrorCode.none
            if error is ErrorCode.unknown_topic_or_partition:
                error = ErrorCode.not_leader_or_follower
            self._outcomes.append((topic_partition, error))
        self._waiting_count -= 1
        if not self._is_writing:
            self._report_if_due()

    def _report_if_due(self) -> None:
        if self._has_failed or self._waiting_count == 0:
            self._report()

    def _report(self) -> None:
        """Report what has settled since the last report."""
        from oncelog.transaction.events import MarkersWritten

        markers = self._markers
        report = MarkersWritten(
            markers.transactional_id,
            markers.producer_id,
            markers.producer_epoch,
            markers.coordinator_epoch,
            tuple(self._outcomes),
            self._deleted,
            markers.ordinal,
            tuple(self._closed),
        )
        self._outcomes, self._closed, self._deleted, self._has_failed = [], [], (), False
        together = self._writer.reports
        if together is None:
            self._coordinator.submit(report)
        else:
            together.setdefault(self._coordinator, []).append(report)
