"""A transactional producer: bursts into several partitions, committed, aborted or abandoned.

Several clients may share one transactional id: each that starts fences the others, which then start
again. A client may also abandon its producer in a transaction without closing it; the zombie
continues to send, and some zombies try to commit.

Parameters: `transactional_id`; `topics`, {name: partition count}; `think_s`, the mean pause;
`burst_max`, records of one burst; `abandon`, `abort` and `renew`, probabilities per transaction;
`transaction_version_max`.
"""

from __future__ import annotations

from oncelog.client import ClientError, IllegalStateError, Producer
from oncelog.simulation.context import ClientContext
from oncelog.simulation.workloads.journal import Journal, supervise
from oncelog.simulation.workloads.outbox import Outbox
from oncelog.simulation.workloads.places import Places
from oncelog.simulation.workloads.session import TransactionalSession

__all__ = ["run"]


async def run(context: ClientContext) -> None:
    """Produce in transactions until it is time to settle."""
    await supervise(context, _work)


async def _work(journal: Journal) -> None:
    session = TransactionalSession(journal, journal.text("transactional_id", journal.who))
    outbox = Outbox(journal)
    places = Places(journal)
    while (producer := await session.producer()) is not None:
        await session.haunt(outbox, places.any())
        if await session.begin(producer):
            await _transaction(journal, session, outbox, places, producer)
        if journal.chance(journal.number("renew", 0.05)):
            await session.renew()
        if journal.stopping:
            break
        await journal.think()
    await session.close()


async def _transaction(
    journal: Journal,
    session: TransactionalSession,
    outbox: Outbox,
    places: Places,
    producer: Producer,
) -> None:
    outbox.reset()
    try:
        for _ in range(journal.rng.randint(1, 3)):
            for _ in range(journal.rng.randint(1, int(journal.number("burst_max", 8)))):
                outbox.send(
                    producer, places.any(), transaction=session.transaction, padding=places.size()
                )
            await journal.think(0.05)
        if journal.chance(journal.number("abandon", 0.1)):
            await session.abandon(comes_back=journal.chance(0.5))
            return
        if journal.chance(0.5):
            journal.begin("flush")
            await producer.flush()
    except IllegalStateError:
        raise
    except ClientError as error:
        await session.recover(producer, error)
        return
    if outbox.failed is not None:
        await session.recover(producer, outbox.failed)
    elif journal.chance(journal.number("abort", 0.2)):
        await session.abort(producer)
    else:
        await session.commit(producer)
