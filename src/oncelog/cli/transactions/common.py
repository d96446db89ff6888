"""Common parts of the commands about transactions: their client and their texts."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.cli import connecting
from oncelog.cli.records import EPOCH
from oncelog.cli.tool import Failure, require_topic

if TYPE_CHECKING:
    from oncelog.client import Admin, ProducerState, TransactionDescription
    from oncelog.core.ids import TopicPartition

__all__ = [
    "OpenTransaction",
    "administrator",
    "duration_text",
    "find_open",
    "moment_text",
    "now_ms",
    "owners_of",
    "partitions_to_search",
]

_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def administrator(servers: str) -> Admin:
    """The client of these commands."""
    return connecting.administrator(servers, "transactions")


def now_ms() -> int:
    """Wall-clock milliseconds, as the brokers' times are."""
    return int(time.time() * 1000)


def duration_text(duration_ms: int) -> str:
    """A duration for a person, in its largest unit: 740 ms, 12.5 s, 3.2 h."""
    for unit_ms, name in _UNITS:
        if abs(duration_ms) >= unit_ms:
            return f"{duration_ms / unit_ms:.1f} {name}"
    return f"{duration_ms} ms"


def moment_text(at_ms: int) -> str:
    """A time for a person: 2026-11-22 14:03:07.123, local time."""
    moment = (EPOCH + timedelta(milliseconds=at_ms)).astimezone()
    return moment.replace(tzinfo=None).isoformat(" ", "milliseconds")


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition, and the producer that has it open there."""

    topic_partition: TopicPartition
    producer: ProducerState
    start_offset: int


async def partitions_to_search(
    admin: Admin, topics: Iterable[str], partition: int | None = None, broker_id: int | None = None
) -> list[TopicPartition]:
    """Every partition with a leader of these topics (none given: of all, internal ones too).

    `broker_id` keeps those with a replica there. Raises `Failure` for a topic or a partition that
    does not exist.
    """
    from oncelog.core.ids import TopicPartition

    named = [await require_topic(admin, name) for name in topics]
    found = [
        TopicPartition(topic.name, one.index)
        for topic in named or (await admin.list_topics()).values()
        for one in topic.partitions
        if one.leader >= 0
        and (partition is None or one.index == partition)
        and (broker_id is None or broker_id in one.replicas)
    ]
    if partition is not None and not found:
        raise Failure(f"{named[0].name} has no partition {partition} with a leader")
    return sorted(found)


async def find_open(admin: Admin, partitions: Sequence[TopicPartition]) -> list[OpenTransaction]:
    """Every transaction that is open in these partitions; in each, the oldest first."""
    found = [
        OpenTransaction(topic_partition, producer, producer.transaction_start_offset)
        for topic_partition, producers in (await admin.describe_producers(partitions)).items()
        for producer in producers
        if producer.transaction_start_offset is not None
    ]
    return sorted(found, key=lambda one: (one.topic_partition, one.start_offset))


async def owners_of(
    admin: Admin, transactions: Iterable[OpenTransaction]
) -> dict[int, TransactionDescription]:
    """By producer id: what its coordinator says. A producer id that none knows is left out.

    Raises `FatalError` (coordinator_not_available) while a coordinator that may know one of them is
    not available.
    """
    from oncelog.client import FatalError
    from oncelog.core.errors import ErrorCode

    producer_ids = {one.producer.producer_id for one in transactions}
    if not producer_ids:
        return {}
    owners: dict[int, TransactionDescription] = {}
    for listed in await admin.list_transactions(producer_ids=sorted(producer_ids)):
        try:
            owners[listed.producer_id] = await admin.describe_transaction(listed.transactional_id)
        except FatalError as error:
            if error.code is not ErrorCode.transactional_id_not_found:
                raise
    if owners.keys() != producer_ids:
        await _require_every_coordinator(admin)
    return owners


async def _require_every_coordinator(admin: Admin) -> None:
    """Raise `FatalError` if a partition of theirs has no leader: no broker lists its ids."""
    from oncelog.client import FatalError
    from oncelog.core.errors import ErrorCode
    from oncelog.core.ids import TRANSACTION_STATE_TOPIC

    try:
        topic = await admin.describe_topic(TRANSACTION_STATE_TOPIC)
    except FatalError as error:
        if error.code is not ErrorCode.unknown_topic_or_partition:
            raise
        return
    away = [str(one.index) for one in topic.partitions if one.leader < 0]
    if away:
        named = ", ".join(f"{TRANSACTION_STATE_TOPIC}-{index}" for index in away)
        text = f"{named} without a leader: whether a coordinator has this transaction is unknown"
        raise FatalError(ErrorCode.coordinator_not_available, text)
