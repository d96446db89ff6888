"""Makes replicas again that were on a disk which was exchanged, once others have their records.

Where others have them at the start, the replicas are made then (`strays.off_line`). What this
broker alone had is off line, for the disk may come back; but when the metadata names another broker
that has every committed record, as after an unclean election, nothing depends on that disk any
more (D14). The replica then follows from nothing. Should the disk be put back later, its log is cut
to the leader's by leader epochs, as any follower's.
"""

from __future__ import annotations

import logging

from oncelog.broker.controller.shell import ControllerShell
from oncelog.broker.membership.feed import MetadataFeed
from oncelog.broker.partitions.strays import not_waited_for
from oncelog.controller.events import OffLineReplica, ReplicasMadeAgain
from oncelog.storage.log_manager import LogManager

__all__ = ["make_replicas_again"]

log = logging.getLogger(__name__)


async def make_replicas_again(
    broker_id: int, logs: LogManager, feed: MetadataFeed, controller: ControllerShell
) -> None:
    """Judge each change of the metadata; return once no replica is off line for a lost disk.

    The controller notes first that the replica is not off line any more: else no leader would take
    it into the ISR.
    """
    known = feed.known
    while logs.missing and (waiting := [one for one in known.off_line if one not in feed.unmade]):
        image = known.stored
        begun, told = [], []
        for label, topic, partition in not_waited_for(logs, image, broker_id, waiting):
            if broker_id in partition.offline_replicas:
                epoch = partition.partition_epoch
                told.append(OffLineReplica(topic.topic_id, label.partition, epoch))
            else:
                begun.append(label)
        if begun:
            log.warning(
                "%d replicas are made again without records: they were on a disk that was "
                "exchanged, and others lead them now",
                len(begun),
            )
            known.bring_back(begun)
            await feed.follow_known()
        if told:
            await controller.report(ReplicasMadeAgain(broker_id, tuple(told)))
        await feed.moved_past(image.revision)
    if not logs.lost and not known.off_line:
        # As at a start: else this broker could confirm no deletion and no removal until the next.
        logs.missing = frozenset()
