"""Three ways to carry records from a topic to another, each with a crash in the middle.

    python examples/delivery_semantics.py at-most-once
    python examples/delivery_semantics.py at-least-once
    python examples/delivery_semantics.py exactly-once

A worker process copies ten records and kills itself at record 5. A second one goes on where the
first one's position was committed. Then the outcome is printed.
"""

import asyncio
import multiprocessing
import os
import signal
import sys
from collections import Counter

from oncelog import (
    Consumer,
    EmbeddedBroker,
    NewTopic,
    Producer,
    TopicPartition,
    sync,
)

SOURCE = TopicPartition("orders", 0)
TARGET = TopicPartition("shipments", 0)
COUNT = 10
CRASH_AT = 5
GROUP = "shipping"


def crash_here(number: int, *, may_crash: bool) -> None:
    if may_crash and number == CRASH_AT:
        os.kill(os.getpid(), signal.SIGKILL)


async def at_most_once(servers: str, *, may_crash: bool) -> None:
    """Commit first: what was not sent when the process dies is never sent."""
    async with Consumer(servers, group_id=GROUP) as consumer, Producer(servers, acks=1) as producer:
        consumer.assign([SOURCE])
        while records := await consumer.poll(timeout_ms=1000, max_records=1):
            await consumer.commit()
            crash_here(records[0].offset, may_crash=may_crash)
            await producer.send(TARGET.topic, records[0].value)


async def at_least_once(servers: str, *, may_crash: bool) -> None:
    """Send first: what was not committed when the process dies is sent again."""
    async with Consumer(servers, group_id=GROUP) as consumer, Producer(servers) as producer:
        consumer.assign([SOURCE])
        while records := await consumer.poll(timeout_ms=1000, max_records=1):
            await producer.send(TARGET.topic, records[0].value)
            crash_here(records[0].offset, may_crash=may_crash)
            await consumer.commit()


async def exactly_once(servers: str, *, may_crash: bool) -> None:
    """Send and commit in one transaction: both are visible, or neither."""
    async with (
        Consumer(servers, group_id=GROUP) as consumer,
        Producer(servers, transactional_id=GROUP) as producer,
    ):
        # This fences a worker before us and aborts what it left open.
        await producer.init_transactions()
        consumer.assign([SOURCE])
        while records := await consumer.poll(timeout_ms=1000, max_records=1):
            record = records[0]
            await producer.begin_transaction()
            producer.send(TARGET.topic, record.value)
            await producer.send_offsets_to_transaction(await consumer.positions(), GROUP)
            await producer.flush()
            crash_here(record.offset, may_crash=may_crash)
            await producer.commit_transaction()


WAYS = {
    "at-most-once": at_most_once,
    "at-least-once": at_least_once,
    "exactly-once": exactly_once,
}


def work(way: str, servers: str, may_crash: bool) -> None:
    asyncio.run(WAYS[way](servers, may_crash=may_crash))


def outcome(servers: str) -> str:
    with sync.Consumer(servers) as consumer:
        consumer.assign([TARGET])
        seen: Counter[str] = Counter()
        while records := consumer.poll(timeout_ms=500):
            seen.update((record.value or b"").decode() for record in records)
    findings = [f"record {n} is lost" for n in map(str, range(COUNT)) if n not in seen]
    findings += [f"record {n} is there twice" for n, times in seen.items() if times > 1]
    return f"{COUNT} in, {seen.total()} out: {', '.join(findings) or 'each is there once'}"


def main(way: str) -> None:
    processes = multiprocessing.get_context("spawn")
    with EmbeddedBroker() as broker:
        servers = broker.bootstrap_servers
        with sync.Admin(servers) as admin, sync.Producer(servers) as producer:
            admin.create_topics([NewTopic(SOURCE.topic, 1), NewTopic(TARGET.topic, 1)])
            for number in range(COUNT):
                producer.send(SOURCE.topic, str(number).encode())
        for may_crash in (True, False):
            worker = processes.Process(target=work, args=(way, servers, may_crash))
            worker.start()
            worker.join()
        print(f"{way}: {outcome(servers)}")


if __name__ == "__main__":
    main(sys.argv[1])
