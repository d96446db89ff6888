"""Assembles the two coordinators of a broker: their shards, topics and configs.

Runtimes run them (`oncelog.broker.coordination.runtime`), shards decide (`oncelog.transaction`,
`oncelog.group`). Nothing is decided here.

The shards are imported when the first partition needs one, or by `import_machines` shortly after
the start: importing their many small classes takes a third of a broker's start.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Never, TypeAlias

from oncelog.broker.coordination.context import CoordinatorContext
from oncelog.broker.coordination.producer_ids import ProducerIds
from oncelog.broker.coordination.runtime import CoordinatorRuntime, Deletions
from oncelog.broker.partitions.manager import PartitionManager
from oncelog.broker.partitions.partition import Partition
from oncelog.controller.image import MetadataImage
from oncelog.core.cluster_limits import HANDOVER_LINGER_MS
from oncelog.core.config import BrokerConfig
from oncelog.core.config_definition import as_list, as_str
from oncelog.core.errors import InvariantViolation
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from oncelog.core.limits import (
    COORDINATOR_APPEND_BYTES_MAX,
    MACHINE_IMPORT_DELAY_MS,
    MACHINE_IMPORT_PAUSE_MS,
)
from oncelog.runtime.clock import Clock

if TYPE_CHECKING:
    from oncelog.group.config import GroupConfig
    from oncelog.group.decision import GroupEvent, GroupReply
    from oncelog.group.events import TopicsDeleted
    from oncelog.group.meter import GroupMeter
    from oncelog.group.shard import GroupCoordinatorShard
    from oncelog.transaction.events import TransactionEffect, TransactionEvent, TransactionReply
    from oncelog.transaction.shard import TransactionCoordinatorShard
    from oncelog.transaction.store import TransactionConfig

    GroupRuntime: TypeAlias = CoordinatorRuntime[GroupEvent, GroupReply, Never]
    TransactionRuntime: TypeAlias = CoordinatorRuntime[
        TransactionEvent, TransactionReply, TransactionEffect
    ]
    TransactionContext: TypeAlias = CoordinatorContext[
        TransactionEvent, TransactionReply, TransactionEffect
    ]

__all__ = [
    "group_coordinator",
    "import_machines",
    "is_coordinator_in_use",
    "still_named",
    "transaction_coordinator",
]

_MINUTE_MS = 60_000

_MACHINE_MODULES: Final = (
    "oncelog.transaction.life",
    "oncelog.transaction.events",
    "oncelog.transaction.store",
    "oncelog.transaction.shard",
    "oncelog.group.events",
    "oncelog.group.replies",
    "oncelog.group.consumer.events",
    "oncelog.group.consumer.outcome",
    "oncelog.group.classic_group",
    "oncelog.protocol.records.consumer_group_log",
    "oncelog.group.records",
    "oncelog.group.admin",
    "oncelog.group.consumer.embedded",
    "oncelog.group.consumer.target",
    "oncelog.group.consumer.heartbeat",
    "oncelog.group.consumer_groups",
    "oncelog.group.shard",
)
"""The modules of the shards, in an order that spreads the import time: each takes up to 15 ms."""


async def import_machines(clock: Clock) -> None:
    """Import the shards once the broker has started, one module per turn of the event loop.

    So the first transaction and the first group do not wait for the imports.
    """
    await clock.sleep(MACHINE_IMPORT_DELAY_MS)
    for name in _MACHINE_MODULES:
        importlib.import_module(name)
        await clock.sleep(MACHINE_IMPORT_PAUSE_MS)


def transaction_coordinator(
    config: BrokerConfig,
    partitions: PartitionManager,
    producer_ids: ProducerIds,
    effect_handler: Callable[[TransactionContext, TransactionEffect], None],
) -> TransactionRuntime:
    """Build the transaction coordinator; its epoch is the leader epoch of its partition."""
    count = config.get_int("transaction.state.log.num.partitions")

    def make_shard(partition: Partition) -> TransactionCoordinatorShard:
        from oncelog.transaction.shard import TransactionCoordinatorShard

        return TransactionCoordinatorShard(
            partition.state.leader_epoch,
            transaction_config(config),
            (partition.topic_partition.partition % count + 1) / count,
        )

    runtime = CoordinatorRuntime(
        TRANSACTION_STATE_TOPIC,
        partition_count_default=count,
        partitions=partitions,
        make_shard=make_shard,
        effect_handler=effect_handler,
        producer_ids=producer_ids,
        takes_turns=True,
    )
    producer_ids.largest_seen = partial(_largest_producer_id, partitions, runtime)
    return runtime


def group_coordinator(
    config: BrokerConfig,
    partitions: PartitionManager,
    producer_ids: ProducerIds,
    meter: GroupMeter,
) -> GroupRuntime:
    """Build the group coordinator. It receives deleted topics, whose offsets it deletes."""

    def make_shard(partition: Partition) -> GroupCoordinatorShard:
        from oncelog.group.shard import GroupCoordinatorShard

        settings = group_config(config, partition.log.config.max_message_bytes)
        return GroupCoordinatorShard(settings, meter)

    return CoordinatorRuntime(
        CONSUMER_OFFSETS_TOPIC,
        partition_count_default=config.get_int("offsets.topic.num.partitions"),
        partitions=partitions,
        make_shard=make_shard,
        effect_handler=_no_effects,
        producer_ids=producer_ids,
        topics_deleted=_topics_deleted,
        append_wait_ms_max=config.get_int("offsets.commit.timeout.ms"),
    )


def _topics_deleted(image: MetadataImage, deleted: Deletions) -> TopicsDeleted:
    """Return the event; offsets without a topic id are those of the only topic of that name."""
    from oncelog.group.events import ZERO_TOPIC_ID, TopicsDeleted

    return TopicsDeleted(
        {
            name: frozenset(ids if name in image.topics else (*ids, ZERO_TOPIC_ID))
            for name, ids in deleted.items()
        }
    )


def still_named(
    transactions: TransactionRuntime,
    groups: GroupRuntime,
    image: MetadataImage,
    broker_id: int,
    before_ms: int,
) -> frozenset[str]:
    """Return the deleted topics that a coordinator of this broker still names, or may name.

    Their deletions have to stay in the metadata: a marker is dropped, and an offset deleted, only
    where it names the deletion. A transaction that was appended by `before_ms`, and is not
    committed, may name any of them; what a group has in flight it tells itself.
    """
    from oncelog.group.events import FindDeletedOffsets
    from oncelog.group.replies import DeletedOffsetsReply
    from oncelog.transaction.events import DeletedTopicsReply, FindDeletedTopics

    names = frozenset(image.deleted)
    are_whole = all(
        runtime.has_shards_of(image.topic(runtime.topic), broker_id)
        for runtime in (transactions, groups)
    )
    are_whole &= transactions.all_committed(before_ms)
    in_transactions = transactions.look_all(FindDeletedTopics(names))
    offsets = groups.look_all(FindDeletedOffsets(_topics_deleted(image, image.deleted).topic_ids))
    if not are_whole or in_transactions is None or offsets is None:
        return names
    found: set[str] = set()
    for reply in (*in_transactions, *offsets):
        if isinstance(reply, DeletedTopicsReply | DeletedOffsetsReply):
            found |= reply.names
    return frozenset(found)


def is_coordinator_in_use(transactions: TransactionRuntime, now_ms: int) -> bool:
    """Whether this broker coordinates a transaction that is open, or ended a moment ago."""
    since_ms = now_ms - HANDOVER_LINGER_MS
    if shards := transactions.shards():
        from oncelog.transaction.shard import TransactionCoordinatorShard

        return any(
            isinstance(shard, TransactionCoordinatorShard) and shard.is_in_use(since_ms)
            for shard in shards
        )
    return False


def _largest_producer_id(partitions: PartitionManager, transactions: TransactionRuntime) -> int:
    """Return the largest producer id in the logs of this broker, as far as it is known."""
    largest = max((one.log.producers.largest_id for one in partitions), default=-1)
    if shards := transactions.shards():
        from oncelog.transaction.shard import TransactionCoordinatorShard

        for shard in shards:
            if isinstance(shard, TransactionCoordinatorShard):
                largest = max(largest, shard.largest_producer_id)
    return largest


def _no_effects(_: CoordinatorContext[GroupEvent, GroupReply, Never], effect: Never) -> None:
    raise InvariantViolation(f"groups have no effects, but one asks for {effect!r}")


def transaction_config(config: BrokerConfig) -> TransactionConfig:
    """Return the transaction coordinator's configs, from Kafka's keys."""
    from oncelog.transaction.store import TransactionConfig

    return TransactionConfig(
        timeout_ms_max=config.get_int("transaction.max.timeout.ms"),
        abort_interval_ms=config.get_int(
            "transaction.abort.timed.out.transaction.cleanup.interval.ms"
        ),
        id_expiration_ms=config.get_int("transactional.id.expiration.ms"),
        expire_interval_ms=config.get_int(
            "transaction.remove.expired.transaction.cleanup.interval.ms"
        ),
    )


def group_config(config: BrokerConfig, max_message_bytes: int) -> GroupConfig:
    """Return the group coordinator's configs, from Kafka's keys.

    `max_message_bytes` limits a batch of its internal topic.
    """
    from oncelog.group.config import GroupConfig
    from oncelog.group.consumer.settings import ConsumerGroupConfig, MigrationPolicy

    return GroupConfig(
        min_session_timeout_ms=config.get_int("group.min.session.timeout.ms"),
        max_session_timeout_ms=config.get_int("group.max.session.timeout.ms"),
        max_size=config.get_int("group.max.size"),
        initial_rebalance_delay_ms=config.get_int("group.initial.rebalance.delay.ms"),
        offset_metadata_max_size=config.get_int("offset.metadata.max.bytes"),
        offsets_retention_ms=config.get_int("offsets.retention.minutes") * _MINUTE_MS,
        offsets_retention_check_interval_ms=config.get_int("offsets.retention.check.interval.ms"),
        append_bytes_max=min(COORDINATOR_APPEND_BYTES_MAX, max_message_bytes),
        consumer=ConsumerGroupConfig(
            session_timeout_ms=config.get_int("group.consumer.session.timeout.ms"),
            heartbeat_interval_ms=config.get_int("group.consumer.heartbeat.interval.ms"),
            assignment_interval_ms=config.get_int("group.consumer.assignment.interval.ms"),
            max_size=config.get_int("group.consumer.max.size"),
            migration_policy=MigrationPolicy(
                as_str(config.get("group.consumer.migration.policy")).lower()
            ),
            assignors=as_list(config.get("group.consumer.assignors")),
        ),
    )
