"""Tells the controller which deletions and removals nothing on this broker needs any more.

A replica stays noted as removed until its broker has said that it has no folder of it. A topic
stays named deleted until every broker that may have had a folder of it, or that may coordinate what
names it, has said so: the coordinators of each broker are its own to ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.controller.shell import ControllerShell
from oncelog.broker.coordination.coordinators import still_named
from oncelog.broker.membership.feed import MetadataFeed
from oncelog.broker.partitions.manager import PartitionManager
from oncelog.broker.partitions.strays import confirmable, removals
from oncelog.controller.events import DeletionsConfirmed, RemovedReplica, ReplicasRemoved
from oncelog.core.ids import TopicId
from oncelog.core.limits import DELETIONS_CONFIRMED_INTERVAL_MS, PARKED_REQUEST_WAIT_MS_MAX
from oncelog.runtime.clock import Clock
from oncelog.runtime.disk import Disk, StorageFailure
from oncelog.storage.log_manager import LogManager

if TYPE_CHECKING:
    from oncelog.broker.coordination.coordinators import GroupRuntime, TransactionRuntime

__all__ = ["DeletionsWatch"]

_SINCE_DECIDED_MS = DELETIONS_CONFIRMED_INTERVAL_MS - PARKED_REQUEST_WAIT_MS_MAX


class DeletionsWatch:
    """Looks at intervals; `run` does so until cancelled."""

    def __init__(
        self,
        broker_id: int,
        logs: LogManager,
        partitions: PartitionManager,
        feed: MetadataFeed,
        controller: ControllerShell,
        transactions: TransactionRuntime,
        groups: GroupRuntime,
        disk: Disk,
        clock: Clock,
    ) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._partitions = partitions
        self._feed = feed
        self._controller = controller
        self._transactions = transactions
        self._groups = groups
        self._disk = disk
        self._clock = clock

    async def run(self) -> None:
        """Confirm what is found gone.

        That is once the folders are gone or renamed (a folder renamed as deleted records that
        itself), and no coordinator names the topics. A request that named one before its deletion
        may be parked: so it takes two checks in a row, which are further apart than any request
        waits. No request can have named what was deleted before this start, nor one that a shard
        got which was elected after the first check: it knows the deletion.
        """
        earlier = frozenset(one for noted in self._feed.image.deleted.values() for one in noted)
        before: frozenset[TopicId] = frozenset()
        while True:
            before = await self.check(before | earlier)
            await self._clock.sleep(DELETIONS_CONFIRMED_INTERVAL_MS)

    async def check(self, known: frozenset[TopicId]) -> frozenset[TopicId]:
        """Confirm what is gone of the deletions that are `known`; return all that is gone.

        The controller is told which coordinators were asked, as others may have come since.
        """
        gone, removed = self._gone(), self._removed()
        asked = frozenset((*self._transactions.led(), *self._groups.led()))
        sure = gone & known
        if sure or removed:
            try:
                await self._disk.run(self._logs.sync_names)
            except StorageFailure as failure:
                self._partitions.folder_failed(failure)
                return gone
        if sure:
            await self._controller.report(DeletionsConfirmed(self._broker_id, sure, asked))
        if removed:
            await self._controller.report(ReplicasRemoved(self._broker_id, removed))
        return gone

    def _removed(self) -> tuple[RemovedReplica, ...]:
        """Return the removed replicas of which no folder is left; no coordinator names replicas."""
        if not self._feed.is_settled:
            return ()
        return removals(self._logs, self._feed.image, self._broker_id)

    def _gone(self) -> frozenset[TopicId]:
        image = self._feed.image
        gone = confirmable(self._logs, image, self._broker_id)
        if not gone or not self._feed.is_settled:
            return frozenset()  # A folder of one may still be made, and deleted after.
        # Requests from before the last check have been decided by then.
        before_ms = self._transactions.clock.now_ms() - _SINCE_DECIDED_MS
        named = still_named(self._transactions, self._groups, image, self._broker_id, before_ms)
        return gone - {one for name in named for one in image.deleted.get(name, ())}
