"""`oncelog.Producer` and `oncelog.Consumer`."""

from bench.clients.jobs import BATCH_BYTES, HEARTBEAT_MS, PARTITIONS, POLL_MS, Job
from oncelog import Consumer, Producer, TopicPartition

RECORDS_MAX = 10_000


class Ours:
    """See `Driver`."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._servers, self._topic = bootstrap_servers, topic
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None

    async def start(self, job: Job) -> None:
        if job is Job.CONSUME:
            self._consumer = Consumer(self._servers)
            await self._consumer.start()
            self._consumer.assign([TopicPartition(self._topic, n) for n in range(PARTITIONS)])
            return
        self._producer = Producer(
            self._servers,
            linger_ms=job.linger_ms,
            batch_size=BATCH_BYTES,
            transactional_id=self._topic if job is Job.TRANSACTIONS else None,
        )
        await self._producer.start()
        if job is Job.TRANSACTIONS:
            await self._producer.init_transactions()

    async def produce(self, value: bytes, count: int) -> None:
        assert self._producer is not None
        producer, topic = self._producer, self._topic
        for number in range(count):
            await producer.wait_for_memory()
            producer.send(topic, value, partition=number % PARTITIONS)
        await producer.flush()

    async def consume(self, count: int) -> None:
        assert self._consumer is not None
        seen = 0
        while seen < count:
            seen += len(await self._consumer.poll(max_records=RECORDS_MAX))

    async def join(self, group: str) -> None:
        self._consumer = Consumer(
            self._servers,
            group_id=group,
            auto_offset_reset="earliest",
            partition_assignment_strategy=["range"],
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        await self._consumer.start()
        self._consumer.subscribe([self._topic])

    async def held_count(self) -> int:
        assert self._consumer is not None
        await self._consumer.poll(POLL_MS, max_records=1)
        return len(self._consumer.assignment())

    async def send_one(self, value: bytes) -> None:
        assert self._producer is not None
        await self._producer.send(self._topic, value, partition=0)

    async def transaction(self, value: bytes) -> None:
        assert self._producer is not None
        await self._producer.begin_transaction()
        self._producer.send(self._topic, value, partition=0)
        await self._producer.commit_transaction()

    async def close(self) -> None:
        for client in (self._producer, self._consumer):
            if client is not None:
                await client.close()
