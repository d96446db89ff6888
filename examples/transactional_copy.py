"""Copy a topic to another exactly once: records and the position travel in one transaction.

    python examples/transactional_copy.py localhost:9092 from-topic to-topic

Kill it at any moment and start it again: it goes on after the last committed record.
"""

import asyncio
import sys

from oncelog import Admin, Consumer, Producer, TopicPartition
from oncelog.client import AbortableError


async def copy(servers: str, source: str, target: str) -> None:
    name = f"copy-{source}-{target}"
    async with Admin(servers) as admin:
        count = len((await admin.describe_topic(source)).partitions)
    async with (
        Consumer(servers, group_id=name) as consumer,
        Producer(servers, transactional_id=name) as producer,
    ):
        # Fencing comes first: what another instance left open ends here, so positions are final.
        await producer.init_transactions()
        consumer.assign(TopicPartition(source, index) for index in range(count))
        while True:
            records = await consumer.poll(timeout_ms=1000)
            if not records:
                continue
            # Not the last record's offset + 1: the marker of a transaction may stand there.
            ends = await consumer.positions()
            starts = {TopicPartition(*r[:2]): r.offset for r in reversed(records)}
            await producer.begin_transaction()
            try:
                for r in records:
                    producer.send(target, r.value, key=r.key, headers=r.headers)
                await producer.send_offsets_to_transaction(ends, name)
                await producer.commit_transaction()
            except AbortableError:
                await producer.abort_transaction()
                for partition, offset in starts.items():
                    consumer.seek(partition, offset)


if __name__ == "__main__":
    asyncio.run(copy(*sys.argv[1:4]))
