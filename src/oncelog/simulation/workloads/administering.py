"""An administrator that creates, deletes, extends, describes and configures topics.

It has its own topics, named after itself, and writes a few records into them, so that deletion,
retention and new partitions affect data. Other clients may use them too.

Parameters: `owned`, how many topics; `grown`, names of other topics that get partitions;
`partitions_max`; `think_s`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from oncelog.client import Admin, ClientError, IllegalStateError, NewTopic, Producer, TopicPartition
from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import TopicChanged, TopicChanging
from oncelog.simulation.workloads.idempotent import new_producer, start
from oncelog.simulation.workloads.journal import Journal, supervise
from oncelog.simulation.workloads.outbox import Outbox

__all__ = ["owned_topics", "run"]

CONFIGS: Final = (
    ("retention.ms", ("1000", "5000", "604800000")),
    ("retention.bytes", ("2000", "20000", "-1")),
    ("segment.bytes", ("1048576", "1073741824")),
    ("segment.ms", ("1000", "5000")),
    ("message.timestamp.type", ("CreateTime", "LogAppendTime")),
    ("compression.type", ("producer", "zstd", "uncompressed")),
)


def owned_topics(name: str, count: int) -> list[str]:
    """Return the topics of the administrator `name`."""
    return [f"{name}-{index}" for index in range(count)]


async def run(context: ClientContext) -> None:
    """Run until it is time to settle."""
    await supervise(context, _work)


async def _work(journal: Journal) -> None:
    administrator = _Administrator(journal)
    while not journal.stopping:
        await administrator.turn()
        await journal.think()
    await administrator.settle()


class _Administrator:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._topics = owned_topics(journal.who, int(journal.number("owned", 2)))
        grown = journal.context.parameters.get("grown", ())
        self._grown = [str(name) for name in grown] if isinstance(grown, list | tuple) else []
        self._partitions_max = int(journal.number("partitions_max", 5))
        self._outbox = Outbox(journal)
        self._producer: Producer | None = None
        self._admin = Admin(
            journal.bootstrap,
            timeout_ms=journal.rng.choice((10_000, 20_000)),
            **journal.options(),
        )
        journal.opened(self._admin)
        self._actions: list[tuple[Callable[[str], Awaitable[None]], int]] = [
            (self._create, 4),
            (self._delete, 2),
            (self._grow, 2),
            (self._write, 6),
            (self._describe, 2),
            (self._look, 2),
            (self._configure, 3),
        ]

    async def turn(self) -> None:
        """Do one operation on one topic."""
        actions, weights = zip(*self._actions, strict=True)
        action = self._journal.rng.choices(actions, weights)[0]
        self._journal.begin(action.__name__.strip("_"))
        try:
            await action(self._journal.rng.choice(self._topics))
        except IllegalStateError:
            raise
        except ClientError:
            # Refused, or the outcome is unknown; the next turn reads the current state.
            return

    async def settle(self) -> None:
        """Wait for the unacknowledged records."""
        if self._producer is not None:
            self._journal.begin("flush")
            try:
                await self._producer.flush()
            except IllegalStateError:
                raise
            except ClientError:
                return

    async def _create(self, topic: str) -> None:
        count = self._journal.rng.randint(1, 3)
        self._journal.record(TopicChanging, topic, "create")
        await self._admin.create_topics([NewTopic(topic, count)])
        self._journal.record(TopicChanged, topic, "create", count)

    async def _delete(self, topic: str) -> None:
        self._journal.record(TopicChanging, topic, "delete")
        await self._admin.delete_topics([topic])
        self._journal.record(TopicChanged, topic, "delete")

    async def _grow(self, topic: str) -> None:
        topic = self._journal.rng.choice([topic, *self._grown])
        count = len((await self._admin.describe_topic(topic)).partitions) + 1
        if count <= self._partitions_max:
            self._journal.record(TopicChanging, topic, "partitions")
            await self._admin.create_partitions({topic: count})
            self._journal.record(TopicChanged, topic, "partitions", count)

    async def _write(self, topic: str) -> None:
        """Send a few records, and wait for them in half of the cases."""
        count = len((await self._admin.describe_topic(topic)).partitions)
        if self._producer is None:
            made = new_producer(self._journal)
            if not await start(self._journal, made):
                return
            self._producer = made
        rng = self._journal.rng
        for _ in range(rng.randint(1, 8)):
            where = TopicPartition(topic, rng.randrange(count))
            try:
                self._outbox.send(self._producer, where, padding=rng.choice((0, 500)))
            except ClientError:
                producer, self._producer = self._producer, None
                await self._journal.close(producer)
                raise
        if self._journal.chance(0.5):
            self._journal.begin("flush")
            await self._producer.flush()

    async def _describe(self, topic: str) -> None:
        await self._admin.describe_cluster()
        await self._admin.list_topics()
        await self._admin.describe_topic(topic)

    async def _look(self, topic: str) -> None:
        described = await self._admin.describe_topic(topic)
        partitions = [TopicPartition(topic, p.index) for p in described.partitions]
        await self._admin.list_offsets(dict.fromkeys(partitions, "earliest"))
        await self._admin.list_offsets(dict.fromkeys(partitions, "latest"), "read_committed")
        await self._admin.list_offsets(
            dict.fromkeys(partitions, self._journal.context.clock.now_ms() - 1_000)
        )

    async def _configure(self, topic: str) -> None:
        key, values = self._journal.rng.choice(CONFIGS)
        if self._journal.chance(0.3):
            await self._admin.incremental_alter_configs(topic, {}, [key])
        else:
            await self._admin.incremental_alter_configs(
                topic, {key: self._journal.rng.choice(values)}
            )
        await self._admin.describe_configs([topic])
