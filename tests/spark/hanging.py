"""What an administrator does about a transaction that Apache Kafka left without its markers.

A broker of Kafka 4.3 that is killed while it ends a transaction, and started again, may take
partitions that have no leader yet for deleted ones: `KRaftMetadataCache.getPartitionLeaderEndpoint`
returns nothing for them, and `TransactionMarkerChannelManager` leaves out their markers and
completes the transaction. Then no partition of it ever ends: a query that waits for the offsets of
its group fails (docs/spark.md, "A transaction that hangs").
"""

import asyncio
import json
import subprocess
from collections.abc import Iterable
from typing import Any

from oncelog.client.admin import Admin
from oncelog.client.consumer import Consumer
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TopicPartition
from oncelog.protocol.batch import iter_headers
from oncelog.spark.sink_options import MARKER_TOPIC
from tests.support.broker import OURS

COMMAND_TIMEOUT_S = 60

Found = dict[str, Any]
"""A hanging transaction in one partition, as `oncelog transactions find-hanging` tells it."""


def end_hanging(bootstrap_servers: str, topics: Iterable[str]) -> list[str]:
    """End a transaction that hangs in all partitions where it does, as it ended in the others.

    It is committed if a partition without it shows its records (of these topics, of the markers or
    of the groups' offsets), and otherwise aborted: an abort would tear what is committed in part.
    Returns the partitions and what was done; nothing if nothing hangs.
    """
    now = ("--max-transaction-timeout", "0")
    lines = _transactions(bootstrap_servers, "find-hanging", "--json", *now).splitlines()
    hanging: list[Found] = [json.loads(line) for line in lines]
    if not hanging:
        return []
    producers = {(one["producer_id"], one["producer_epoch"]) for one in hanging}
    assert len(producers) == 1, f"not one transaction: {hanging}"
    searched = (CONSUMER_OFFSETS_TOPIC, MARKER_TOPIC, *topics)
    is_committed = asyncio.run(_is_committed_in_part(bootstrap_servers, searched, hanging))
    if is_committed:
        asyncio.run(_commit(bootstrap_servers, hanging))
    else:
        for one in hanging:
            place = ("--topic", one["topic"], "--partition", str(one["partition"]))
            start = ("--start-offset", str(one["start_offset"]))
            _transactions(bootstrap_servers, "abort", *place, *start)
    end = "committed" if is_committed else "aborted"
    return [f"{one['topic']}-{one['partition']} {end}" for one in hanging]


async def _is_committed_in_part(
    bootstrap_servers: str, topics: Iterable[str], hanging: list[Found]
) -> bool:
    places = {TopicPartition(one["topic"], one["partition"]) for one in hanging}
    producer = (hanging[0]["producer_id"], hanging[0]["producer_epoch"])
    consumer = Consumer(bootstrap_servers, isolation_level="read_committed")
    async with Admin(bootstrap_servers) as admin, consumer:
        known = await admin.list_topics()
        for topic in topics:
            for partition in known[topic].partitions if topic in known else ():
                place = TopicPartition(topic, partition.index)
                if place not in places and await _shows(consumer, place, producer):
                    return True
    return False


async def _shows(consumer: Consumer, place: TopicPartition, producer: tuple[int, int]) -> bool:
    """Whether committed batches of this producer stand in a partition that starts at offset 0."""
    offset = 0
    while True:
        fetched = await consumer.fetch_batches(place, offset, max_wait_ms=0)
        for _, header in iter_headers(fetched.batches):
            if header.is_transactional and producer == (header.producer_id, header.producer_epoch):
                return True
        if fetched.next_offset <= offset:
            return False
        offset = fetched.next_offset


async def _commit(bootstrap_servers: str, hanging: list[Found]) -> None:
    async with Admin(bootstrap_servers) as admin:
        for one in hanging:
            numbers = (one["producer_id"], one["producer_epoch"], one["coordinator_epoch"])
            place = TopicPartition(one["topic"], one["partition"])
            await admin.end_transaction(place, *numbers, commit=True)


def _transactions(bootstrap_servers: str, *words: str) -> str:
    done = subprocess.run(
        [*OURS, "transactions", *words, "--bootstrap-server", bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
