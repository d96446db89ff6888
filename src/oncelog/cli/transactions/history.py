"""Reads the history of a transactional id from the coordinators' log.

Apache Kafka does not report the history of an id, but each of its transitions is a record of
`__transaction_state`, which an authorized client can consume. Compaction always retains the last
record of each id; markers and causes are not in the log.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from oncelog.cli.connecting import keywords

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oncelog.client import Admin, ConsumerRecord, TransactionStep
    from oncelog.transaction.life import Life, Step

__all__ = ["read_life"]


async def read_life(
    admin: Admin, servers: str, transactional_id: str
) -> tuple[TransactionStep, ...]:
    """Return an id's transitions in the last records of its partition; none if unreadable."""
    from oncelog.client import Consumer, FatalError, Role
    from oncelog.core.errors import ErrorCode
    from oncelog.core.ids import TRANSACTION_STATE_TOPIC, TopicPartition
    from oncelog.core.limits import LIFE_LOG_OFFSETS_COUNT_MAX
    from oncelog.protocol.hashing import coordinator_partition
    from oncelog.transaction.life import Lives

    lives = Lives()
    life: Life = deque()
    lives.by_id[transactional_id] = life
    try:
        topic = await admin.describe_topic(TRANSACTION_STATE_TOPIC)
        index = coordinator_partition(transactional_id, len(topic.partitions))
        place = TopicPartition(TRANSACTION_STATE_TOPIC, index)
        first = (await admin.list_offsets({place: "earliest"}))[place]
        end = (await admin.list_offsets({place: "latest"}))[place]
        own = keywords(Role.CONSUMER, client_id="oncelog-transactions")
        async with Consumer(servers, isolation_level="read_uncommitted", **own) as consumer:
            consumer.assign([place])
            consumer.seek(place, max(first, end - LIFE_LOG_OFFSETS_COUNT_MAX))
            while await consumer.position(place) < end:
                _take(life, await consumer.poll(timeout_ms=1000), transactional_id)
    except FatalError as error:
        if error.code is not ErrorCode.topic_authorization_failed:
            raise
    return tuple(map(_told, lives.steps(transactional_id)))


def _take(life: Life, records: Iterable[ConsumerRecord], transactional_id: str) -> None:
    from oncelog.coordinator import CoordinatorRecord
    from oncelog.transaction import records as log_records

    for record in records:
        id_, metadata = log_records.decode(CoordinatorRecord(record.key or b"", record.value))
        if id_ == transactional_id:
            if metadata is None:
                life.clear()  # It expired, and was created again.
            else:
                life.append(metadata)


def _told(step: Step) -> TransactionStep:
    from oncelog.client import TransactionStep

    return TransactionStep(
        step.at_ms,
        step.kind.value,
        step.producer_id,
        step.producer_epoch,
        step.partitions,
        None,
        step.cause,
    )
