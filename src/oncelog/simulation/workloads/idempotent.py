"""An idempotent producer: bursts, lingers, batch sizes, codecs, keys, several partitions.

Parameters: `topics`, {name: partition count}; `think_s`; `burst_max`; `acks`, -1 by default (1 and
0 are not idempotent); `keyed`, the share of records whose partition the key decides; `growing`,
topics to which no such record is sent; `renew`, the probability per burst that the client replaces
its producer.
"""

from __future__ import annotations

from oncelog.client import ClientError, FatalError, IllegalStateError, Producer
from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import ProducerInitialized
from oncelog.simulation.workloads.journal import Journal, supervise
from oncelog.simulation.workloads.outbox import Outbox
from oncelog.simulation.workloads.places import Places
from oncelog.simulation.workloads.session import CODECS

__all__ = ["new_producer", "run", "start"]


async def run(context: ClientContext) -> None:
    """Produce until it is time to settle."""
    await supervise(context, _Sending(context).work)


class _Sending:
    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._identity = (-1, -1)

    async def work(self, journal: Journal) -> None:
        outbox, places = Outbox(journal), Places(journal)
        acks = int(journal.number("acks", -1))
        while not journal.stopping:
            producer = new_producer(journal, acks)
            if await start(journal, producer):
                await self._life(journal, producer, outbox, places, acks)
            await journal.close(producer)

    async def _life(
        self, journal: Journal, producer: Producer, outbox: Outbox, places: Places, acks: int
    ) -> None:
        """Use one producer, until it fails or it is time to settle."""
        try:
            while not journal.stopping and not journal.chance(journal.number("renew", 0.02)):
                self._burst(journal, producer, outbox, places, acks)
                await journal.think()
                self._note_identity(journal, producer)
                if isinstance(outbox.failed, FatalError):
                    return
            journal.begin("flush")
            await producer.flush()
            self._note_identity(journal, producer)
        except IllegalStateError:
            raise
        except ClientError:
            # The buffer is full, or the producer has failed: close it.
            return

    def _burst(
        self, journal: Journal, producer: Producer, outbox: Outbox, places: Places, acks: int
    ) -> None:
        outbox.reset()
        keyed = journal.number("keyed", 0.2)
        for _ in range(journal.rng.randint(1, int(journal.number("burst_max", 12)))):
            by_key = places.by_key() if journal.chance(keyed) else None
            to, key = by_key or (places.any(), None)
            outbox.send(producer, to, key=key, padding=places.size(), acks=acks)

    def _note_identity(self, journal: Journal, producer: Producer) -> None:
        """Record the producer id if the producer has a new one."""
        identity = (producer.producer_id, producer.producer_epoch)
        if identity[0] >= 0 and identity != self._identity:
            self._identity = identity
            journal.record(ProducerInitialized, "", *identity)


def new_producer(journal: Journal, acks: int = -1) -> Producer:
    """Return a producer with random settings."""
    rng = journal.rng
    made = Producer(
        journal.bootstrap,
        acks=acks,
        enable_idempotence=acks == -1,
        linger_ms=rng.choice((0, 0, 5, 50)),
        batch_size=rng.choice((200, 1_000, 16_384)),
        compression_type=rng.choice(CODECS),
        delivery_timeout_ms=rng.choice((1_500, 10_000, 20_000)),
        **journal.options(),
    )
    journal.opened(made)
    return made


async def start(journal: Journal, producer: Producer) -> bool:
    """Connect the producer; False when it is time to settle before a broker replied."""
    while not journal.stopping:
        journal.begin("start")
        try:
            await producer.start()
        except IllegalStateError:
            raise
        except ClientError:
            await journal.think()
        else:
            return True
    return False
