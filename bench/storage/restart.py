"""How long a broker takes to come back after a kill, by what stands in its logs.

The folder is filled, the broker started on it, stopped, started, used once, killed, and started
again: that start is the row. The first start on transactions reads everything, as nothing says what
is sound; segments are finished files, with indexes and a recovery point, to both brokers.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaException, Producer

from bench.stats import Figures
from bench.storage.fill import (
    data_folder,
    finish_partition,
    forget_checkpoints,
    ids_apart,
    plain_block,
    write_partition,
    write_transactions,
)
from bench.systems import System
from bench.work import TIMEOUT_S, flush, fresh_topic, producer
from oncelog.core.ids import TopicPartition

TRANSACTION_PARTITIONS = 50
"""Both systems' default of `transaction.state.log.num.partitions`."""
SETTLE_S = 2.0
SETTINGS = {"log.flush.offset.checkpoint.interval.ms": "1000"}
"""So that a kill finds the checkpoint that a longer life would have written."""
NEVER_COMPACTED = {"log.cleaner.min.cleanable.ratio": "1"}
"""No log is dirtier than wholly: the transactions are still all there when the broker is killed."""


@dataclass(frozen=True, slots=True)
class RestartWithSegments:
    """One partition of so many segments, each with `batch_count` records of 1000 B."""

    segment_count: int = 10_000
    batch_count: int = 10

    def __call__(self, system: System) -> Figures:
        system.start()
        topic = fresh_topic(system, 1)
        system.stop()
        block = plain_block(self.batch_count, 1000)
        partition = TopicPartition(topic, 0)
        folder = data_folder(system) / str(partition)
        write_partition(folder, block, self.segment_count, segment_bytes=1)
        finish_partition(folder, partition)
        return restarted(system, lambda: produce_one(system, topic))


@dataclass(frozen=True, slots=True)
class RestartWithTransactions:
    """So many finished transactions of `id_count` transactional ids."""

    transaction_count: int = 1_000_000
    id_count: int = 10
    partition_count: int = TRANSACTION_PARTITIONS
    segment_bytes: int = 100 * 2**20

    def __call__(self, system: System) -> Figures:
        ids = ids_apart(self.id_count, self.partition_count)
        system.start()
        take_over(system, ids[:1])
        system.stop()
        write_transactions(
            system, ids, self.transaction_count, self.partition_count, self.segment_bytes
        )
        forget_checkpoints(system)
        return restarted(system, lambda: take_over(system, ids))


def restarted(system: System, use: Callable[[], None]) -> Figures:
    """Seconds of the first start on a filled folder, and of the start after a kill."""
    first_s, _ = started(system, use)
    system.stop()
    started(system, use)
    time.sleep(SETTLE_S)
    system.kill()
    again_s, served_s = started(system, use)
    return {"first start s": first_s, "start s": again_s, "until served s": served_s}


def started(system: System, use: Callable[[], None]) -> tuple[float, float]:
    """Seconds until Metadata is answered, and until `use` has succeeded."""
    begun = time.perf_counter()
    start_s = system.start()
    use()
    return start_s, time.perf_counter() - begun


def produce_one(system: System, topic: str) -> None:
    """Write a record and wait for its acknowledgement."""
    client = producer(system, **{"linger.ms": 0})
    client.produce(topic, bytes(100), partition=0)
    flush(client)


def take_over(system: System, ids: Sequence[str]) -> None:
    """Have each transactional id answer: its coordinator has loaded."""
    for id_ in ids:
        client = Producer(
            {
                "bootstrap.servers": system.bootstrap_servers,
                "transactional.id": id_,
                "retry.backoff.ms": 10,
                "retry.backoff.max.ms": 50,
                "log_level": 0,
            }
        )
        try:
            client.init_transactions(TIMEOUT_S)
        except KafkaException as failure:
            raise RuntimeError(f"{id_} is not answered: {failure}") from failure
