"""`python -m bench.growth`: what one thing more costs a broker that has few, or many, of them.

Topics, partitions, connections, open transactions, producer ids and the members of one group grow
in steps of ten, each kind in a fresh broker of these sources. Of each step the broker's CPU time
and the growth of its memory are divided by what came with it. A cost that rises with the step is
more than linear. Memory comes in pieces, so that of few things says nothing.
"""

import argparse
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.table import Table

from bench.gauges import cpu_time, raise_file_limit, resident_mb
from bench.storage import groups, ids
from bench.storage.frames import Connection, ask, shares, string
from bench.systems import FromSources
from bench.work import TIMEOUT_S, admin, fresh_topic, producer
from oncelog.protocol.produce import encode_produce_request
from oncelog.protocol.record import Record, build_batch

STEPS = (10, 100, 1_000, 10_000)
PRODUCE, METADATA = 0, 3
VERSIONS = {**groups.VERSIONS, **ids.VERSIONS, PRODUCE: 3, METADATA: 1}
NO_TOPICS = struct.pack(">i", 0)
GROUP = "growth"
TOPICS_TOGETHER = 100
SETTINGS = {
    "connections.max.idle.ms": "-1",
    "transaction.max.timeout.ms": "3600000",
    "group.max.session.timeout.ms": str(groups.SESSION_MS),
    "group.initial.rebalance.delay.ms": "1000",
}
JOINS_READ_S = 0.5
"""So long at least after new members have asked, those before them rejoin."""
JOINS_PER_S = 5_000


class Grown:
    """A broker, and connections to it that stay until the end."""

    def __init__(self, system: FromSources, stack: ExitStack, count_max: int) -> None:
        self.system = system
        self.count_max = count_max
        """How many things there will be in the end."""
        self._stack = stack
        self.connections: list[Connection] = []

    def connect(self, count: int) -> None:
        """Have so many connections, each of which was answered once."""
        for _ in range(count - len(self.connections)):
            made = Connection(self.system.bootstrap_servers, VERSIONS)
            self.connections.append(self._stack.enter_context(made))
            made.send(METADATA, NO_TOPICS)
            made.receive()


Grow = Callable[[range], None]
"""Makes those of a step, whose numbers these are."""


def connections(grown: Grown) -> Grow:
    """Each asks for the brokers, once."""
    return lambda numbers: grown.connect(numbers.stop)


def partitions(grown: Grown) -> Grow:
    """One topic has those of a step. Nobody writes to them."""

    def grow(numbers: range) -> None:
        fresh_topic(grown.system, len(numbers))

    return grow


def topics(grown: Grown) -> Grow:
    """A hundred in each request, of one partition each."""
    client = admin(grown.system)

    def grow(numbers: range) -> None:
        for first in range(0, len(numbers), TOPICS_TOGETHER):
            named = [f"growth-{number}" for number in numbers[first : first + TOPICS_TOGETHER]]
            made = client.create_topics([NewTopic(name, 1, 1) for name in named])
            for future in made.values():
                future.result(TIMEOUT_S)

    return grow


def transactions(grown: Grown) -> Grow:
    """Each id has one open over one of ten partitions, by the older protocol."""
    topic = fresh_topic(grown.system, ids.PARTITIONS)
    producer(grown.system, **{"transactional.id": "first"}).init_transactions(TIMEOUT_S)
    grown.connect(50)

    def grow(numbers: range) -> None:
        for share in shares(len(numbers)):
            named = [(f"id-{numbers[n]}", n % ids.PARTITIONS) for n in share]
            ids.begin(named, topic, grown.connections)

    return grow


def producer_ids(grown: Grown) -> Grow:
    """Each has written one record to one partition."""
    topic = fresh_topic(grown.system, 1)
    grown.connect(50)

    def grow(numbers: range) -> None:
        for share in shares(len(numbers)):
            used = grown.connections[: len(share)]
            asked = [struct.pack(">hi", -1, 0)] * len(share)
            who = [struct.unpack_from(">qh", each, 6) for each in ask(used, 22, asked, 4)]
            ask(used, PRODUCE, [_produce(topic, *each) for each in who], _error_at(topic))

    return grow


def _produce(topic: str, producer_id: int, epoch: int) -> bytes:
    batch = build_batch(
        [Record(0, 1_700_000_000_000, None, bytes(100))],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
    )
    frame = encode_produce_request(
        3,
        1,
        None,
        transactional_id=None,
        acks=-1,
        timeout_ms=30_000,
        topics=[(topic, None, [(0, batch)])],
    )
    return b"".join(map(bytes, frame))[10:]


def _error_at(topic: str) -> int:
    return 4 + len(string(topic)) + 4 + 4


def members(grown: Grown) -> Grow:
    """New members of one classic group join, each by a connection, and those before rejoin.

    All come into one generation: the first ones while the group waits for more, later ones while it
    waits for those before them, who would have to rejoin once more otherwise.
    """
    groups.warm_up(grown.system, fresh_topic(grown.system, 1))
    # They cost too, and are measured by themselves.
    grown.connect(grown.count_max)
    names: list[str] = []

    def grow(numbers: range) -> None:
        new = grown.connections[numbers.start : numbers.stop]
        for connection in new:
            connection.send(groups.JOIN_GROUP, groups.join_request(GROUP))
        if names:
            time.sleep(max(JOINS_READ_S, len(new) / JOINS_PER_S))
        for connection, name in zip(grown.connections, names, strict=False):
            connection.send(groups.JOIN_GROUP, groups.join_request(GROUP, name))
        joined = [groups.joined(each.receive()) for each in grown.connections[: numbers.stop]]
        names[:] = [name for _, name in joined]

    return grow


KINDS: dict[str, Callable[[Grown], Grow]] = {
    "topic": topics,
    "partition of a topic": partitions,
    "connection": connections,
    "open transaction": transactions,
    "producer id": producer_ids,
    "member of a group": members,
}


def measure(kind: str, steps: Sequence[int]) -> list[tuple[float, float]]:
    """CPU in us and memory in KB of one thing, for each step."""
    found: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory(prefix="oncelog-growth-") as folder, ExitStack() as stack:
        system = FromSources(Path(folder), SETTINGS)
        stack.push(system.__exit__)
        system.start()
        grow = KINDS[kind](Grown(system, stack, steps[-1]))
        have = 0
        for step in steps:
            before, before_mb = cpu_time(system.pid), resident_mb(system.pid)
            grow(range(have, step))
            used = cpu_time(system.pid).since(before).total_s
            grown_kb = (resident_mb(system.pid) - before_mb) * 1000
            found.append((used / (step - have) * 1e6, grown_kb / (step - have)))
            have = step
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    given = parser.parse_args(arguments)
    raise_file_limit()
    table = Table(title="CPU in us (memory in KB) of one more")
    table.add_column("one more")
    for first, last in zip((1, *STEPS), STEPS, strict=False):
        table.add_column(f"{first:,} to {last:,}", justify="right")
    for kind in given.only:
        table.add_row(kind, *(f"{cpu:,.0f} ({kb:,.1f})" for cpu, kb in measure(kind, STEPS)))
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
