"""The timer by which the controller brings leaderships back to the preferred replicas."""

from __future__ import annotations

import logging

from oncelog.broker.controller.shell import ControllerShell
from oncelog.broker.membership.feed import MetadataFeed
from oncelog.controller.balance import leaderships_to_bring_back
from oncelog.controller.events import ElectLeaders
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode
from oncelog.runtime.clock import Clock

__all__ = ["balance_leaders"]

log = logging.getLogger(__name__)


async def balance_leaders(
    broker_id: int,
    config: BrokerConfig,
    feed: MetadataFeed,
    controller: ControllerShell,
    clock: Clock,
) -> None:
    """Look again and again while this broker holds the office, until cancelled."""
    if not config.get_bool("auto.leader.rebalance.enable"):
        return
    interval_ms = config.get_int("leader.imbalance.check.interval.seconds") * 1000
    percentage_max = config.get_int("leader.imbalance.per.broker.percentage")
    while True:
        await clock.sleep(interval_ms)
        image = feed.image
        if image.controller_id != broker_id or len(image.brokers) == 1:
            continue
        labels = leaderships_to_bring_back(image, percentage_max)
        if labels:
            outcomes = await controller.submit(ElectLeaders(labels))
            count = sum(outcome.error is ErrorCode.none for outcome in outcomes)
            log.info("brought %d of %d leaderships back to preferred replicas", count, len(labels))
