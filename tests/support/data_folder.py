"""A small log directory that has everything: tools, the corruption matrix and mutations use it.

Several small segments per partition, transactions that committed and aborted, an open one, offsets
of a group, deleted records, and topics without transactions. It is made by a real broker once and
copied for every use.
"""

import asyncio
import random
import shutil
from pathlib import Path

from oncelog import Admin, Consumer, OffsetAndMetadata, Producer, TopicPartition
from oncelog.broker.broker import Broker
from oncelog.client import NewTopic
from oncelog.protocol.record import Record, build_batch
from oncelog.storage.checkpoints import format_offsets
from oncelog.storage.files import CLEAN_OFFSETS_NAME
from tests.support.peer.in_loop import broker_in_loop

__all__ = ["MIXED", "OPEN_PRODUCER_ID", "PLAIN", "SETTINGS", "TRANSACTIONAL_ID", "TRIMMED", "make"]

SETTINGS = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "log.index.interval.bytes": 60,
    "auto.create.topics.enable": False,
    "group.initial.rebalance.delay.ms": 0,
    # Files are compared: a compaction of the internal topics would take some, and rightly.
    "log.cleaner.min.compaction.lag.ms": 10**12,
}
OPEN_PRODUCER_ID = 99
TRANSACTIONAL_ID = "ends"
AGE_MS = 60_000
SEED = 3
"""With most others a flipped bit of `partition.metadata` leaves no id: one case less to look at."""
MIXED = TopicPartition("mixed", 0)
PLAIN = TopicPartition("plain", 0)
TRIMMED = TopicPartition("trimmed", 0)
"""Of its 40 records the first 25 were deleted by an admin."""


async def _plain(servers: str, numbers: range, time_ms: int) -> None:
    async with Producer(servers) as producer:
        for number in numbers:
            for topic in (PLAIN.topic, TRIMMED.topic):
                key, value = b"key %d" % (number % 7), b"value %d" % number
                await producer.send(topic, value, key=key, timestamp_ms=time_ms)


async def _transactions(servers: str, numbers: range, time_ms: int) -> None:
    async with (
        Consumer(servers, group_id="readers") as consumer,
        Producer(servers, transactional_id=TRANSACTIONAL_ID) as producer,
    ):
        await producer.init_transactions()
        for number in numbers:
            await producer.begin_transaction()
            for part in range(2):
                key, value = b"key %d" % number, b"%d.%d" % (number, part)
                await producer.send(MIXED.topic, value, key=key, timestamp_ms=time_ms)
            if number % 3 == 1:
                await producer.abort_transaction()
                continue
            at = {PLAIN: OffsetAndMetadata(number)}
            await producer.send_offsets_to_transaction(at, "readers")
            await producer.commit_transaction()
        await consumer.commit({TRIMMED: OffsetAndMetadata(30)})


def _leave_open(broker: Broker, time_ms: int) -> None:
    """Begin a transaction that nobody ends."""
    mixed = broker.partitions.get(*MIXED)
    assert mixed is not None
    undecided = build_batch(
        [Record(0, time_ms, b"key", b"undecided")],
        producer_id=OPEN_PRODUCER_ID,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    mixed.log.append(undecided, leader_epoch=0, now_ms=broker.clock.now_ms())


async def _make(clean: Path, killed: Path) -> None:
    # Topic ids stand in files: damaged at one place, one may still read as an id and another not.
    async with broker_in_loop(str(clean), SETTINGS, rng=random.Random(SEED)) as broker:
        servers = broker.bootstrap_servers
        # One time for all records: otherwise time indexes would fill, and segments end, by chance.
        time_ms = broker.clock.now_ms() - AGE_MS
        async with Admin(servers) as admin:
            # 24 entries in an offset index, then a new segment.
            small = {"segment.index.bytes": "192"}
            topics = [NewTopic(t.topic, 1, 1, small) for t in (MIXED, PLAIN, TRIMMED)]
            await admin.create_topics(topics)
        await _plain(servers, range(35), time_ms)
        await _transactions(servers, range(14), time_ms)
        for partition in broker.partitions:
            if partition.topic_partition.topic.startswith("__"):
                # Topics of users roll by the size of their indexes.
                partition.log.roll(partition.log.log_end_offset)
            partition.log.flush()
        trimmed = broker.partitions.get(*TRIMMED)
        assert trimmed is not None
        trimmed.delete_records(25)
        broker.logs.checkpoint()
        internal = [at for p in broker.partitions if (at := p.topic_partition).topic[0] == "_"]
        (clean / CLEAN_OFFSETS_NAME).write_bytes(format_offsets(dict.fromkeys(internal, 0)))
        # The recovery points now lie within the active segments; the rest is above them.
        await _plain(servers, range(35, 40), time_ms)
        await _transactions(servers, range(14, 16), time_ms)
        _leave_open(broker, time_ms)
        shutil.copytree(clean, killed)


def make(clean: Path, killed: Path) -> None:
    """Fill the folder `clean` and stop its broker in order; `killed` is it before the stop."""
    asyncio.run(_make(clean, killed))
