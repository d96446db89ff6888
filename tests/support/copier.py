"""Consume, transform, produce: copies the idempotent topic with its offsets in transactions.

It uses aiokafka. librdkafka can hang for ever in `send_offsets_to_transaction` when a broker dies
between AddOffsetsToTxn and TxnOffsetCommit, on any broker (librdkafka issues 5456 and 5511).
"""

import asyncio
import logging
from contextlib import suppress

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from tests.support.workload import COPY_GROUP, COPY_TOPIC, IDEMPOTENT_TOPIC, Writer

CLOSE_TIMEOUT_S = 5
COPY_TIMEOUT_S = 25
"""How long one transaction may take, a restart of the broker included, before new clients."""


class Copier(Writer):
    """One member of a group; whatever goes wrong, it starts again from the committed offsets."""

    copied = 0
    restarts = 0

    def run(self) -> None:
        # It tells of every attempt to reach a broker that was just killed.
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
        asyncio.run(self.supervise())

    async def supervise(self) -> None:
        """New clients after each failure, until it is told to stop."""
        while not self.stop.is_set():
            try:
                await self.live()
            except (KafkaError, TimeoutError, OSError) as error:
                self.restarts += 1
                self.fatal_errors.append(f"{self.name}: {error!r}")
                await asyncio.sleep(0.1)

    async def live(self) -> None:
        """One pair of clients, for as long as it works."""
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap_servers,
            transactional_id=self.name,
            transaction_timeout_ms=60_000,
            retry_backoff_ms=50,
        )
        consumer = AIOKafkaConsumer(
            IDEMPOTENT_TOPIC,
            bootstrap_servers=self.bootstrap_servers,
            group_id=COPY_GROUP,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=6000,
            heartbeat_interval_ms=500,
            retry_backoff_ms=50,
        )
        try:
            await asyncio.wait_for(producer.start(), COPY_TIMEOUT_S)
            await asyncio.wait_for(consumer.start(), COPY_TIMEOUT_S)
            while not self.stop.is_set():
                batches = await consumer.getmany(timeout_ms=200, max_records=200)
                if batches:
                    await asyncio.wait_for(self.copy(producer, batches), COPY_TIMEOUT_S)
        finally:
            for client in (consumer, producer):
                with suppress(KafkaError, TimeoutError, OSError):
                    await asyncio.wait_for(client.stop(), CLOSE_TIMEOUT_S)

    async def copy(
        self,
        producer: AIOKafkaProducer,
        batches: dict[TopicPartition, list[ConsumerRecord[bytes, bytes]]],
    ) -> None:
        """One transaction: the records, then the offsets after them."""
        async with producer.transaction():
            for at, records in batches.items():
                for record in records:
                    value = f"{at.partition}:{record.offset}".encode()
                    await producer.send(COPY_TOPIC, value, partition=at.partition)
            ends = {at: records[-1].offset + 1 for at, records in batches.items()}
            await producer.send_offsets_to_transaction(ends, COPY_GROUP)
        self.copied += sum(len(records) for records in batches.values())
