"""Writes transaction markers from the coordinator to the partitions (WriteTxnMarkers).

`MarkerWriter` executes `SendMarkers`: every partition's leader appends the end marker; when the
markers are below the high watermark, it reports one `MarkersWritten`. Failed markers are reported
at once, so that their retry does not wait for slower partitions. Partitions that this broker
leads are written directly, in the turn of the event loop after the one that committed PREPARE:
EndTxn's reply has been sent by then, and its client works while the transaction completes here. A
request that arrives in between waits for COMPLETE (D7).

The shard decides about retries, from the outcomes. The order keeps INV-4: a SendMarkers is released
only after PREPARE is committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from oncelog.broker.partitions.manager import PartitionManager
from oncelog.controller.image import MetadataImage
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition

if TYPE_CHECKING:
    from oncelog.broker.coordination.coordinators import TransactionContext

    # Not imported at the start: the shard that makes the effect has imported it.
    from oncelog.transaction.events import SendMarkers, TransactionEffect

__all__ = ["MarkerWriter", "append_markers"]

log = logging.getLogger(__name__)


class MarkerWriter:
    """Executes the effects of the transaction coordinator.

    `known` returns the newest metadata: a partition that is not in it was deleted. One that is in
    it and not served yet gets its marker later (INV-4).
    """

    def __init__(
        self,
        partitions: PartitionManager,
        known: Callable[[], MetadataImage],
        stop_because: Callable[[BaseException], None],
    ) -> None:
        self._partitions = partitions
        self._known = known
        self._stop_because = stop_because
        self._loop = asyncio.get_running_loop()

    def handle(self, coordinator: TransactionContext, effect: TransactionEffect) -> None:
        """Execute one effect of a shard; its outcome returns to the shard as an event."""
        from oncelog.transaction.events import Notice

        if isinstance(effect, Notice):
            log.log(logging.WARNING if effect.is_warning else logging.INFO, "%s", effect.text)
            return
        if effect.delay_ms > 0:
            self._loop.call_later(effect.delay_ms / 1000, self._send_or_stop, coordinator, effect)
        else:
            self._loop.call_soon(self._send_or_stop, coordinator, effect)

    def _send_or_stop(self, coordinator: TransactionContext, markers: SendMarkers) -> None:
        try:
            self._send(coordinator, markers)
        except Exception as error:  # noqa: BLE001 - a callback is a task boundary: a bug stops us
            self._stop_because(error)

    def _send(self, coordinator: TransactionContext, markers: SendMarkers) -> None:
        image = self._known()
        living: list[TopicPartition] = []
        deleted: list[TopicPartition] = []
        for topic_partition in markers.partitions:
            exists = image.partition(topic_partition.topic, topic_partition.partition) is not None
            (living if exists else deleted).append(topic_partition)
        MarkerBatch(self._partitions, coordinator, markers, tuple(deleted), len(living)).write(
            living
        )


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
        "_markers",
        "_outcomes",
        "_partitions",
        "_waiting_count",
    )

    def __init__(
        self,
        partitions: PartitionManager,
        coordinator: TransactionContext,
        markers: SendMarkers,
        deleted: tuple[TopicPartition, ...],
        waiting_count: int,
    ) -> None:
        self._partitions = partitions
        self._coordinator = coordinator
        self._markers = markers
        self._deleted = deleted
        self._is_writing = True
        self._has_failed = False
        self._outcomes: list[tuple[TopicPartition, ErrorCode]] = []
        self._closed: list[tuple[TopicPartition, ErrorCode]] = []
        self._waiting_count = waiting_count

    def write(self, partitions: list[TopicPartition]) -> None:
        """Append all markers, and report if all have settled or one has failed."""
        for topic_partition in partitions:
            append_markers(self._partitions, topic_partition, self._markers, self._settled)
        self._is_writing = False
        if self._has_failed or self._waiting_count == 0:
            self._report()

    def _settled(self, topic_partition: TopicPartition, error: ErrorCode) -> None:
        if error is not ErrorCode.none and self._has_nothing_to_end(topic_partition, error):
            return
        self._outcomes.append((topic_partition, error))
        if error is not ErrorCode.none:
            self._has_failed = True
        self._waiting_count -= 1
        if not self._is_writing:
            self._report_if_due()

    def _has_nothing_to_end(self, topic_partition: TopicPartition, refusal: ErrorCode) -> bool:
        """Whether the marker is older than the partition's state, and its producer idle.

        This voids the transaction's verification, as the marker would: no waiting batch may still
        open it (INV-3). The append that ended it instead has to be committed first: COMPLETE
        depends on the report (INV-4).
        """
        from oncelog.transaction.events import MARKER_REFUSALS

        partition = self._partitions.get(*topic_partition)
        if refusal not in MARKER_REFUSALS or partition is None:
            return False
        log_ = partition.log
        known = log_.producers.entry(self._markers.producer_id)
        if known is None or known.transaction_first_offset >= 0:
            return False
        log_.producers.verifications.marked(self._markers.producer_id, self._markers.producer_epoch)
        ended = partial(self._ended_otherwise, topic_partition, refusal)
        partition.on_committed(log_.log_end_offset, ended)
        return True

    def _ended_otherwise(
        self, topic_partition: TopicPartition, refusal: ErrorCode, error: ErrorCode
    ) -> None:
        if error is not ErrorCode.none:
            self._settled(topic_partition, error)
            return
        self._closed.append((topic_partition, refusal))
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
        self._outcomes, self._closed, self._deleted = [], [], ()
        self._has_failed = False
        self._coordinator.submit(report)


def append_markers(
    partitions: PartitionManager,
    topic_partition: TopicPartition,
    markers: SendMarkers,
    settled: Callable[[TopicPartition, ErrorCode], None],
) -> None:
    """Append one partition's marker; call `settled` once it is committed or failed."""
    partition = partitions.get(*topic_partition)
    error = (
        ErrorCode.not_leader_or_follower if partition is None else partition.state.leader_error()
    )
    if partition is None or error is not ErrorCode.none:
        settled(topic_partition, error)
        return
    result = partition.append_marker(
        markers.producer_id,
        markers.producer_epoch,
        markers.coordinator_epoch,
        commit=markers.commit,
        now_ms=partitions.clock.now_ms(),
        transaction_version=markers.transaction_version,
    )
    if result.error is not ErrorCode.none:
        settled(topic_partition, result.error)
        return
    partition.on_committed(result.last_offset + 1, partial(settled, topic_partition))
