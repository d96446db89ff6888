"""Defines the parts of the broker that every handler receives."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncelog.broker.controller.shell import ControllerShell
from oncelog.broker.coordination.meters import CoordinatorMeters
from oncelog.broker.coordination.producer_ids import ProducerIds
from oncelog.broker.coordination.verification import TransactionCoordinators
from oncelog.broker.membership.feed import MetadataFeed
from oncelog.broker.net.server import Server
from oncelog.broker.partitions.manager import PartitionManager
from oncelog.broker.partitions.moving import PartitionMover
from oncelog.controller.image import MetadataImage
from oncelog.core.config import BrokerConfig
from oncelog.runtime.clock import Clock
from oncelog.runtime.disk import Disk
from oncelog.storage.log_manager import LogManager

if TYPE_CHECKING:
    from oncelog.broker.coordination.coordinators import GroupRuntime, TransactionRuntime
    from oncelog.broker.coordination.received_markers import ReceivedMarkers

__all__ = ["Context"]


@dataclass(frozen=True, slots=True)
class Context:
    """The parts of a broker that handlers use.

    `logs` holds the log directories and `mover` moves partitions between them; `received_markers`
    returns what writes the markers of coordinators on other brokers; `server` counts connections
    and requests, `meters` what the coordinators do; `rng` makes fresh ids.
    """

    broker_id: int
    config: BrokerConfig
    clock: Clock
    disk: Disk
    logs: LogManager
    mover: PartitionMover
    feed: MetadataFeed
    controller: ControllerShell
    partitions: PartitionManager
    producer_ids: ProducerIds
    transactions: TransactionRuntime
    transaction_coordinators: TransactionCoordinators
    received_markers: Callable[[], ReceivedMarkers]
    groups: GroupRuntime
    meters: CoordinatorMeters
    server: Server
    rng: random.Random

    @property
    def image(self) -> MetadataImage:
        """The metadata that this broker has applied: what it names, it serves.

        The image is immutable: keep it across an await only when an older view is wanted.
        """
        return self.feed.image
