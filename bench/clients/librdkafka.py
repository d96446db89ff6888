"""confluent-kafka; its calls block, and the process has nothing else to do."""

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.clients.jobs import (
    BATCH_BYTES,
    HEARTBEAT_MS,
    PARTITIONS,
    POLL_MS,
    TIMEOUT_S,
    Job,
)

RECORDS_MAX = 10_000
POLL_EVERY = 4096
QUEUE: dict[str, object] = {
    # With its default it pauses for a second when the broker is faster.
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 1_000_000,
}


class Confluent:
    """See `Driver`."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._common: dict[str, object] = {
            "bootstrap.servers": bootstrap_servers,
            "log_level": 0,
        }
        self._topic = topic
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None

    async def start(self, job: Job) -> None:
        if job is Job.CONSUME:
            self._consumer = Consumer(
                {
                    **self._common,
                    **QUEUE,
                    "group.id": self._topic,
                    "enable.auto.commit": False,
                }
            )
            self._consumer.assign([TopicPartition(self._topic, n, 0) for n in range(PARTITIONS)])
            return
        settings = {
            **self._common,
            "enable.idempotence": True,
            "linger.ms": job.linger_ms,
            "batch.size": BATCH_BYTES,
        }
        if job is Job.TRANSACTIONS:
            settings["transactional.id"] = self._topic
        self._producer = Producer(settings)
        if job is Job.TRANSACTIONS:
            self._producer.init_transactions(TIMEOUT_S)

    async def produce(self, value: bytes, count: int) -> None:
        assert self._producer is not None
        producer, topic = self._producer, self._topic
        for number in range(count):
            while True:
                try:
                    producer.produce(topic, value, partition=number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.05)
            if number % POLL_EVERY == 0:
                producer.poll(0)
        producer.flush(TIMEOUT_S)

    async def consume(self, count: int) -> None:
        assert self._consumer is not None
        seen = 0
        while seen < count:
            seen += len(self._consumer.consume(RECORDS_MAX, 1.0))

    async def join(self, group: str) -> None:
        self._consumer = Consumer(
            {
                **self._common,
                **QUEUE,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": "range",
                "heartbeat.interval.ms": HEARTBEAT_MS,
            }
        )
        # Connects first, as `start` of the other clients does.
        self._consumer.list_topics(self._topic, timeout=TIMEOUT_S)
        self._consumer.subscribe([self._topic])

    async def held_count(self) -> int:
        assert self._consumer is not None
        self._consumer.poll(POLL_MS / 1000)
        return len(self._consumer.assignment())

    async def send_one(self, value: bytes) -> None:
        assert self._producer is not None
        self._producer.produce(self._topic, value, partition=0)
        self._producer.flush(TIMEOUT_S)

    async def transaction(self, value: bytes) -> None:
        assert self._producer is not None
        self._producer.begin_transaction()
        self._producer.produce(self._topic, value, partition=0)
        self._producer.commit_transaction(TIMEOUT_S)

    async def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
