"""Fills partitions of a stopped broker with batches, as files, the same for both systems.

A block of batches is encoded once and written again and again: base offsets stand outside of a
batch's checksum, so only they are patched. Indexes, snapshots and checkpoints are left to the
broker: to it this is a folder after a crash.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from struct import Struct

from bench.systems import System
from oncelog.core.ids import TRANSACTION_STATE_TOPIC, ProducerEpoch, ProducerId, TopicPartition
from oncelog.protocol.batch import iter_headers
from oncelog.protocol.hashing import coordinator_partition
from oncelog.protocol.record import Record, build_batch
from oncelog.runtime import SystemDisk
from oncelog.storage import LogConfig, PartitionLog
from oncelog.storage.checkpoints import format_offsets
from oncelog.transaction import records
from oncelog.transaction.states import TransactionMetadata, TransactionState

BASE_OFFSET = Struct(">q")
WRITE_BYTES = 2**20
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
CHECKPOINTS = (
    ".kafka_cleanshutdown",
    RECOVERY_POINTS,
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
IDENTITY = "partition.metadata"


def data_folder(system: System) -> Path:
    """Where the partitions of a system under measurement are."""
    return system.folder / "data"


def forget_checkpoints(system: System) -> None:
    """Make the next start look at the logs themselves."""
    for name in CHECKPOINTS:
        (data_folder(system) / name).unlink(missing_ok=True)


def write_partition(folder: Path, block: bytes, times: int, segment_bytes: int) -> int:
    """Replace what a partition holds by a block of batches, written `times` times.

    Returns the bytes. A segment holds whole blocks, at least one.
    """
    for old in folder.iterdir():
        if old.name != IDENTITY:
            old.unlink()
    headers = list(iter_headers(block))
    count = sum(header.next_offset - header.base_offset for _, header in headers)
    per_segment = max(1, segment_bytes // len(block))
    buffer = bytearray(block)
    for first in range(0, times, per_segment):
        with (folder / f"{first * count:020}.log").open("wb", WRITE_BYTES) as file:
            for number in range(first, min(first + per_segment, times)):
                offset = number * count
                for position, header in headers:
                    BASE_OFFSET.pack_into(buffer, position, offset)
                    offset += header.next_offset - header.base_offset
                file.write(buffer)
    return times * len(block)


def finish_partition(folder: Path, topic_partition: TopicPartition) -> None:
    """Give a filled partition what a broker that wrote it would have left.

    Indexes, the producers' snapshot, and a recovery point at its end: Apache Kafka does not come
    back within minutes when it has to make 10,000 indexes.
    """
    now_ms = int(time.time() * 1000)
    log = PartitionLog.open(SystemDisk(), str(folder), topic_partition, LogConfig(), now_ms)
    log.close()
    points = {topic_partition: log.log_end_offset}
    (folder.parent / RECOVERY_POINTS).write_bytes(format_offsets(points))


def plain_block(batch_count: int, value_bytes: int, records_per_batch: int = 1) -> bytes:
    """Batches of records without keys."""
    now_ms = int(time.time() * 1000)
    values = [Record(0, now_ms, None, bytes(value_bytes))] * records_per_batch
    return joined([values] * batch_count)


def keyed_block(key_count: int, value_bytes: int, records_per_batch: int) -> bytes:
    """Batches of records with so many keys, each once."""
    now_ms = int(time.time() * 1000)
    keyed = [Record(0, now_ms, b"key-%08d" % n, bytes(value_bytes)) for n in range(key_count)]
    return joined(
        [
            keyed[first : first + records_per_batch]
            for first in range(0, key_count, records_per_batch)
        ]
    )


def joined(batches: Sequence[Sequence[Record]]) -> bytes:
    """The batches one after the other, their offsets without gaps."""
    out, offset = bytearray(), 0
    for batch in batches:
        out += build_batch(batch, base_offset=offset, leader_epoch=0)
        offset += len(batch)
    return bytes(out)


def transactions_block(transactional_id: str, producer_id: int) -> bytes:
    """A committed transaction as its coordinator writes it: a record each for its three states."""
    now_ms = int(time.time() * 1000)
    partitions = frozenset({TopicPartition("topic", 0)})
    states = (
        (TransactionState.ONGOING, partitions),
        (TransactionState.PREPARE_COMMIT, partitions),
        (TransactionState.COMPLETE_COMMIT, frozenset[TopicPartition]()),
    )
    written = []
    for state, of_state in states:
        metadata = TransactionMetadata(
            transactional_id,
            ProducerId(producer_id),
            ProducerEpoch(0),
            60_000,
            state,
            of_state,
            start_timestamp_ms=now_ms,
            last_update_timestamp_ms=now_ms,
        )
        entry = records.encode(metadata)
        written.append([Record(0, now_ms, entry.key, entry.value)])
    return joined(written)


def write_transactions(
    system: System, ids: Sequence[str], count: int, partition_count: int, segment_bytes: int
) -> int:
    """Fill `__transaction_state` with `count` finished transactions of `ids`; returns the bytes.

    No two ids may live in one partition.
    """
    total = 0
    for number, id_ in enumerate(ids):
        index = coordinator_partition(id_, partition_count)
        folder = data_folder(system) / f"{TRANSACTION_STATE_TOPIC}-{index}"
        block = transactions_block(id_, 1_000 + number)
        total += write_partition(folder, block, count // len(ids), segment_bytes)
    return total


def ids_apart(count: int, partition_count: int) -> list[str]:
    """Transactional ids that live in partitions of their own."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < count:
        id_ = f"bench-{number}"
        found.setdefault(coordinator_partition(id_, partition_count), id_)
        number += 1
    return list(found.values())
