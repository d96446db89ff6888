"""Consume, transform, produce: copies of a source's records, with their offsets, exactly once.

Each transaction holds the copies of one poll and the offsets after them. Unless a commit succeeded,
the client continues at the committed offsets, fetched with require_stable. A copy carries its
source as "topic-partition@offset".

Parameters: `sources` and `topics` (where to), {name: partition count}; `group_id`;
`transactional_id`; `share`, (index, count) of the sources' partitions that this client reads, as
several copy side by side; `abandon` and `abort`, probabilities per transaction; `think_s`;
`transaction_version_max`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from oncelog.client import (
    ClientError,
    IllegalStateError,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from oncelog.client.values import GroupOrMember
from oncelog.simulation.context import ClientContext
from oncelog.simulation.workloads.consuming import DRAIN_ROUNDS_COUNT, IDLE_ROUNDS_COUNT
from oncelog.simulation.workloads.journal import Journal, StuckError, supervise
from oncelog.simulation.workloads.outbox import Outbox
from oncelog.simulation.workloads.places import Places
from oncelog.simulation.workloads.reader import Reader, Row
from oncelog.simulation.workloads.session import TransactionalSession

__all__ = ["Copier", "copy_once", "run"]

LAST_ATTEMPTS_COUNT: Final = 10
"""Attempts to start a new producer for the remaining records when it is time to settle."""

LAST_WAITS_S: Final = (0.1, 0.2, 0.5, 1.0)
"""Mean waits after the first transactions that fail once it is time to settle; then the last."""


async def run(context: ClientContext) -> None:
    """Copy until it is time to settle, then to the end."""
    await supervise(context, _work)


async def _work(journal: Journal) -> None:
    group_id = journal.text("group_id", f"{journal.who}-group")
    copier = Copier(journal, Reader(journal, "read_committed", group_id), lambda: group_id)
    rounds = idle = failed = 0
    while rounds < DRAIN_ROUNDS_COUNT and idle < IDLE_ROUNDS_COUNT:
        rounds += journal.stopping
        idle += journal.stopping
        rows = await copy_once(copier)
        if rows:
            idle = 0 if copier.is_positioned else idle
        elif journal.stopping and copier.is_positioned and not await copier.reader.lag():
            await copier.session.close()
            return
        if not journal.stopping:
            await journal.think()
        elif rows and not copier.is_positioned:
            # Perhaps another copier has the same id: without a wait they could fence for ever.
            await journal.think(LAST_WAITS_S[min(failed, len(LAST_WAITS_S) - 1)])
            failed += 1
    lag = await copier.reader.lag()
    raise StuckError(f"lag of a copier: {lag}" if lag else "nothing was copied")


async def copy_once(copier: Copier) -> list[Row]:
    """Copy the records of one poll; return those that were read."""
    journal = copier.journal
    producer = await copier.session.producer(LAST_ATTEMPTS_COUNT)
    if producer is None:
        raise StuckError("no producer can be had")
    if not copier.is_positioned and not await copier.restart():
        if journal.stopping:
            await journal.think()
        return []
    rows = await copier.reader.poll(500 if journal.stopping else journal.rng.choice((1, 10, 500)))
    if rows:
        await copier.copy(producer, rows)
    return rows


class Copier:
    """Copies what `reader` returns. `group` tells as whom the offsets are committed."""

    def __init__(
        self, journal: Journal, reader: Reader, group: Callable[[], GroupOrMember]
    ) -> None:
        self.journal = journal
        self.session = TransactionalSession(journal, journal.text("transactional_id", journal.who))
        self.reader = reader
        self._group = group
        self.is_positioned = False
        self._outbox = Outbox(journal)
        self._places = Places(journal)
        share = journal.context.parameters.get("share", (0, 1))
        index, count = share if isinstance(share, tuple) else (0, 1)
        self._sources = Places(journal, "sources").partitions[index::count]

    async def restart(self) -> bool:
        """Go back to the committed offsets."""
        self.is_positioned = await self.reader.restart(self._sources)
        return self.is_positioned

    async def copy(self, producer: Producer, rows: list[Row]) -> None:
        """Copy the records of one poll in one transaction."""
        self.is_positioned = False
        if not await self.session.begin(producer):
            return
        journal, session = self.journal, self.session
        try:
            for topic_partition, offset, _value in rows:
                self._outbox.send(
                    producer,
                    self._target(topic_partition),
                    transaction=session.transaction,
                    source=f"{topic_partition}@{offset}",
                )
            await session.send_offsets(producer, self._group(), self._behind(rows))
            if journal.chance(journal.number("abandon", 0.03)):
                await session.abandon(comes_back=False)
                return
        except IllegalStateError:
            raise
        except ClientError as error:
            await session.recover(producer, error)
            return
        if journal.chance(journal.number("abort", 0.05)):
            await session.abort(producer)
        else:
            self.is_positioned = await session.commit(producer)

    def _target(self, source: TopicPartition) -> TopicPartition:
        partitions = self._places.partitions
        return partitions[source.partition % len(partitions)]

    def _behind(self, rows: list[Row]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the next offset to read, after the records that were read and skipped."""
        return {
            topic_partition: self.reader.at(topic_partition)
            for topic_partition in {row[0]: None for row in rows}
        }
