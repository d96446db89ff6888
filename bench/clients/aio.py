"""aiokafka."""

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from bench.clients.jobs import BATCH_BYTES, HEARTBEAT_MS, PARTITIONS, POLL_MS, Job


class Aiokafka:
    """See `Driver`."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._servers, self._topic = bootstrap_servers, topic
        self._producer: AIOKafkaProducer | None = None
        self._consumer: AIOKafkaConsumer | None = None

    async def start(self, job: Job) -> None:
        if job is Job.CONSUME:
            self._consumer = AIOKafkaConsumer(
                bootstrap_servers=self._servers,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
            await self._consumer.start()
            self._consumer.assign([TopicPartition(self._topic, n) for n in range(PARTITIONS)])
            return
        self._producer = AIOKafkaProducer(
            bootstrap_servers=self._servers,
            enable_idempotence=True,
            linger_ms=job.linger_ms,
            max_batch_size=BATCH_BYTES,
            transactional_id=self._topic if job is Job.TRANSACTIONS else None,
        )
        await self._producer.start()

    async def produce(self, value: bytes, count: int) -> None:
        assert self._producer is not None
        producer, topic = self._producer, self._topic
        for number in range(count):
            await producer.send(topic, value, partition=number % PARTITIONS)
        await producer.flush()

    async def consume(self, count: int) -> None:
        assert self._consumer is not None
        seen = 0
        while seen < count:
            found = await self._consumer.getmany(timeout_ms=1000)
            seen += sum(map(len, found.values()))

    async def join(self, group: str) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self._servers,
            group_id=group,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            partition_assignment_strategy=[RangePartitionAssignor],
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        await self._consumer.start()
        self._consumer.subscribe([self._topic])

    async def held_count(self) -> int:
        assert self._consumer is not None
        await self._consumer.getmany(timeout_ms=POLL_MS, max_records=1)
        return len(self._consumer.assignment())

    async def send_one(self, value: bytes) -> None:
        assert self._producer is not None
        await self._producer.send_and_wait(self._topic, value, partition=0)

    async def transaction(self, value: bytes) -> None:
        assert self._producer is not None
        await self._producer.begin_transaction()
        await self._producer.send(self._topic, value, partition=0)
        await self._producer.commit_transaction()

    async def close(self) -> None:
        for client in (self._producer, self._consumer):
            if client is not None:
                await client.stop()
