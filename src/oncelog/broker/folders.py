"""A broker's log directories at its start and its stop.

It must not know partitions, nor what is served.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from oncelog.broker.partitions.log_settings import log_config
from oncelog.broker.partitions.strays import miss_directories, off_line, report_logs, sort_out
from oncelog.controller.cluster_config import cluster_values
from oncelog.controller.events import BrokerRegistered
from oncelog.controller.features import TRANSACTION_VERSION
from oncelog.controller.image import BrokerImage, MetadataImage
from oncelog.core.config import BrokerConfig
from oncelog.core.config_definition import as_int
from oncelog.core.limits import DISK_EXECUTOR_THREAD_COUNT
from oncelog.core.listeners import RegisteredListener
from oncelog.runtime.disk import Disk, Lane, StorageFailure
from oncelog.storage.config import LogConfig
from oncelog.storage.log_manager import LogManager

__all__ = ["close_logs", "described_life", "open_logs", "registration"]

log = logging.getLogger(__name__)


def open_logs(logs: LogManager, image: MetadataImage, config: BrokerConfig, now_ms: int) -> None:
    """Finish what the last run left, set strays aside, and open all logs. Blocking."""
    logs.expect(image.directories.get(config.get_int("node.id"), frozenset()))

    def config_for(name: str) -> LogConfig:
        topic = image.topic(name)
        return log_config(config, topic.config if topic is not None else {})

    logs.finish_moves()
    sort_out(logs, image, config.get_int("node.id"))
    logs.open_logs(config_for, now_ms)
    miss_directories(logs, image, config.get_int("node.id"))


def registration(logs: LogManager, image: MetadataImage, config: BrokerConfig) -> BrokerRegistered:
    """Return what the controller has to know of this broker before it leads, but for its epoch."""
    broker_id = config.get_int("node.id")
    level = config.get("transaction.version")
    # Of the life before: this one is not registered yet.
    last_epoch = image.broker_epochs.get(broker_id, 0)
    report = report_logs(logs, image, broker_id, last_epoch)
    return BrokerRegistered(
        broker_id,
        -1,
        logs.directory_ids | logs.missing,
        report.unclean_because is None,
        report.uncertain,
        {} if level is None else {TRANSACTION_VERSION: as_int(level)},
        cluster_values(config),
        frozenset(off_line(logs, image, broker_id)),
    )


def described_life(
    logs: LogManager,
    config: BrokerConfig,
    incarnation: str,
    listeners: Mapping[str, RegisteredListener],
    image: MetadataImage,
) -> tuple[BrokerImage, BrokerRegistered]:
    """Return the registration and what the controller has to know, but for their epoch."""
    event = registration(logs, image, config)
    own = BrokerImage(
        event.broker_id,
        *listeners[config.inter_broker_listener].endpoint,
        config.get_str("broker.rack"),
        broker_epoch=logs.noted_epoch,
        is_clean=event.is_clean,
        incarnation=incarnation,
        listeners=listeners,
    )
    return own, event


async def close_logs(logs: LogManager, disk: Disk) -> StorageFailure | None:
    """Close all logs in order. Returns why they are not: then the next start recovers."""
    # One log after the other would wait for one fsync after the other.
    lanes = [lane for lane in Lane for _ in range(DISK_EXECUTOR_THREAD_COUNT)]
    shares = zip(logs.closing(len(lanes)), lanes, strict=False)
    try:
        async with asyncio.TaskGroup() as tasks:
            closing = [tasks.create_task(disk.run(*share)) for share in shares]
        await disk.run(logs.close)
    except StorageFailure as failure:
        return failure
    return next(filter(None, (task.result() for task in closing)), None)
