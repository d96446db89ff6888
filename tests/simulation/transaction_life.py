"""The life of a client whose broker dies somewhere in it: one transaction over three partitions
with a group's offsets, then another one.

Written against a `ClientContext`, so that it runs in the simulation and beside a real process. It
never gives up: a crash may cost a client retries and a transaction that it has to abort, but its
next one must commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from oncelog.core.errors import require
from oncelog.core.ids import TopicPartition
from oncelog.simulation.context import ClientContext
from oncelog.simulation.peers.producer import BatchMaker
from oncelog.simulation.peers.transactional import Transactional

__all__ = ["FIRST", "GROUP", "NEXT", "OFFSETS_OF", "TOPIC", "Life", "live", "parameters"]

TOPIC: Final = "t"
GROUP: Final = "readers"
PARTITIONS: Final = tuple(TopicPartition(TOPIC, number) for number in range(3))
OFFSETS_OF: Final = PARTITIONS[0]
"""The partition whose offset the transactions commit for the group."""
FIRST, NEXT = 7, 8
"""The offsets that the group is given by the first transaction and by the next one."""
ATTEMPTS_COUNT_MAX: Final = 3
OPEN_MS: Final = 10
"""How long a transaction stays open with its offsets."""
FLAVORS: Final = {1: "librdkafka", 2: "java"}


@dataclass(frozen=True, slots=True)
class Life:
    """Which protocol is spoken, and how the first transaction ends."""

    version: int
    commit: bool

    def __str__(self) -> str:
        return f"TV{self.version} {'commit' if self.commit else 'abort'}"


def parameters(life: Life) -> dict[str, object]:
    """Those of a client without vices: it waits for its answers."""
    return {
        "flavor": FLAVORS[life.version],
        "topics": (TOPIC,),
        "late": 0.0,
        "impatience": 0.0,
        "transaction_timeout_ms": 60_000,
        "batch_records_max": 2,
        "delivery_timeout_ms": 30_000,
        "call_timeout_ms": 30_000,
    }


async def live(context: ClientContext, life: Life) -> None:
    """Both transactions. Raises InvariantViolation where the client cannot go on."""
    producer = Transactional(context, "orders")
    require(await producer.start(), "a producer could not start")
    maker = BatchMaker(context, producer.wire)
    attempt = 0
    while not await producer.wire.refresh([TOPIC]):
        await context.back_off(attempt)
        attempt += 1
    await _transact(context, producer, maker, FIRST, commit=life.commit)
    context.progress("first is over")
    await _transact(context, producer, maker, NEXT, commit=True)
    producer.wire.close()
    context.progress("settled")


async def _transact(
    context: ClientContext, producer: Transactional, maker: BatchMaker, offset: int, *, commit: bool
) -> None:
    for _ in range(ATTEMPTS_COUNT_MAX):
        producer.begin()
        batches = [maker.batch(at, producer.transaction) for at in PARTITIONS]
        await producer.send(batches)
        await producer.send_offsets(GROUP, {OFFSETS_OF: offset})
        # Others see the group meanwhile.
        await context.clock.sleep(OPEN_MS)
        if commit:
            if await producer.commit():
                return
        elif producer.error is None:
            await producer.abort()
            require(not producer.is_fatal, f"a healthy producer was fenced: {producer.error}")
            return
        require(not producer.is_fatal, f"a healthy producer was fenced: {producer.error}")
        await producer.abort()
        require(not producer.is_fatal, f"a healthy producer was fenced: {producer.error}")
    require(False, f"{ATTEMPTS_COUNT_MAX} transactions in a row failed")
