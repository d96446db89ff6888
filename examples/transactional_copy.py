"""Copy a topic to another exactly once: records and positions travel in one transaction.

    python examples/transactional_copy.py localhost:9092 from-topic to-topic [instance]

Kill it at any moment and start it again: it goes on after the last committed record. Start it more
than once, each time with another instance name, and the copies share the partitions.
"""

import asyncio
import sys

from oncelog import Consumer, Producer
from oncelog.client import AbortableError


async def copy(servers: str, source: str, target: str, instance: str = "1") -> None:
    group, name = f"copy-{source}-{target}", f"copy-{source}-{target}-{instance}"
    async with (
        Producer(servers, transactional_id=name) as producer,
        # A static member (KIP-345): started again, it has its partitions back at once.
        Consumer(
            servers, group_id=group, group_instance_id=name, enable_auto_commit=False
        ) as consumer,
    ):
        # Fencing comes first: what another process left open ends here, so positions are final.
        await producer.init_transactions()
        consumer.subscribe([source])
        while True:
            records = await consumer.poll()
            if not records:
                continue
            await producer.begin_transaction()
            try:
                for r in records:
                    producer.send(target, r.value, key=r.key, headers=r.headers)
                # Not the last record's offset + 1, where the marker of a transaction may stand.
                # As this member: refused once the group has given its partitions to another.
                positions = await consumer.positions()
                await producer.send_offsets_to_transaction(positions, consumer.group_metadata())
                await producer.commit_transaction()
            except AbortableError:
                await producer.abort_transaction()
                consumer.seek_to_committed()


if __name__ == "__main__":
    asyncio.run(copy(*sys.argv[1:5]))
