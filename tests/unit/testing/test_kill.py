"""At each moment of a commit the broker dies with exactly the writes before it, and recovers."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from oncelog import Producer
from oncelog.testing import ControlledBroker, Moment
from oncelog.testing.moments import TransactionWriteKind, steps_of_write
from tests.support.interop.base import wait_until

WRITTEN = {
    Moment.BEFORE_PREPARE: (0, 0, 0),
    Moment.AFTER_PREPARE: (1, 0, 0),
    Moment.BETWEEN_MARKERS: (1, 1, 0),
    Moment.BEFORE_COMPLETE: (1, 2, 0),
    Moment.AFTER_COMPLETE: (1, 2, 1),
}
"""How many PREPAREs, markers and COMPLETEs are on disk."""


def steps_on_disk(folder: Path) -> tuple[int, int, int]:
    kinds = Counter(
        step.kind
        for path in folder.glob("*/*.log")
        for step in steps_of_write(str(path), path.read_bytes())
    )
    return (
        kinds[TransactionWriteKind.PREPARE],
        kinds[TransactionWriteKind.MARKER],
        kinds[TransactionWriteKind.COMPLETE],
    )


@pytest.mark.parametrize("moment", list(Moment), ids=lambda moment: moment.name.lower())
async def test_a_broker_dies_exactly_at_its_moment(tmp_path: Path, moment: Moment) -> None:
    async with ControlledBroker(tmp_path) as broker:
        broker.create_topic("t", 2)
        async with Producer(broker.bootstrap_servers, transactional_id="me") as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            for partition in (0, 1):
                await producer.send("t", b"value", partition=partition)
            other = broker.faults.kill(moment, transactional_id="another")
            death = broker.faults.kill(moment, transactional_id="me", restart=False)
            commit = asyncio.create_task(producer.commit_transaction())
            await asyncio.to_thread(death.wait)
            assert steps_on_disk(tmp_path) == WRITTEN[moment]
            broker.faults.restart()
            await commit
            # EndTxn is answered before.
            await asyncio.to_thread(wait_until, lambda: steps_on_disk(tmp_path)[2] > 0, "COMPLETE")
        assert (other.hits_count, death.hits_count) == (0, 1)
    prepares, markers, completes = steps_on_disk(tmp_path)
    assert (prepares, completes) == (1, 1)
    # Those that were written without COMPLETE are written again.
    assert markers == 2 + (WRITTEN[moment][1] if not WRITTEN[moment][2] else 0)
