"""Decides how much a consumer fetches ahead, and of which partitions first.

Pure. Fetched records count as they are held: without compression, and with what each takes beside
its bytes. librdkafka's queued.max.messages.kbytes is the model.
"""

from collections.abc import Collection, Sequence
from typing import Final

from oncelog.client.values import ConsumerRecord
from oncelog.core.ids import TopicPartition
from oncelog.protocol.batch import Buffer, iter_headers

__all__ = ["FetchRoom", "held_size"]

RECORD_OVERHEAD: Final = 272
"""Bytes that a record takes beside its key, its value and its headers, by tracemalloc."""


def held_size(batches: Buffer | None, records: Sequence[ConsumerRecord]) -> int:
    """Return the bytes in memory of records that were read from batches.

    `batches` is None where one of them is damaged.
    """
    size = RECORD_OVERHEAD * len(records)
    if batches is not None and not any(header.codec_id for _, header in iter_headers(batches)):
        return size + len(batches)
    for record in records:
        size += len(record.key or b"") + len(record.value or b"")
        for name, value in record.headers:
            size += len(name) + len(value or b"")
    return size


class FetchRoom:
    """The room for fetched records, `size_max` bytes over all connections.

    It is exceeded by at most what one fetch of one partition brings, so that a batch which is
    larger than the room is read all the same.
    """

    def __init__(self, size_max: int) -> None:
        self.size_max = size_max
        self._left = size_max
        self._growth = 1.0
        """Bytes held per byte fetched, as of the last answers."""
        self._round = 0
        self._served: dict[TopicPartition, int] = {}

    def begin(self, held: int) -> None:
        """Begin a round of fetches, while `held` bytes wait to be returned."""
        self._left = self.size_max - held
        self._round += 1

    def in_turn(self, partitions: Collection[TopicPartition]) -> Sequence[TopicPartition]:
        """The partitions, those first that were served longest ago.

        A broker fills its answer in the order of the request: others would starve.
        """
        self._served = {tp: self._served[tp] for tp in partitions if tp in self._served}
        return sorted(partitions, key=lambda tp: self._served.get(tp, 0))

    def share(self, node_count: int) -> int:
        """The bytes to ask each of `node_count` brokers for."""
        return max(1, int(self._left / self._growth) // max(1, node_count))

    @property
    def is_full(self) -> bool:
        """Whether an answer has to be dropped; it is asked for again."""
        return self._left <= 0

    def accept(self, topic_partition: TopicPartition, fetched: int, held: int) -> None:
        """Note that `fetched` bytes of an answer are held as `held` bytes."""
        self._left -= held
        self._served[topic_partition] = self._round
        if fetched:
            self._growth = max(1.0, (self._growth + held / fetched) / 2)
