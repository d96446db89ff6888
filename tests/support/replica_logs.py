"""Reads the records of a partition from the files of each replica, by kafka-python's reader.

It knows nothing of our own code: files in the order of their names, batches in the order in which
they lie there. The brokers must not run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kafka.record import MemoryRecords

from tests.support.checker import Seen, Value


def read_partition(folder: Path, partition: int) -> Iterator[Seen]:
    """The records of one replica. Raises `ValueError` for a batch whose checksum is wrong."""
    for file in sorted(folder.glob("*.log")):
        batches = MemoryRecords(file.read_bytes())
        while (batch := batches.next_batch()) is not None:
            if not batch.validate_crc():
                raise ValueError(f"{file}: the batch at offset {batch.base_offset} is damaged")
            for record in batch:
                yield Seen(partition, record.offset, Value.decode(record.value))


def read_replica(data: Path, topic: str, partition_count: int) -> list[Seen]:
    """The records that one broker holds of a topic, partition by partition."""
    return [
        record
        for partition in range(partition_count)
        for record in read_partition(data / f"{topic}-{partition}", partition)
    ]
