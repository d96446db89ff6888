"""Consume, transform, produce, by one stock client, as a process of its own that may be killed.

Run as ``python -m tests.support.copying CLIENT SERVERS SOURCE TARGET PARTITIONS SEED``. Each
transaction copies what one poll brought, with the group's offsets; one in five is aborted at random
and done again. It ends with 0 when it has copied everything that was there when it began, and with
1 when its client had enough: a new process then goes on from the committed offsets.

It reads by assignment and not as a member, so that a process which was killed holds nobody up. Its
transactional id keeps the process before it out; the committed offsets are asked for after that one
was fenced.
"""

from __future__ import annotations

import random
import sys

from tests.support.interop.aio import Aiokafka
from tests.support.interop.base import Client, Reader, Received, Record, Refused, Sender
from tests.support.interop.librdkafka import ConfluentKafka
from tests.support.interop.python import KafkaPython

CLIENTS: dict[str, type[Client]] = {
    each.name: each for each in (ConfluentKafka, Aiokafka, KafkaPython)
}
ABORT_CHANCE = 0.2
RECORDS_PER_TRANSACTION_MAX = 300


class Copying:
    """One life of a copier."""

    def __init__(
        self, client: Client, source: str, target: str, count: int, rng: random.Random
    ) -> None:
        self.source = source
        self.target = target
        self.rng = rng
        group = f"group-{target}"
        self.sender: Sender = client.sender(transactional_id=target, transaction_timeout_ms=60_000)
        self.reader: Reader = client.reader(group=group, isolation_level="read_committed")
        self.positions = {p: self.reader.committed(source, p) or 0 for p in range(count)}
        self.reader.assign(source, range(count))
        self.ends = {p: self.reader.bounds(source, p)[1] for p in range(count)}
        self.reader.seek_all(source, self.positions)

    def run(self) -> None:
        """Copy until the end. Raises `Refused`."""
        while any(self.positions[p] < end for p, end in self.ends.items()):
            if work := self._next():
                self._copy(work)

    def _next(self) -> list[Received]:
        """Records that come next in their partitions; what was fetched before a seek does not."""
        work: list[Received] = []
        positions = dict(self.positions)
        for record in self.reader.poll():
            if record.offset == positions[record.partition]:
                positions[record.partition] += 1
                work.append(record)
            if len(work) == RECORDS_PER_TRANSACTION_MAX:
                break
        return work

    def _copy(self, work: list[Received]) -> None:
        ends = {record.partition: record.offset + 1 for record in work}
        self.sender.begin()
        records = [Record(record.value, partition=record.partition) for record in work]
        self.sender.send(self.target, records)
        self.sender.send_offsets(self.source, ends, self.reader)
        if self.rng.random() < ABORT_CHANCE:
            self.sender.abort()
            print("aborted", flush=True)
        else:
            self.sender.commit()
            self.positions |= ends
            print(f"committed {len(work)}", flush=True)
        # Also after a commit: what the transaction left over of the poll is fetched again.
        self.reader.seek_all(self.source, self.positions)


def main() -> int:
    """Exit code 0 when everything is copied."""
    name, servers, source, target, count, seed = sys.argv[1:]
    client = CLIENTS[name](servers)
    try:
        Copying(client, source, target, int(count), random.Random(seed)).run()
    except (Refused, TimeoutError) as error:
        print(f"gave up: {error}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # Clients have threads that wait for a broker; nothing of them is needed any more.
    import os

    os._exit(code)
